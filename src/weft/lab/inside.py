"""The one thread of the supervisor that enters namespaces, so that no other thread ever does.

Whatever is started or opened there belongs to the namespaces that the thread is in at that moment: a child
process inherits them, a socket keeps its network namespace for good. Work in here must be short and must not
wait for anything that happens in a node.
"""

import os
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from weft.lab import system
from weft.model.value import Value

T = TypeVar("T")

_FILES: Final = {
    system.CLONE_NEWNS: "mnt",
    system.CLONE_NEWNET: "net",
    system.CLONE_NEWUTS: "uts",
    system.CLONE_NEWIPC: "ipc",
}


class Room(Value):
    """Descriptors of one set of namespaces. They keep the namespaces alive until `close`."""

    mnt: int
    net: int
    uts: int
    ipc: int

    @classmethod
    def here(cls) -> Self:
        """Return the namespaces of the calling thread."""
        flags = os.O_RDONLY | os.O_CLOEXEC
        return cls(**{name: os.open(f"/proc/thread-self/ns/{name}", flags) for name in _FILES.values()})

    def enter(self) -> None:
        """Move the calling thread in; its working directory becomes `/`."""
        for kind, name in _FILES.items():
            system.setns(getattr(self, name), kind)

    def close(self) -> None:
        for name in _FILES.values():
            os.close(getattr(self, name))


class Inside:
    """Runs functions inside rooms, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inside", initializer=self._settle)
        self._home: Room | None = None

    def _settle(self) -> None:
        # The kernel lets only a thread with a root and working directory of its own into another mount namespace.
        system.unshare(system.CLONE_FS)
        self._home = Room.here()

    async def run(self, room: Room | None, work: Callable[[], T]) -> T:
        """Call `work` in `room`, or with None in the lab's own namespaces, and come home again."""
        return await get_running_loop().run_in_executor(self._thread, self._visit, room, work)

    def _visit(self, room: Room | None, work: Callable[[], T]) -> T:
        assert self._home is not None  # noqa: S101 - the initializer has run
        try:
            if room is not None:
                room.enter()
            return work()
        finally:
            self._home.enter()
