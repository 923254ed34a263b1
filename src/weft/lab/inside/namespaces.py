"""The one thread of the supervisor that enters namespaces.

What it starts or opens belongs to the namespaces that it is in: a child inherits them, a socket keeps its network
namespace for good. Work in here must be short and must not wait for a node.
"""

import os
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from weft.kernel.namespaces import (
    CLONE_FS,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    setns,
    unshare,
)
from weft.model.value import Value

T = TypeVar("T")

# The kind of each namespace, its name here and that of its file in /proc.
_FILES: Final = (
    (CLONE_NEWNS, "mnt", "mnt"),
    (CLONE_NEWNET, "net", "net"),
    (CLONE_NEWUTS, "uts", "uts"),
    (CLONE_NEWIPC, "ipc", "ipc"),
    (CLONE_NEWPID, "pid", "pid_for_children"),  # a process stays in its own; what it starts is in this
)


class Room(Value):
    """Descriptors of namespaces, which they keep alive until `close`."""

    mnt: int
    net: int
    uts: int
    ipc: int
    pid: int

    @classmethod
    def here(cls, proc: int) -> Self:
        flags = os.O_RDONLY | os.O_CLOEXEC
        return cls(**{name: os.open(f"thread-self/ns/{file}", flags, dir_fd=proc) for _, name, file in _FILES})

    def enter(self) -> None:
        """Move the calling thread in; its working directory becomes `/`."""
        for kind, name, _ in _FILES:
            setns(getattr(self, name), kind)

    def close(self) -> None:
        for _, name, _ in _FILES:
            os.close(getattr(self, name))


class Inside:
    """Runs functions inside rooms, one after the other. `proc` is an open /proc that shows its thread."""

    def __init__(self) -> None:
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inside", initializer=self._settle)
        self._home: Room | None = None

    def _settle(self) -> None:
        # The kernel lets only a thread with a root and working directory of its own into another mount namespace.
        unshare(CLONE_FS)
        self._home = Room.here(self.proc)

    async def run(self, room: Room | None, work: Callable[[], T]) -> T:
        """None is the lab's own namespaces."""
        return await get_running_loop().run_in_executor(self._thread, self._visit, room, work)

    def _visit(self, room: Room | None, work: Callable[[], T]) -> T:
        assert self._home is not None  # noqa: S101 - the initializer has run
        try:
            if room is not None:
                room.enter()
            return work()
        finally:
            self._home.enter()
