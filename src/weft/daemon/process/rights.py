"""Gives away the capabilities that the daemon never uses (capabilities(7)), but for a thread that loads kernel modules.

That holds for all threads and programs that start later, so it comes before them. Programs inherit a thread's rights,
and some outlive the daemon: a later one with fewer could not look at them (ptrace(2)).
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, Self

from weft.kernel import namespaces
from weft.kernel.tools import Tools

# linux/capability.h: what each is for here.
KEPT: Final = {
    0: "CHOWN: files of CNI plugins keep their owner",
    1: "DAC_OVERRIDE: directories below which a runtime of another user keeps its files",
    3: "FOWNER: modes of such files",
    10: "NET_BIND_SERVICE: --healthz-port below 1024",
    12: "NET_ADMIN: devices, routes, rules, settings, in containers as well",
    13: "NET_RAW: asking by ARP whether an address is alive, and iptables",
    38: "PERFMON: without it older kernels refuse programs that a compiler has made",
    39: "BPF: back end udp in the kernel",
}
_SYS_MODULE: Final = 16
_BRIDGE_FILTER: Final = Path("/proc/sys/net/bridge")


class Modules:
    """Runs programs by its thread until `end`; without a thread, as others are run."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[str, Sequence[str], Future[str]] | None] = SimpleQueue()
        self._thread: Thread | None = None

    @classmethod
    def apart(cls, give_away: Callable[[], None]) -> Self:
        """Start the thread, which does `give_away` first: it begins with the caller's rights."""
        modules = cls()
        given = Future[None]()
        modules._thread = Thread(target=modules._serve, args=(give_away, given), daemon=True)
        modules._thread.start()
        given.result()
        return modules

    async def run(self, name: str, arguments: Sequence[str]) -> str:
        """Return what a program printed. Raises `ToolError`."""
        if self._thread is None:
            return await Tools().run(name, arguments)
        answer = Future[str]()
        self._asked.put((name, arguments, answer))
        return await asyncio.wrap_future(answer)

    def end(self) -> None:
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self, give_away: Callable[[], None], given: "Future[None]") -> None:
        give_away()
        given.set_result(None)
        while (asked := self._asked.get()) is not None:
            name, arguments, answer = asked
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(asyncio.run(Tools().run(name, arguments)))
            except BaseException as error:  # noqa: BLE001 - it is the caller's, of whatever kind
                answer.set_exception(error)


def kept() -> int:
    """The bits of the capabilities in `KEPT`."""
    return sum(1 << number for number in KEPT)


def give_away_all_but_modules(bridge_filter: Path = _BRIDGE_FILTER) -> Modules:
    """Without br_netfilter, a thread keeps the right to load it, if the network wants it."""
    with_modules = partial(namespaces.keep, kept() | 1 << _SYS_MODULE)
    modules = Modules() if bridge_filter.exists() else Modules.apart(with_modules)
    namespaces.keep(kept())
    return modules
