"""Tables of policies in a real kernel: made beside what is there, led to by elements, removed, and put back."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernel.netthread import inside, run
from tests.support.waiting import comes
from weft.daemon.planes.plane import Keeper
from weft.kernel.netfilter.monitor import POLICIES, Monitor, Touched
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netfilter.policies import PolicyTables, remove_tables
from weft.kernel.tools import Tools
from weft.model.kernel.objects import Object, Ownership
from weft.model.kernel.policytable import BRIDGE, INET, PolicyElement, PolicySet, named

PODS = [bytes((10, 1, 1, last)) for last in range(2, 12)]
IN4 = PolicySet(table=INET, name="in4", spec="type ipv4_addr : verdict;")
PEERS = PolicySet(table=INET, name="peers4-1", spec='type ipv4_addr; comment "default: app=web";')
SEEN = PolicySet(table=INET, name="denied-in4", spec="type ipv4_addr; size 4096; flags dynamic,timeout; timeout 10m;")
POLICY = named("in/default/allow-web", ('ip saddr @peers4-1 tcp dport { 80, 8000-8100 } accept comment "ingress[0]"',))
CLASS = named("in", (f"jump {POLICY.name}", "update @denied-in4 { ip saddr counter }", "drop"))
BASE = named("ingress", ("ip daddr vmap @in4",), "type filter hook forward priority -1; policy accept;")
PORTS = PolicySet(table=BRIDGE, name="ports", spec="type ifname;")
GUARD = named(
    "prerouting", ("iifname @ports drop",), "type filter hook prerouting priority -350; policy accept;", table=BRIDGE
)
FRAME = (IN4, PEERS, SEEN, POLICY, CLASS, BASE, PORTS, GUARD)
ELEMENTS = (
    *(PolicyElement(table=INET, set="in4", element=pod, verdict=CLASS.name, comment=f"uid a/{pod[3]}") for pod in PODS),
    *(PolicyElement(table=INET, set="peers4-1", element=pod) for pod in PODS),
    PolicyElement(table=BRIDGE, set="ports", element=b"veth1".ljust(16, b"\0")),
)
WORLD = (*FRAME, *ELEMENTS)


class Plane:
    """A keeper of these tables over a decider of which a test says what is wanted."""

    def __init__(self) -> None:
        self.tools = Tools()
        self.nf = NfSocket.open()
        self.tables = PolicyTables(self.nf, self.tools)
        self.wanted: dict[Any, Object] = {}
        decider = SimpleNamespace(wanted=self.wanted, ownership=Ownership(devices=frozenset(), networks=()))
        self.keeper = Keeper(self.tables, decider, may_remove=lambda: True, clock=asyncio.get_running_loop().time)

    async def want(self, *things: Object) -> None:
        wanted = {thing.key: thing for thing in things}
        keys = wanted.keys() | self.wanted.keys()
        self.wanted.clear()
        self.wanted.update(wanted)
        self.keeper.decided(keys)
        await self.keeper.idle()

    async def holds(self, *things: Object) -> bool:
        return await self.tables.look(self.wanted) == {thing.key: thing for thing in things}


def in_namespace(work: Callable[[Plane], Awaitable[None]]) -> None:
    async def with_plane() -> None:
        plane = Plane()
        with closing(plane.nf):
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(plane.keeper.run())
                try:
                    await work(plane)
                finally:
                    keeping.cancel()

    inside(lambda: asyncio.run(with_plane()))


def test_all_is_made_and_taken_away():
    async def work(plane):
        await plane.want(*WORLD)
        assert plane.keeper.tally.failing == {}
        assert await plane.holds(*WORLD)
        listed = run("nft", "list", "table", *INET.split())
        assert f'10.1.1.2 comment "uid a/2" : goto {CLASS.name}' in listed
        await plane.want()
        assert plane.keeper.tally.failing == {}
        assert await plane.holds()

    in_namespace(work)


def test_another_policy_stands_beside_until_pods_are_led_to_it(monkeypatch):
    """No chain is changed while anything leads to it, and nothing goes before nothing leads to it any more."""
    policy = named("in/default/allow-web", ('tcp dport 81 accept comment "ingress[0]"',))
    other = named("in", (f"jump {policy.name}", "drop"))
    elements = [PolicyElement(table=INET, set="in4", element=pod, verdict=other.name) for pod in PODS]
    done: list[str] = []

    async def work(plane):
        await plane.want(*WORLD)
        make, transact = plane.tools.run, plane.nf.transaction

        async def noting_nft(name, arguments, text=""):
            done.append(text)
            return await make(name, arguments, text)

        def noting(table, changes):
            done.append(" ".join(type(change).__name__ for change in changes))
            return transact(table, changes)

        monkeypatch.setattr(plane.tools, "run", noting_nft)
        monkeypatch.setattr(plane.nf, "transaction", noting)
        kept = [
            thing
            for thing in WORLD
            if thing not in (POLICY, CLASS, PEERS) and thing.key[:3] != ("polelement", INET, "in4")
        ]
        kept = [thing for thing in kept if thing.key[:3] != ("polelement", INET, "peers4-1")]
        await plane.want(*kept, policy, other, *elements)
        assert plane.keeper.tally.failing == {}
        assert await plane.holds(*kept, policy, other, *elements)

    in_namespace(work)
    made, led, removed = done
    assert POLICY.name not in made
    assert f"flush chain {INET} {policy.name}" in made
    assert led == " ".join(["Delete"] * len(PODS) + ["Delete Add"] * len(PODS)), "old peers and new verdicts at once"
    assert removed == "Empty Empty DeleteChain DeleteChain DeleteSet"


def test_a_restart_writes_nothing_where_all_is_right():
    async def work(plane):
        await plane.want(*WORLD)
        again = Plane()
        with closing(again.nf), closing(Monitor(plane.tools.own)) as monitor:
            again.wanted.update(plane.wanted)
            again.keeper.compare_all()
            again.keeper.look_again()
            keeping = asyncio.ensure_future(again.keeper.run())
            await again.keeper.idle()
            keeping.cancel()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(monitor.wake(), 0.2)
            assert again.keeper.tally.rounds

    in_namespace(work)


@pytest.mark.parametrize(
    "damage",
    [
        "flush ruleset",
        f"delete table {BRIDGE}",
        f"add table {INET} {{ flags dormant; }}",
        f"add table {BRIDGE} {{ flags dormant; }}",
        f"flush chain {INET} {POLICY.name}",
        f"add rule {INET} {POLICY.name} accept",
        f"insert rule {INET} {BASE.name} accept",
        f"delete element {INET} in4 {{ 10.1.1.2 }}",
        f"add element {INET} in4 {{ 10.9.9.9 : accept }}",
        f"delete element {INET} in4 {{ 10.1.1.3 }}; add element {INET} in4 {{ 10.1.1.3 : accept }}",
        f"flush set {INET} peers4-1",
        f"add set {INET} strange {{ type ipv4_addr; }}",
        f"add chain {INET} strange {{ type filter hook forward priority -9; policy drop; }}",
        f"delete chain {INET} {BASE.name}",
    ],
)
def test_what_others_change_is_back(damage):
    async def work(plane):
        await plane.want(*WORLD)
        with closing(Monitor(plane.tools.own)) as monitor:

            async def listen():
                async for wake in monitor.wakes():
                    assert isinstance(wake, Touched)
                    if POLICIES in wake.keys:
                        plane.keeper.look_again()
                    plane.keeper.unseen(wake.keys - {POLICIES}, wake.by)

            listening = asyncio.ensure_future(listen())
            before = run("nft", "-s", "list", "ruleset")
            run("nft", damage)
            assert run("nft", "-s", "list", "ruleset") != before
            await comes(lambda: sorted(run("nft", "-s", "list", "ruleset").split()) == sorted(before.split()))
            await plane.keeper.idle()
            assert await plane.holds(*WORLD)
            listening.cancel()

    in_namespace(work)


def test_what_is_refused_keeps_nothing_else_from_being_made():
    bad = named("in/default/bad", ("nonsense",))
    lost = PolicyElement(table=INET, set="in4", element=bytes((10, 1, 9, 9)), verdict=bad.name)

    async def work(plane):
        await plane.want(*WORLD, bad, lost)
        assert plane.keeper.tally.failing.keys() == {bad.key, lost.key}
        assert "nonsense" in plane.keeper.tally.failing[bad.key]
        assert await plane.holds(*WORLD)

    in_namespace(work)


def test_one_chain_that_is_refused_among_many_is_found_by_halves():
    bad = named("in/default/bad", ("nonsense",))
    good = [named(f"in/default/{number}", (f"tcp dport {number} accept",)) for number in range(1, 65)]
    called: list[str] = []

    async def work(plane):
        run_nft = plane.tools.run

        async def counting(name, arguments, text=""):
            called.append(name)
            return await run_nft(name, arguments, text)

        plane.tools.run = counting
        await plane.want(*FRAME, *good[:40], bad, *good[40:])
        assert plane.keeper.tally.failing.keys() == {bad.key}
        assert await plane.holds(*FRAME, *good)

    in_namespace(work)
    assert len(called) < 30


def test_many_elements_are_more_than_one_transaction():
    many = [PolicyElement(table=INET, set="peers4-1", element=number.to_bytes(4, "big")) for number in range(20_000)]

    async def work(plane):
        await plane.want(*FRAME, *many)
        assert await plane.holds(*FRAME, *many)

    in_namespace(work)


def test_both_tables_go_at_once():
    def work():
        with closing(NfSocket.open()) as nf:
            assert remove_tables(nf) == []
            run("nft", "-f", "-", stdin=f"add table {INET}; add table {BRIDGE}; add table inet other")
            assert remove_tables(nf) == [INET, BRIDGE]
            assert run("nft", "list", "tables").strip() == "table inet other"

    inside(work)
