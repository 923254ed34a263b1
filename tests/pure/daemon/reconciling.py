"""A reconciler of one plane over a kernel that applies steps in memory."""

from collections.abc import Callable, Collection, Mapping, Sequence

from tests.pure.desired.rosters import listed
from tests.pure.replay import remove, replay
from tests.support import builders
from weft.daemon.planes.repairs import Tally
from weft.daemon.reconcile import Reconciler
from weft.desired.backends import vxlan
from weft.desired.decide import Decider
from weft.desired.leasecheck import Ours
from weft.desired.roster import Roster
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.node.history import History
from weft.plan.diff import Step

ROUTE = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])[
    ("route", 254, int(builders.subnet_v4(2).network_address), 24, 0)
]


LINK: Key = ("link", "flannel.1")


class FakeKernel:
    """Applies steps, remembers them, and refuses the keys it is told to."""

    kinds = frozenset({"link", "nodelink", "sysctl", "address", "neighbour", "fdb", "route"})
    sweep = 60.0
    announces = True
    blind = False
    counts: Mapping[str, int] = {}

    def __init__(self) -> None:
        self.state: dict[Key, Object] = {}
        self.applied: list[Step] = []
        self.refused: set[Key] = set()
        self.looks = 0
        self.during: Callable[[], None] = lambda: None

    async def look(self, _: Objects, _only: Collection[Key] | None, /) -> dict[Key, Object]:
        self.looks += 1
        return dict(self.state)

    async def apply(self, steps: Sequence[Step]) -> list[Failure]:
        good = [step for step in steps if step.object.key not in self.refused]
        self.state = replay(self.state, good)
        self.applied += steps
        self.during()
        return [Failure(step=step, errno=1, message="refused") for step in steps if step not in good]


class Node:
    """A reconciler of node 1 with its kernel and a clock that stands still."""

    def __init__(self, peers: int = 3) -> None:
        self.kernel = FakeKernel()
        self.now = 0.0
        ours = Ours(networks=(builders.NETWORK_V4,), subnets=(builders.subnet_v4(1),))
        self.roster = Roster(ours)
        self.decider = Decider(builders.inputs(1), self.roster.believed)
        self.reconciler = Reconciler(self.decider, clock=lambda: self.now)
        self.reconciler.complete = True
        self.history = History()
        self.keeper = self.reconciler.keep(self.kernel, history=self.history)
        listed(self.roster, [builders.lease(node, vxlan) for node in range(2, 2 + peers)])

    @property
    def wanted(self) -> Objects:
        """What the plane is for."""
        return {key: thing for key, thing in self.decider.wanted.items() if key[0] in self.kernel.kinds}

    @property
    def tally(self) -> Tally:
        return self.keeper.tally

    async def start(self) -> "Node":
        await self.everything()
        self.kernel.applied.clear()
        return self

    async def everything(self) -> None:
        """Look at everything, and decide it anew."""
        self.reconciler.decide_all_again()
        await self.look()

    async def look(self) -> None:
        """Look at everything."""
        self.keeper.look_again()
        await self.settle()

    async def again(self, key: Key) -> None:
        """Compare one object."""
        self.keeper.changed([key])
        await self.settle()

    async def settle(self) -> None:
        """Decide and act until there is nothing to do."""
        while self.reconciler.is_deciding or self.keeper._marked.is_set():
            if self.reconciler.is_deciding:
                await self.reconciler.decide()
            await self.keeper.round(self.keeper._take())

    def delete(self, key: Key) -> None:
        """Someone else deletes an object, and the kernel says so."""
        remove(self.kernel.state, key)
        self.keeper.seen(key, None)
