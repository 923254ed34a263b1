"""A property of deciding beside the loop of a plane: whenever one looks, what the other has decided is no repair."""

import asyncio
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.daemon.reconciling import Node
from tests.pure.desired.rosters import listed
from tests.pure.reach import reached, reaches
from tests.support import builders
from weft.desired.backends import vxlan
from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Delete

EVERYBODY = range(2, 250)


async def decide_while_looking(*, came: int, went: int, moved: int, turns: int, slow: int) -> Node:
    """Decide everything again after a change, and look at everything so many turns of the loop after its beginning."""
    node = await Node(peers=len(EVERYBODY) - came).start()
    look = node.kernel.look

    async def looking(known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        seen = await look(known, only)
        for _ in range(slow):
            await asyncio.sleep(0)
        if node.reconciler.is_deciding:
            reached("between_slices")
        return seen

    node.kernel.look = looking  # type: ignore[method-assign]
    keeping = asyncio.create_task(node.keeper.run())
    leases = [builders.lease(number, vxlan) for number in EVERYBODY[went:]]
    for number in range(moved):
        leases[number] = builders.lease(EVERYBODY[went + number], vxlan, public_ip=builders.public_v4(300 + number))
    listed(node.roster, leases)
    node.reconciler.decide_all_again()
    deciding = asyncio.create_task(node.reconciler.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    node.keeper.look_again()
    while node.reconciler.is_deciding or not node.keeper._idle.is_set():  # noqa: ASYNC110 - their turns are the clock
        await asyncio.sleep(0)
    for task in (keeping, deciding):
        task.cancel()
    await asyncio.gather(keeping, deciding, return_exceptions=True)
    return node


@pytest.mark.long
@reaches(between_slices=0.3, removed=0.3)
@given(
    came=st.integers(0, 120),
    went=st.integers(0, 120),
    moved=st.integers(0, 20),
    turns=st.integers(0, 4),
    slow=st.integers(0, 4),
)
def test_what_is_decided_while_somebody_looks_is_no_repair_and_nothing_goes_before_the_end(
    came: int, went: int, moved: int, turns: int, slow: int
):
    node = asyncio.run(decide_while_looking(came=came, went=went, moved=moved, turns=turns, slow=slow))
    assert node.kernel.state == node.wanted
    assert not node.tally.repairs
    kinds = [isinstance(step, Delete) for step in node.kernel.applied]
    assert kinds == sorted(kinds), "all that is new is there before the first of the old goes"
    if any(kinds):
        reached("removed")
