"""The reconciler: has changes decided, and hands the touched keys to the planes.

There is one decider and several planes, each with its own loop and pace (`weft.daemon.planes.plane`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from weft.daemon.planes import repairs
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.plane import Keeper
from weft.desired.decide import Decider
from weft.desired.node import device_of
from weft.model.kernel.objects import Key
from weft.model.node.history import History

log = logging.getLogger(__name__)


class Reconciler:
    """Decides a change and hands it out in the same turn of the event loop, so that planes know all that is wanted.

    Nothing is wanted before the first `decide`, which decides everything. `clock` is in seconds and only goes forward.
    """

    def __init__(self, decider: Decider, *, clock: Callable[[], float]) -> None:
        self.decider = decider
        self.clock = clock
        self.keepers: list[Keeper] = []
        self.complete = False  # until the first full list of leases nothing is removed
        self.begun = False  # to decide; before, nothing is known to be wanted
        self._stale = asyncio.Event()  # everything is to be decided again
        self._under_way = 0  # decisions of which more is to come
        self._gone: set[Key] = set()  # what these want no more

    def keep(self, plane: Plane, *, history: History | None = None) -> Keeper:
        """It is handed what is decided from then on."""
        keeper = Keeper(plane, self.decider, may_remove=self.may_remove, clock=self.clock, history=history)
        self.keepers.append(keeper)
        return keeper

    def may_remove(self) -> bool:
        return self.complete and not self._under_way

    @property
    def is_deciding(self) -> bool:
        return bool(self._under_way) or self._stale.is_set()

    def decide_all_again(self) -> None:
        self._stale.set()

    def decide_shared(self) -> None:
        self._hand_out(self.decider.decide_shared(), None)

    def peers(self, ids: Iterable[str], since: float | None = None) -> None:
        """`since` is when the store said what asks for it, by `clock`."""
        if self.begun:
            with self.deciding():
                self._hand_out(self.decider.decide_peers(ids), since)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Decide in slices. A later slice may want what an earlier one dropped: nothing is removed before the end."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
        if not self._under_way:
            gone, self._gone = self._gone, set()
            self._hand_out(gone, None)
            repairs.say_some(log.warning, [f"peer ignored: {problem}" for problem in self.decider.news()])

    def look_again(self) -> None:
        for keeper in self.keepers:
            keeper.look_again()

    def start_over(self) -> None:
        """As if nothing was known."""
        self.decide_all_again()
        self.look_again()

    async def run(self) -> None:
        while True:
            await self._stale.wait()
            await self.decide()

    async def decide(self) -> None:
        """Planes work on one slice while the next is decided."""
        self._stale.clear()
        self.begun = True
        with self.deciding():
            for keys in self.decider.decide_everything():
                self._hand_out(keys, None)
                await asyncio.sleep(0)
        for keeper in self.keepers:
            keeper.compare_all()

    def _hand_out(self, keys: set[Key], since: float | None) -> None:
        self._gone.update(key for key in keys if key not in self.decider.wanted)
        for keeper in self.keepers:
            keeper.decided(keys, since)

    @property
    def failing(self) -> dict[Key, str]:
        """By any plane, in words."""
        return {key: words for keeper in self.keepers for key, words in keeper.tally.failing.items()}

    def own_failures(self) -> dict[Key, str]:
        """What is refused of this node's own devices and what they need, without which no peer is reached."""
        failing = self.failing
        spare = self.decider.spare
        # Devices first: without them nothing that sits on them can be.
        vital = (thing for thing in self.decider.part() if thing.vital and device_of(thing) not in spare)
        own = sorted(vital, key=lambda thing: thing.rank)
        return {thing.key: failing[thing.key] for thing in own if thing.key in failing}

    def failing_peers(self) -> int:
        """How many believed peers are not served, or not whole: their data are no use, or a plane refuses objects.

        Looks at every peer while anything fails: for those who ask, not for the event path.
        """
        failing = self.failing
        peers = self.decider.peers if failing else ()
        broken = (any(thing.key in failing for thing in self.decider.part(peer)) for peer in peers)
        return len(self.decider.unusable) + sum(broken)
