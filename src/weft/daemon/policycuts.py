"""Open connections that policies allow no more are cut: within a second of the change, one walk for a burst of them."""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

from weft.beside.threads import beside
from weft.desired.policy.connections import Connections
from weft.kernel.netfilter.cutting import Forbids, cut, reopen
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.errors import Problem
from weft.model.net import Ip
from weft.model.text import counted

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.02
_RETRY_SECONDS: Final = 1.0
# After a walk, so many times as long as it took, but no longer than a quarter of a second: a change waits for that.
_REST: Final = 9
_MOST_SECONDS: Final = 0.25


class Judging(Protocol):
    """What is enforced."""

    def connections(self) -> Connections | None:
        """A judge by what packets are led by now; None while a change is on its way to the kernel."""
        ...


class Cutter(Protocol):
    """Called in a thread. Cuts what is forbidden `of` these addresses, or all, and opens what is allowed again.

    Returns how many were cut, and how many are shut now. Raises `OSError`.
    """

    def __call__(self, forbids: Forbids, of: set[bytes] | None, /) -> tuple[int, int]: ...


class Cuts:
    """`done` counts what was cut since the start."""

    def __init__(self, cutter: Cutter) -> None:
        self.done = 0
        self.problem: Problem | None = None
        self._cutter = cutter
        self._all = False
        self._of: set[bytes] = set()
        self._at: set[bytes] | None = set()  # what is judged now
        self._shut = 0  # connections that were cut, and whose answers do not pass
        self._waits = asyncio.Event()

    def everything(self) -> None:
        """Have all connections judged."""
        self._all = True
        self._waits.set()

    def concern(self, addresses: set[bytes]) -> None:
        """Have those of these addresses judged, once the kernel has what was decided, and what is shut."""
        if addresses:
            self._of |= addresses
        if addresses or self._shut:
            self._waits.set()

    def concerns(self, ips: Iterable[Ip]) -> bool:
        """Tell whether connections of these addresses are still to be judged, and can be."""
        if self.problem is not None:
            return False
        return self._all or self._at is None or any(ip.packed in self._of or ip.packed in self._at for ip in ips)

    async def run(self, judging: Judging) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._waits.wait()
            while (judge := judging.connections()) is None:  # noqa: ASYNC110 - a change is in the kernel in a moment
                await asyncio.sleep(_LOOK_SECONDS)
            self._waits.clear()
            self._at = of = None if self._all else self._of
            self._all, self._of = False, set()
            began = clock()
            try:
                gone, self._shut = await beside(partial(self._cutter, judge.forbids, of))
                self._tell(gone)
            except OSError as error:
                self._failed(error)
                self._all, self._of = self._all or of is None, self._of | (of or set())
                self._waits.set()
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._at = set()
                await asyncio.sleep(min(_MOST_SECONDS, _REST * (clock() - began)))

    def _tell(self, gone: int) -> None:
        if self.problem is not None:
            log.info("POL-003 is over: open connections can be looked at again")
        self.problem = None
        if gone:
            self.done += gone
            log.info("cut %s that policies allow no more", counted(gone, "open connection"))

    def _failed(self, error: OSError) -> None:
        seen = f"the kernel's connections cannot be looked at: {error.strerror or error}"
        hint = "Trying again; what is open goes on, new connections are judged"
        problem = Problem(code="POL-003", where="open connections", seen=seen, hint=hint)
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem


def of_kernel(nf: NfSocket) -> Cutter:
    def cut_and_reopen(forbids: Forbids, of: set[bytes] | None) -> tuple[int, int]:
        gone = cut(nf, forbids, of) if of is None or of else 0
        return gone, reopen(nf, forbids)

    return cut_and_reopen
