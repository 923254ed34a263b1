"""`weft plan` and the daemon's first round: the same decider, the same diff, the same steps."""

import asyncio
import errno
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.daemon.reconciling import FakeKernel
from tests.pure.reach import reached, reaches
from tests.support import builders
from tests.support.waiting import HANGS
from weft.beside.threads import beside
from weft.daemon.network import Network
from weft.daemon.reconcile import Reconciler
from weft.daemon.running import Running
from weft.daemon.state import Reporter
from weft.daemon.strandedpods import StrandedPods
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
    reconciler.decide_all_again()
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


def test_a_plan_that_cannot_be_made_is_an_answer_and_ends_nothing(caplog: pytest.LogCaptureFixture):
    async def plan() -> Plan:
        raise fault

    async def answer() -> list[Problem]:
        return list(msgspec.json.decode(await report.answer(daemons.ASK_PLAN), type=PlanAnswer).unable)

    anything: Any = None
    report = Reporter(Status(), anything, "one", now=lambda: 0.0)
    report.serves(anything, anything, plan=plan, why="", rules="", config="")
    fault: Exception = OSError(errno.EBUSY, "the lists never held still")
    [problem] = asyncio.run(answer())
    assert (problem.code, "the lists never held still" in problem.seen) == ("INST-003", True)
    assert not caplog.text
    fault = ZeroDivisionError("ours")
    [problem] = asyncio.run(answer())
    assert (problem.code, report.status.faults) == ("INST-002", 1)
    assert "INST-002 weftd's plan: a fault in weft ended it: ZeroDivisionError('ours')" in caplog.text


class Slow(FakeKernel):
    """Looks as planes do that have a thread for it: it goes on when who asked is gone."""

    looking = False

    async def look(self, known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        assert not self.looking, "two looks at once"
        self.looking = True

        def look() -> None:
            time.sleep(0.05)
            self.looking = False

        await beside(look)
        return await super().look(known, only)


async def test_a_look_whose_asker_is_gone_keeps_its_turn_until_it_ends():
    keeper = Reconciler(Decider(builders.inputs(1), {}), clock=lambda: 0.0).keep(Slow())
    asking = asyncio.create_task(keeper.see())
    await asyncio.sleep(0.01)
    asking.cancel()
    await keeper.see()
    assert asking.cancelled()
    assert not keeper._turn.locked()


class During(FakeKernel):
    """Something happens while it looks."""

    def __init__(self, happens: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.happens = happens

    def follow(self, _inputs: object) -> None:
        """It shows nothing."""

    async def look(self, known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        seen = await super().look(known, only)
        self.happens()
        return seen


@pytest.fixture
async def running(tmp_path: Path) -> tuple[Running, During, During]:
    """A daemon that has decided, with two planes, and whose store does not answer."""

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    links, other = During(), During()
    other.kinds = frozenset({"xfrm"})
    anything: Any = SimpleNamespace(why="by --iface", settings=SimpleNamespace(net_conf=never), differs=[])
    network = Network(
        links,
        None,
        others={"other": other},
        inputs=builders.inputs(1),
        addresses=(),
        subnet_file=tmp_path / "subnet.env",
        status=Status(),
        stranded_pods=StrandedPods(),
        clock=lambda: 0.0,
        now=lambda: 0.0,
        directory=anything,
    )
    leasing: Any = SimpleNamespace(lease=builders.lease(1, vxlan), confirmed=True)
    running = Running(
        options=anything,
        why="by --iface",
        store=anything,
        leasing=leasing,
        kernel=anything,
        network=network,
        world=anything,
        configured=anything,
    )
    return running, links, other


async def planned(running: Running, waiting: Problem | None = None) -> Plan:
    options: Any = None
    async with asyncio.timeout(HANGS):
        return await running.plan(options, Status(waiting=waiting))


async def test_before_anything_was_decided_there_is_no_plan_and_then_no_store_is_asked(running):
    daemon, *_ = running
    with pytest.raises(Unavailable) as raised:
        await planned(daemon, NO_SUBNET)
    assert list(raised.value.problems) == [NO_SUBNET]
    daemon.network.reconciler.complete = True
    await daemon.network.reconciler.decide()
    shown = await planned(daemon, NO_SUBNET)
    assert {step.do for step in shown.steps} == {"put"}


async def test_a_start_that_waits_for_a_silent_store_is_given_up_before_its_command_is(running, monkeypatch):
    daemon, *_ = running

    async def silent(*_: Any) -> Plan:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("weft.daemon.commands.preview.of_start", silent)
    monkeypatch.setattr("weft.daemon.running._START_SECONDS", 0.01)
    peers = SimpleNamespace(known=lambda _: None)
    changed = replace(daemon, configured=SimpleNamespace(differs=["Backend"]), leasing=SimpleNamespace(remembered=None))
    monkeypatch.setattr(daemon.network, "peers", peers)
    with pytest.raises(Unavailable) as raised:
        await planned(changed)
    [problem] = raised.value.problems
    assert (problem.code, "changed configuration" in problem.seen) == ("STORE-001", True)


async def test_what_is_decided_while_another_plane_is_looked_at_is_not_missing(running):
    daemon, links, other = running
    network = daemon.network
    network.reconciler.complete = True
    await network.reconciler.decide()
    links.state = {key: thing for key, thing in network.reconciler.decider.wanted.items() if key[0] in links.kinds}

    def a_peer_comes() -> None:
        network.roster.note(put=[builders.lease(2, vxlan)])
        network.reconciler.peers(network.roster.judge(99))

    other.happens = a_peer_comes
    assert (await planned(daemon)).steps == ()
    assert [step.do for step in (await planned(daemon)).steps] == ["put"] * 3


async def test_deletions_that_a_daemon_does_not_make_now_are_said_in_a_note(running):
    daemon, links, _ = running
    network = daemon.network
    await network.reconciler.decide()
    stray = Route(dst=builders.subnet_v4(50), via=builders.public_v4(50), dev="flannel.1")
    links.state = {key: thing for key, thing in network.reconciler.decider.wanted.items() if key[0] in links.kinds}
    links.state[stray.key] = stray
    said = "1 object that nothing asks for now: not listed"
    shown = await planned(daemon)
    assert (shown.steps, said in shown.notes[-1]) == ((), True)
    network.reconciler.complete = True
    with network.reconciler.deciding():
        shown = await planned(daemon)
    assert (shown.steps, said in shown.notes[-1]) == ((), True)
    shown = await planned(daemon)
    assert ([step.do for step in shown.steps], len(shown.notes)) == (["delete"], 3)


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
