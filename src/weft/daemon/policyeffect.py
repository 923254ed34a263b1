"""Since when policies are in effect as they are known, and which have changed and are not yet."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from weft.cluster.policysource import Change
from weft.model.lease import Lease
from weft.model.node.nodestate import PolicyEffect
from weft.model.policy import Id, name_of

_LOOK_SECONDS: Final = 0.05


def unenforced(leases: Iterable[Lease]) -> tuple[str, ...]:
    """The nodes that do not say that they enforce policies, by their leases' ids and their addresses."""
    silent = (lease for lease in leases if lease.attrs.policies != "enforce")
    return tuple(sorted(map(_node, silent)))


def _node(lease: Lease) -> str:
    audit = ", in an audit" if lease.attrs.policies else ""
    return f"{lease.id} ({' '.join(map(str, lease.attrs.publics))}{audit})"


class Effects:
    """Pods come and go all the time: a change is one of policies, or of a namespace, whose labels policies mean."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._found = False
        self._changing: set[Id] = set()
        self._waits = asyncio.Event()

    @property
    def now(self) -> PolicyEffect:
        return PolicyEffect(since=self._since, found=self._found, changing=tuple(sorted(map(name_of, self._changing))))

    def take(self, found: Change) -> None:
        """Note what it changes, before that is on its way to the kernel."""
        self._note(each.id for each in found.put)
        self._note(found.gone)

    async def run(self, is_settled: Callable[[], bool], made: Callable[[], int]) -> NoReturn:
        """`made` counts the chains that were made in this run: without any, the kernel had them all before."""
        while True:
            await self._waits.wait()
            while not is_settled():  # noqa: ASYNC110 - a change is in the kernel in a moment
                await asyncio.sleep(_LOOK_SECONDS)
            self._waits.clear()
            self._changing.clear()
            self._found = self._since is None and not made()
            self._since = time.time()

    def _note(self, names: Iterable[Id]) -> None:
        changed = {name for name in names if name[0] != "pod"}
        if changed:
            self._changing |= changed
            self._waits.set()
