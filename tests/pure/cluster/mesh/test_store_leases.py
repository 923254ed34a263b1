"""The leases of a mesh's other nodes: when all are known, what their ways are, and who is gone."""

import asyncio
from base64 import b64encode
from ipaddress import IPv4Address, IPv4Network
from math import inf

import pytest

from tests.pure.cluster.mesh.meshparts import (
    HELD,
    RING,
    asked,
    member,
    running,
)
from tests.pure.cluster.mesh.storing import Mesh, chooser
from tests.support.waiting import comes
from weft.beside.tasks import awaited
from weft.cluster.mesh import store as module
from weft.cluster.mesh.commands import Operator
from weft.cluster.mesh.report import Report
from weft.model.cluster import Changed, Listed, Lost, Revoked
from weft.model.errors import ConfigError, Problem
from weft.model.lease import Tunnel, Way
from weft.model.mesh.effects import Agreed, Hop, Kept, Leases, PathNow, Recalled, Rekey, Remove, Say
from weft.model.mesh.messages import Hello
from weft.model.mesh.records import Token
from weft.model.net import Endpoint
from weft.model.node.meshstate import MeshPath
from weft.model.value import replace

NEIGHBOUR = Hello(key=bytes([2]) * 32, run=1, name="n2", ring=RING.id)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)


async def test_what_is_said_of_blocks_is_said_of_subnets():
    """Operators know no blocks; until there is a network nothing else can be said."""
    problem = Problem(code="MESH-009", where="the ring", seen="n2 has it, too")
    for kept, said in (
        (HELD, "10.32.40.0/24, 10.32.50.0/24 to 10.32.52.0/24: n2 has it, too"),
        (Kept(), "block 40, block 50 to block 52: n2 has it, too"),
    ):
        mesh = Mesh(kept)
        async with running(mesh):
            mesh.say(Say(text="conflict", problem=problem, blocks=((40, 41), (50, 53))))
            await comes(lambda mesh=mesh: mesh.peer.said.newest)
            assert mesh.peer.said.newest[0].problem == replace(problem, seen=said)
            [event] = mesh.history.events
            assert (event.kind, event.subject, event.code, event.words) == ("ring", "the ring", "MESH-009", said)


async def test_the_first_list_is_complete_only_when_a_neighbour_agrees():
    mesh = Mesh()
    async with running(mesh):
        mesh.say(Leases(changed=(member(2), member(3, attrs=b"{"))))
        await comes(lambda: mesh.peer.book.members)
        watching = mesh.watch()
        await comes(lambda: mesh.told)
        mesh.peer.up(1, NEIGHBOUR, None)
        mesh.agree()
        await comes(lambda: len(mesh.told) == 2)
        before, after = mesh.told
        assert (before.complete, after.complete) == (False, True)
        assert isinstance(before, Listed)
        [lease] = after.leases
        assert (lease.id, lease.v4) == ("n2-02020202", IPv4Network("10.32.42.0/24"))
        assert lease.attrs.public_ip == IPv4Address("192.0.2.2")
        assert [entry.id for entry in after.malformed] == ["n3-03030303"]
        assert mesh.directory.continues((RING.id.hex(),), {}, after)
        assert not mesh.directory.continues(("other",), {}, after)
        watching.cancel()


async def test_a_complete_list_has_all_that_was_told_before():
    mesh = Mesh()
    async with running(mesh):
        watching = mesh.watch()
        mesh.say(Leases(changed=(member(2), member(3))), Agreed(so=True))
        await comes(lambda: mesh.told and mesh.told[-1].complete)
        assert {lease.id for lease in mesh.told[-1].leases} == {"n2-02020202", "n3-03030303"}
        watching.cancel()


@pytest.mark.parametrize("recalled, proves", [(None, False), (Recalled(ring=RING.id), True)])
async def test_who_is_missing_is_gone_only_if_this_node_remembers_others(recalled, proves):
    """Neighbours that were killed as well may never have heard of a peer that this one has served."""
    mesh = Mesh()
    mesh.disk.known = recalled
    async with running(mesh):
        watching = mesh.watch()
        mesh.say(Leases(changed=(member(2), member(3, attrs=b"{"))), Agreed(so=True))
        await comes(lambda: mesh.told and mesh.told[-1].complete)
        listed, mark = mesh.told[-1], (RING.id.hex(),)
        made = {"n2-02020202": 0, "n3-03030303": 0}
        assert mesh.directory.continues(mark, made, listed)
        assert mesh.directory.continues(mark, {**made, "n4-04040404": 0}, listed) is proves
        watching.cancel()


async def test_a_way_is_the_peers_own_wireguard_and_the_next_hop():
    mesh = Mesh()
    two, three = (member(number, tunnels=(f"192.0.2.{number}:51820",)) for number in (2, 3))
    key = {each.key: b64encode(each.key).decode() for each in (two, three)}
    async with running(mesh):
        mesh.say(Leases(changed=(two, three, member(4))))
        hop = Hop(key=two.key, next=three, kind="direct", reason="one-way", endpoint=two.tunnels[0], mtu=1380)
        mesh.say(hop, Hop(key=three.key, next=three, kind="direct", reason="", endpoint="300.0.0.1:9", keepalive=True))
        await comes(lambda: len(mesh.peer.book.hops) == 2 and len(mesh.peer.book.members) == 3)
        ways = [mesh.peer.book.lease(each).way for each in (two.key, three.key, member(4).key)]
        base = (IPv4Address("10.32.43.0"),)
        assert ways == [
            Way(
                kind="direct",
                via="n3-03030303",
                bases=base,
                remotes=(IPv4Address("192.0.2.2"),),
                hop_key=key[three.key],
                tunnel=Tunnel(key=key[two.key], endpoint=Endpoint(IPv4Address("192.0.2.2"), 51820)),
                mtu=1380,
                reason="one-way",
            ),
            Way(
                kind="direct",
                bases=base,
                remotes=(IPv4Address("192.0.2.3"),),
                hop_key=key[three.key],
                tunnel=Tunnel(key=key[three.key], keepalive=True),
            ),
            Way(kind="vxlan", bases=(IPv4Address("10.32.44.0"),), remotes=(IPv4Address("192.0.2.4"),)),
        ]


async def _with_leases_of_others(mesh):
    """Returns the keeping of the own lease and the watch, which go on."""
    own = await mesh.tenure.acquire(chooser())
    mesh.peer.up(1, NEIGHBOUR, None)
    mesh.agree()
    relayed = Hop(key=member(2).key, next=member(3), kind="vxlan", reason="one-way")
    mesh.say(Leases(changed=(member(2), member(3))), relayed)
    await comes(lambda: mesh.peer.book.members)
    watching = mesh.watch()
    await comes(lambda: mesh.told and mesh.told[-1].leases)
    assert mesh.told[-1].complete
    events = mesh.tenure.keep(own, margin=1)
    await anext(events)
    return awaited(anext(events)), watching


async def _all_is_forgotten(mesh):
    await comes(lambda: len(mesh.cores) == 2)
    await comes(lambda: mesh.told[-1].leases == ())
    assert not mesh.told[-1].complete
    assert (mesh.peer.book.members, mesh.peer.book.hops) == ({}, {})


async def test_each_path_to_a_peer_is_shown_with_what_is_wrong_with_it():
    mesh = Mesh()
    two, three, four = member(2, tunnels=("192.0.2.2:51820",)), member(3), member(4)
    found = {
        two.key: [
            PathNow(kind="vxlan", usable=False, answered=-inf, mtu=0),
            PathNow(kind="direct", usable=True, answered=98.5, mtu=1380),
        ],
        three.key: [PathNow(kind="vxlan", usable=None, answered=-inf, mtu=0)],
    }
    async with running(mesh):
        core = mesh.core
        core.paths_to = lambda key: found.get(key, [])
        core.way = lambda key: (two.key, four.key, three.key) if key == three.key else (key,)
        ours = member(1, key=mesh.peer.key, clear=False, tunnels=("192.0.2.1:51820",))
        core.members |= {each.key: each for each in (ours, two, three, four)}
        straight = Hop(key=two.key, next=two, kind="direct", reason="port-filtered")
        mesh.say(Leases(changed=(two, three, four)), straight, replace(straight, key=three.key, reason="one-way"))
        await comes(lambda: mesh.peer.book.members)
        peers = {peer.name: peer for peer in Report(mesh.peer, {})().peers}
    silent = MeshPath(kind="vxlan", state="silent", why="no echo comes back")
    taken = MeshPath(kind="direct", state="taken", answered=1.5, mtu=1380)
    assert (peers["n2"].way, peers["n2"].paths) == ("direct: port-filtered", (silent, taken))
    assert (peers["n3"].way, peers["n3"].relays) == (
        "via n2-02020202 (direct): one-way",
        ("n2-02020202", "n4-04040404"),
    )
    assert [(path.state, path.why) for path in peers["n3"].paths] == [
        ("unknown", "no echo was sent, or the first is on its way"),
        ("barred", "it has no WireGuard"),
    ]
    assert [path.why for path in peers["n4"].paths] == ["this node takes nothing in clear", "it has no WireGuard"]


async def test_changes_of_ways_are_counted_and_shown():
    mesh = Mesh()
    two, three = member(2), member(3)
    straight = Hop(key=two.key, next=two, kind="vxlan", reason="")
    async with running(mesh):
        mesh.core.members |= {each.key: each for each in (two, three)}
        mesh.say(straight, Leases(changed=(two, three)), replace(straight, mtu=1400, reason="mtu"))
        mesh.say(
            replace(straight, kind="direct", reason="port-filtered"), replace(straight, next=three, reason="one-way")
        )
        await comes(lambda: mesh.peer.book.moves.total() == 2 and mesh.peer.book.members)
        state = Report(mesh.peer, {})()
        assert (state.ways, state.moves) == ({"via": 1, "vxlan": 1}, {"direct": 1, "via": 1})
        ways = {peer.name: peer.way for peer in state.peers}
        assert ways == {"n2": "via n3-03030303 (vxlan): one-way", "n3": "vxlan"}


async def test_a_core_that_begins_again_keeps_the_block_and_tells_others_leases_anew():
    mesh = Mesh()
    async with running(mesh):
        ending, watching = await _with_leases_of_others(mesh)
    async with running(mesh):
        await _all_is_forgotten(mesh)
        mesh.say(Leases(changed=(member(2),)))
        mesh.agree()
        await comes(lambda: mesh.told[-1].complete)
        assert [lease.id for lease in mesh.told[-1].leases] == ["n2-02020202"]
        assert not ending.done()
        ending.cancel()
        watching.cancel()


async def test_a_peer_with_another_key_has_nothing_of_what_it_was():
    mesh = Mesh()
    async with running(mesh):
        ending, watching = await _with_leases_of_others(mesh)
        mesh.say(Rekey(why=Problem(code="MESH-004", where="mesh", seen="a copy")))
        await _all_is_forgotten(mesh)
        assert isinstance(await ending, Revoked)
        watching.cancel()


async def test_an_owner_whose_record_is_lost_is_shown_and_removed_by_its_key():
    mesh = Mesh()
    async with running(mesh):
        ours, lost = mesh.peer.key, b"\x0a\xbc" * 16
        mesh.core.members = {ours: member(1, key=ours), member(2).key: member(2)}
        owners = (ours, member(2).key, lost)
        mesh.core.tokens = tuple(
            Token(start=32 + at, stop=33 + at, owner=key, version=1) for at, key in enumerate(owners)
        )
        look = Report(mesh.peer, {})
        operator = Operator(mesh.peer, look, RING.layout, bytes)
        [shown] = [peer for peer in look().peers if peer.key == lost.hex()]
        assert (shown.id, shown.blocks) == ("0abc0abc", 1)
        with pytest.raises(ConfigError, match="no peer is called 0abc0ab"):
            await operator.command(asked("rmpeer", "0abc0ab", sure=True))
        for name in ("0abc0abc", "0abc0abc0a"):
            lines = await operator.command(asked("rmpeer", name, sure=True))
            assert "1 " in lines[0]
            assert mesh.core.calls[-1] == ("asked", Remove(keys=(lost,)))


async def test_changes_are_told_by_lease_and_those_of_a_name_as_another():
    mesh = Mesh()
    async with running(mesh):
        watching = mesh.watch()
        await comes(lambda: mesh.told)
        mesh.say(Leases(changed=(member(2), member(3))))
        await comes(lambda: len(mesh.told) == 2)
        mesh.say(Leases(changed=(member(2, name="renamed", version=2),), gone=(member(3).key, b"?" * 32)))
        await comes(lambda: len(mesh.told) == 3)
        first, second = mesh.told[1:]
        assert isinstance(first, Changed)
        assert [lease.id for lease in first.put] == ["n2-02020202", "n3-03030303"]
        assert [lease.id for lease in second.put] == ["renamed-02020202"]
        assert second.gone == ("n2-02020202", "n3-03030303")
        watching.cancel()


async def test_with_no_link_the_store_is_lost_after_a_while_and_back_with_one(monkeypatch):
    monkeypatch.setattr(module, "_LOST_SECONDS", 0.05)
    mesh = Mesh()
    async with running(mesh):
        mesh.say(Leases(changed=(member(2),)))
        await comes(lambda: mesh.peer.book.members)
        watching = mesh.watch()
        await comes(lambda: mesh.told)
        mesh.now += 1
        await comes(lambda: len(mesh.told) == 2)
        assert mesh.told[1] == Lost(reason="no peer of the mesh answers")
        mesh.peer.up(1, NEIGHBOUR, None)
        await comes(lambda: len(mesh.told) == 3)
        assert mesh.told[2] == Changed(mark=(RING.id.hex(),))
        watching.cancel()


async def test_a_node_that_is_alone_in_its_ring_misses_nobody(monkeypatch):
    monkeypatch.setattr(module, "_LOST_SECONDS", 0.02)
    mesh = Mesh()
    async with running(mesh):
        mesh.now += 100
        watching = mesh.watch()
        await asyncio.sleep(0.1)
        assert [type(event) for event in mesh.told] == [Listed]
        watching.cancel()
