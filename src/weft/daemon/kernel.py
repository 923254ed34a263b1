"""The loop's view of the kernel: looks and steps over one rtnetlink socket, in turns with the event loop."""

from collections.abc import Callable, Sequence

from weft.kernel.apply import applying
from weft.kernel.observe import looking
from weft.kernel.rtnl import Rtnl
from weft.kernel.turns import in_turns
from weft.model.errors import Failure
from weft.model.objects import Objects
from weft.model.snapshot import Snapshot
from weft.plan.diff import Step


class NodeKernel:
    """One rtnetlink socket, what was last seen through it, and who wants to know of each full look.

    `devices` are the links that are ours by name, `sysctls` the settings to look at.
    """

    def __init__(self, rtnl: Rtnl) -> None:
        self.rtnl = rtnl
        self.devices: frozenset[str] = frozenset()
        self.sysctls: tuple[str, ...] = ()
        self.looked: Callable[[Snapshot], None] = lambda _: None

    async def snapshot(self) -> Snapshot:
        """Look at everything."""
        return await in_turns(looking(self.rtnl, devices=self.devices, sysctls=self.sysctls))

    async def look(self) -> Objects:
        """Look at everything, tell who wants to know, and return what is ours."""
        snapshot = await self.snapshot()
        self.looked(snapshot)
        return snapshot.ours

    async def apply(self, steps: Sequence[Step]) -> list[Failure]:
        """Carry out the steps in order."""
        return await in_turns(applying(self.rtnl, steps))
