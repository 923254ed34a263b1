"""The mesh as a store: what its settings, tenure and directory say while peers come, go and are away."""

import asyncio
from base64 import b64encode
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from math import inf

import pytest

from tests.pure.cluster.mesh.meshparts import (
    ATTRS,
    HELD,
    NET_CONF,
    RING,
    FakeDisk,
    World,
    asked,
    member,
    running,
    saved,
)
from tests.support.waiting import comes
from weft.beside.tasks import awaited
from weft.cluster.mesh import store as module
from weft.cluster.mesh.commands import Operator
from weft.cluster.mesh.report import Report
from weft.cluster.mesh.store import MeshDirectory, MeshSettings, MeshTenure
from weft.config.netconf import parse_netconf
from weft.desired.allocate import Chooser
from weft.desired.backends import BACKENDS
from weft.model.cluster import Changed, Held, Listed, Lost, Revoked
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.lease import LeaseAttrs, Tunnel, Way
from weft.model.mesh.effects import Hop, Keep, Kept, Leases, Own, PathNow, Publish, Rekey, Remove, Say
from weft.model.mesh.messages import Hello, Offer, Ping, Seen
from weft.model.mesh.records import Token
from weft.model.net import Endpoint
from weft.model.node.meshstate import MeshPath
from weft.model.value import replace
from weft.wire.mesh import Hostile

SUBNET = IPv4Network("10.32.40.0/24")
OURS = LeaseAttrs(public_ip=IPv4Address("192.0.2.1"), backend="vxlan")
NEIGHBOUR = Hello(key=bytes([2]) * 32, run=1, name="n2", ring=RING.id)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)


class Mesh(World):
    """With a store on top; `told` is what its watch said."""

    def __init__(self, kept=HELD, **more):
        super().__init__(FakeDisk(saved(kept)), **more)
        self.settings, self.tenure = MeshSettings(self.peer), MeshTenure(self.peer)
        self.directory = MeshDirectory(self.peer)
        self.told = []

    async def take(self, event):
        self.told.append(event)

    def watch(self):
        return awaited(self.directory.watch(self.take))

    def agree(self):
        """A neighbour knows what we know."""
        self.core.agreed = True
        self.peer.received(1, Ping(number=1))


def chooser(attrs=OURS):
    return Chooser(netconf=parse_netconf(NET_CONF, backends=BACKENDS), attrs=attrs, pick=lambda _: 0)


async def test_the_network_is_the_rings_and_changes_with_it_alone():
    mesh = Mesh()
    async with running(mesh):
        assert await mesh.settings.net_conf() == NET_CONF
        assert await mesh.settings.policies() is None
        other = NET_CONF.replace("10.32", "10.48")
        waiting = awaited(mesh.settings.next_net_conf(NET_CONF))
        mesh.say(Keep(kept=replace(HELD, version=5)))
        await comes(lambda: mesh.disk.writes)
        assert not waiting.done()
        layout = replace(RING.layout, net_conf=other)
        mesh.say(Keep(kept=replace(HELD, ring=replace(RING, id=b"2" * 16, layout=layout))))
        assert await waiting == other


@pytest.mark.parametrize(
    "layout, why",
    [
        ({"blocks": 1 << 16}, "other subnets than its network"),
        ({"first": 31}, "other subnets than its network"),
        ({"net_conf": "{"}, "expected one JSON object"),
        ({"net_conf": NET_CONF.replace("mesh", "of-tomorrow")}, "CONF-002"),
    ],
)
async def test_a_ring_that_cannot_be_used_ends_its_link_and_is_not_taken(layout, why):
    mesh = Mesh(Kept())
    async with running(mesh):
        with pytest.raises(Hostile, match=why) as caught:
            mesh.peer.received(1, Offer(ring=replace(RING, layout=replace(RING.layout, **layout))))
        assert caught.value.kind == "ring"
        mesh.peer.received(1, Offer(ring=RING))
        assert [call for call in mesh.core.calls if call[0] == "received"] == [("received", 1, Offer(ring=RING))]


async def test_that_our_wireguard_is_seen_at_a_pods_address_counts_for_nothing():
    """Others would refuse our lease, and what is sealed for us would be sealed again and again."""
    mesh = Mesh(HELD)
    async with running(mesh):
        words = [Seen(endpoint=each) for each in ("10.33.0.1:51820", "198.51.100.1:4001", "nowhere", "[fd00::1]:51820")]
        for word in words:
            mesh.peer.received(1, word)
        assert [call for call in mesh.core.calls if call[0] == "received"] == [
            ("received", 1, each) for each in words[1:]
        ]


async def test_without_a_ring_it_is_said_what_to_do():
    mesh = Mesh(Kept())
    async with running(mesh):
        with pytest.raises(Unavailable) as caught:
            await mesh.settings.net_conf()
        assert caught.value.problems[0].code == "MESH-001"
        assert "'weft mesh create' on one node" in caught.value.problems[0].hint
        mesh.say(Own(home=None, usable=False, waits=Problem(code="MESH-001", where="mesh", seen="a answers")))
        await comes(lambda: mesh.peer.own.waits)
        with pytest.raises(Unavailable, match="a answers"):
            await mesh.directory.list()


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


async def test_a_question_waits_a_moment_for_the_ring():
    mesh = Mesh(Kept())
    async with running(mesh):
        asked = awaited(mesh.settings.net_conf())
        await asyncio.sleep(0)
        mesh.say(Keep(kept=HELD))
        assert await asked == NET_CONF


async def test_while_nothing_runs_the_store_is_away():
    mesh = Mesh()
    for question in (mesh.settings.net_conf, mesh.directory.list):
        with pytest.raises(Unavailable) as caught:
            await question()
        assert caught.value.problems[0].code == "STORE-001"  # what was known before serves


async def test_the_own_lease_is_the_home_block_and_is_published():
    mesh = Mesh()
    async with running(mesh):
        own = await mesh.tenure.acquire(chooser())
        assert (own.lease.v4, own.lease.v6, own.expires) == (SUBNET, None, None)
        assert own.lease.id == f"node1-{mesh.peer.key[:4].hex()}"
        assert own.token == (RING.id.hex(),)
        published = Publish(attrs=ATTRS % 1, endpoints=("192.0.2.1:51820",), clear=False)
        assert ("asked", published) in mesh.core.calls
        both = replace(OURS, public_ipv6=IPv6Address("fd00::1"))
        moved = await mesh.tenure.publish(own, both)
        assert moved.lease.attrs == both
        assert mesh.core.calls[-1][1].endpoints == ("192.0.2.1:51820", "[fd00::1]:51820")


async def test_after_a_boot_the_block_is_not_used_before_the_core_says_so():
    mesh = Mesh(boot="another")
    async with running(mesh):
        with pytest.raises(Unavailable) as caught:
            await mesh.tenure.acquire(chooser())
        assert caught.value.problems[0].code == "LEASE-003"
        taking = awaited(mesh.tenure.acquire(chooser()))
        await asyncio.sleep(0)
        mesh.say(Own(home=40, usable=True))
        assert (await taking).lease.v4 == SUBNET


async def test_a_lease_is_held_until_the_ring_gives_it_to_another():
    mesh = Mesh()
    async with running(mesh):
        own = await mesh.tenure.acquire(chooser())
        events = mesh.tenure.keep(own, margin=1)
        assert await anext(events) == Held(own=own)
        ending = awaited(anext(events))
        mesh.say(Own(home=40, usable=False))
        await asyncio.sleep(0.01)
        assert not ending.done()
        mesh.say(Own(home=None, usable=False, waits=Problem(code="MESH-009", where="mesh", seen="n2 has it")))
        ended = await ending
        assert isinstance(ended, Revoked)
        assert "n2 has it" in ended.reason
        with pytest.raises(StopAsyncIteration):
            await anext(events)


@pytest.mark.parametrize("changes", [{"home": 41}, {"ring": replace(RING, id=b"2" * 16)}])
async def test_a_lease_that_was_another_before_it_is_kept_is_not_held(changes):
    mesh = Mesh()
    async with running(mesh):
        own = await mesh.tenure.acquire(chooser())
        kept = replace(HELD, version=2, **changes)
        mesh.say(Keep(kept=kept), Own(home=kept.home, usable=True))
        await comes(lambda: mesh.peer.kept == kept and mesh.peer.own.home == kept.home)
        events = [event async for event in mesh.tenure.keep(own, margin=1)]
        assert [type(event) for event in events] == [Revoked]
        another = await mesh.tenure.acquire(chooser())
        assert await anext(mesh.tenure.keep(another, margin=1)) == Held(own=another)


async def test_a_full_disk_is_said_of_the_own_lease():
    mesh = Mesh()
    async with running(mesh):
        assert mesh.tenure.unpublished is None
        mesh.disk.full = True
        mesh.say(Keep(kept=replace(HELD, version=9)))
        await comes(lambda: mesh.tenure.unpublished)
        assert mesh.tenure.unpublished.code == "STATE-002"
        mesh.disk.full = False
        await comes(lambda: mesh.tenure.unpublished is None)


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


async def test_nor_before_there_is_a_word_of_each_that_owns_blocks():
    """Two that a power cut has left without the record of a third agree that it owns blocks."""
    mesh = Mesh()
    async with running(mesh):
        mesh.say(Leases(changed=(member(2),)))
        await comes(lambda: mesh.peer.book.members)
        core = mesh.core
        core.members[b"\4" * 32] = member(4, home=None)
        owners = (core.options.key, b"\2" * 32, b"\3" * 32, b"\4" * 32)
        core.tokens = tuple(Token(start=40 + at, stop=41 + at, owner=key, version=1) for at, key in enumerate(owners))
        watching = mesh.watch()
        mesh.peer.up(1, NEIGHBOUR, None)
        mesh.agree()
        await asyncio.sleep(0.05)
        core.members[b"\3" * 32] = member(3)  # which the core knows, and has not told yet
        mesh.peer.received(1, Ping(number=2))
        await asyncio.sleep(0.05)
        assert not any(event.complete for event in mesh.told if isinstance(event, Listed))
        mesh.say(Leases(changed=(member(3),)))
        await comes(lambda: any(event.complete for event in mesh.told if isinstance(event, Listed)))
        assert {lease.id for lease in mesh.told[-1].leases} == {"n2-02020202", "n3-03030303"}
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


async def test_nor_while_the_ring_is_older_than_the_record_of_a_block():
    """Two that were killed know a third by its record, and its giver as the owner of its block."""
    mesh = Mesh()
    async with running(mesh):
        mesh.say(Leases(changed=(member(2),)))
        await comes(lambda: mesh.peer.book.members)
        mesh.core.members[member(3).key] = member(3)
        watching = mesh.watch()
        mesh.peer.up(1, NEIGHBOUR, None)
        mesh.agree()
        await comes(lambda: mesh.told)
        assert not mesh.told[-1].complete
        mesh.say(Leases(changed=(member(3),)))
        await comes(lambda: mesh.told[-1].complete)
        watching.cancel()


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


async def test_a_plan_is_the_home_block_and_the_recorded_lease_is_ours_if_it_is_that():
    mesh = Mesh()
    async with running(mesh):
        own = await mesh.tenure.acquire(chooser())
        listing = await mesh.directory.list()
        assert listing.choice(chooser(), None).v4 == SUBNET
        assert listing.unchanged(own) == listing.home
        assert listing.unchanged(None) is None
        assert listing.unchanged(replace(own, lease=replace(own.lease, id="n-9"))) is None
        assert listing.published is None
        mesh.core.members[mesh.peer.key] = member(1, key=mesh.peer.key)
        assert (await mesh.directory.list()).published == OURS
        mesh.say(Own(home=None, usable=False))
        await comes(lambda: mesh.peer.own.home is None)
        with pytest.raises(Unavailable):
            (await mesh.directory.list()).choice(chooser(), None)
