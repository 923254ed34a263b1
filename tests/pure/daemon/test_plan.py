"""`weft plan` and the daemon's first round: the same decider, the same diff, the same steps."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.pure.daemon.test_reconcile import FakeKernel
from tests.pure.reach import reached, reaches
from tests.support import builders
from weft.daemon.reconcile import Reconciler
from weft.desired.backends import hostgw, vxlan
from weft.desired.decide import Decider
from weft.model.kernel.objects import Objects, Route
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
    for _ in decider.decide(everything=True):
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
