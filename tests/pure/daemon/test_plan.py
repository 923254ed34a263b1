"""`weft plan` and the daemon's first round: the same decider, the same diff, the same steps."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.daemon.test_reconcile import FakeKernel
from tests.pure.reach import reached, reaches
from tests.support import builders
from weft.daemon.reconcile import Reconciler
from weft.daemon.state import Reporter
from weft.desired.backends import hostgw, vxlan
from weft.desired.decide import Decider
from weft.kernel import daemons
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.objects import Key, Object, Objects, Route
from weft.model.node.nodestate import Plan, PlanAnswer
from weft.model.node.status import Status
from weft.model.value import replace
from weft.plan.diff import Put, Step, diff

BACKENDS = {"vxlan": vxlan, "host-gw": hostgw}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Decider, Objects, bool]:
    """A node with peers, a kernel in which some of what it wants is missing or other, and strays; complete or not."""
    name = draw(st.sampled_from(sorted(BACKENDS)))
    backend = BACKENDS[name]
    family = draw(st.sampled_from(["4", "46"]))
    inputs = replace(builders.inputs(1, backend=name, family=family), forward_rules=False)
    peers = draw(st.sets(st.integers(2, 9)))
    leases = [builders.lease(node, backend, family=family) for node in sorted(peers)]
    decider = Decider(inputs, {lease.id: lease for lease in leases})
    for _ in decider.decide_everything():
        pass
    have = {key: thing for key, thing in decider.wanted.items() if draw(st.booleans())}
    for thing in list(have.values()):
        if isinstance(thing, Route) and draw(st.integers(0, 3)) == 0:
            have[thing.key] = replace(thing, via=builders.public_v4(77) if thing.dst.version == 4 else None, dev="eth0")
    for node in draw(st.sets(st.integers(50, 53))):
        stray = Route(dst=builders.subnet_v4(node), via=builders.public_v4(node), dev="eth0")
        have[stray.key] = stray
    fresh = Decider(inputs, {lease.id: lease for lease in leases})
    return fresh, have, draw(st.booleans())


async def first_round(decider: Decider, have: Objects, *, complete: bool) -> tuple[list[Step], list[Step]]:
    """The steps that a daemon carries out at its start, and those that it planned right before."""
    kernel = FakeKernel()
    kernel.state = dict(have)
    reconciler = Reconciler(decider, clock=lambda: 0.0)
    reconciler.complete = complete
    keeper = reconciler.keep(kernel)
    reconciler.everything()
    await reconciler.decide()
    keeper.look_again()
    planned = diff(decider.wanted, await keeper.see(), prune=reconciler.may_remove())
    assert not kernel.applied
    await keeper.round(keeper._take())
    return kernel.applied, planned


@reaches(put=0.3, removed=0.1)
@given(worlds())
def test_the_first_round_does_what_the_plan_says(world: tuple[Decider, Objects, bool]):
    decider, have, complete = world
    done, planned = asyncio.run(first_round(decider, have, complete=complete))
    assert sorted(map(repr, done)) == sorted(map(repr, planned))
    assert [step.object.rank for step in done] == [step.object.rank for step in planned]
    for step in planned:
        reached("put" if isinstance(step, Put) else "removed")


NO_SUBNET = Problem(code="LEASE-003", where="10.5.0.0/16", seen="no subnet is free")


def test_a_daemon_says_its_plan_or_why_there_is_none():
    async def plan() -> Plan:
        if refused:
            raise Unavailable(*refused)
        return Plan(notes=("one",))

    async def answer() -> PlanAnswer:
        return msgspec.json.decode(await report.answer(daemons.ASK_PLAN), type=PlanAnswer)

    anything: Any = None
    refused: list[Problem] = []
    report = Reporter(Status(waiting=NO_SUBNET), anything, "one", now=lambda: 0.0)
    assert asyncio.run(answer()) == PlanAnswer(unable=(NO_SUBNET,))
    report.serves(anything, anything, plan=plan, why="", rules="", config="")
    assert asyncio.run(answer()) == PlanAnswer(plan=Plan(notes=("one",)))
    refused += [NO_SUBNET, NO_SUBNET]
    assert asyncio.run(answer()) == PlanAnswer(unable=(NO_SUBNET, NO_SUBNET))


def test_a_look_for_a_plan_waits_for_the_round_that_is_under_way():
    class Busy(FakeKernel):
        busy = False

        async def look(self, known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
            assert not self.busy, "two looks at once"
            self.busy = True
            await asyncio.sleep(0)
            self.busy = False
            return await super().look(known, only)

    async def both() -> None:
        keeper = Reconciler(Decider(builders.inputs(1), {}), clock=lambda: 0.0).keep(Busy())
        keeper.look_again()
        working = asyncio.create_task(keeper.run())
        for _ in range(5):
            await keeper.see()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    asyncio.run(both())
