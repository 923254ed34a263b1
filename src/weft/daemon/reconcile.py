"""The reconciler: takes what has changed for the node, has it decided, and hands what that touches to each plane.

What decides is one; where it is put are planes, each with its own loop and pace (`weft.daemon.planes.plane`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from weft.daemon.planes import repairs
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.plane import Keeper
from weft.desired.decide import Decider
from weft.model.kernel.objects import Key
from weft.model.node.history import History
from weft.model.value import Value, field

log = logging.getLogger(__name__)


class Change(Value, frozen=False):
    """What is to be decided again: everything, what is needed once, or some peers by their leases' ids.

    `since` is when the first of the peers was marked.
    """

    everything: bool = False
    once: bool = False
    peers: set[str] = field(default_factory=set)
    since: float | None = None


class Reconciler:
    """Has decided what changes. A burst of changes while one is decided is the next; the first starts at once.

    `clock` counts seconds and only goes forward.
    """

    def __init__(self, decider: Decider, *, clock: Callable[[], float]) -> None:
        self.decider = decider
        self._clock = clock
        self.keepers: list[Keeper] = []
        self.complete = False  # until the first full list of leases nothing is removed
        self._change = Change()
        self._changed = asyncio.Event()
        self._more = False  # the rest of a decision is still to come

    def keep(self, plane: Plane, *, history: History | None = None) -> Keeper:
        """Make a keeper for a plane, which is handed what is decided from now on."""
        keeper = Keeper(plane, self.decider, may_remove=self.may_remove, clock=self._clock, history=history)
        self.keepers.append(keeper)
        return keeper

    def may_remove(self) -> bool:
        """Tell whether all that is wanted is known."""
        return self.complete and not self._more

    @property
    def is_deciding(self) -> bool:
        """Tell whether anything is still to be decided."""
        return self._more or self._changed.is_set()

    def everything(self) -> None:
        """Have everything decided again: what decides about all has changed."""
        self._change.everything = True
        self._changed.set()

    def once(self) -> None:
        """Have what the node needs once decided again."""
        self._change.once = True
        self._changed.set()

    def peers(self, ids: Iterable[str]) -> None:
        """Have what these peers need decided again."""
        self._change.peers.update(ids)
        if self._change.since is None:
            self._change.since = self._clock()
        self._changed.set()

    def look_again(self) -> None:
        """Have everything looked at, everywhere."""
        for keeper in self.keepers:
            keeper.look_again()

    def start_over(self) -> None:
        """Have everything looked at and decided again, as if nothing was known."""
        self.everything()
        self.look_again()

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await self._changed.wait()
            await self.decide()

    async def decide(self) -> None:
        """Decide about all that has changed, slice by slice: while planes work on one, the next is decided."""
        change, self._change = self._change, Change()
        self._changed.clear()
        slices = self.decider.decide(everything=change.everything, once=change.once, peers=change.peers)
        gone = set[Key]()
        keys = next(slices, None)
        try:
            while keys is not None:
                following = next(slices, None)
                self._more = following is not None
                gone.update(key for key in keys if key not in self.decider.wanted)  # not `-`: that copies all keys
                self._hand_out(keys if self._more else keys | gone, change.since)
                if self._more:
                    await asyncio.sleep(0)
                keys = following
        finally:
            self._more = False
        if change.everything:
            for keeper in self.keepers:
                keeper.compare_all()
        repairs.say_some(log.warning, [f"peer ignored: {problem}" for problem in self.decider.news()])

    def _hand_out(self, keys: set[Key], since: float | None) -> None:
        for keeper in self.keepers:
            keeper.decided(keys, since)

    @property
    def failing(self) -> dict[Key, str]:
        """What is refused, by any plane, and in which words."""
        return {key: words for keeper in self.keepers for key, words in keeper.tally.failing.items()}

    def own_failures(self) -> dict[Key, str]:
        """What is refused of this node's own devices and what they need, without which no peer is reached."""
        failing = self.failing
        # Devices first: without them nothing that sits on them can be.
        own = sorted((thing for thing in self.decider.part() if thing.vital), key=lambda thing: thing.rank)
        return {thing.key: failing[thing.key] for thing in own if thing.key in failing}

    def failing_peers(self) -> int:
        """How many believed peers are not served, or not whole: their data are no use, or a plane refuses objects.

        Looks at every peer while anything fails: for those who ask, not for the event path.
        """
        failing = self.failing
        peers = self.decider.peers if failing else ()
        broken = (any(thing.key in failing for thing in self.decider.part(peer)) for peer in peers)
        return len(self.decider.unusable) + sum(broken)
