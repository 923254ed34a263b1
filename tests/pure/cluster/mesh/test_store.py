"""The mesh as a store: what its settings, tenure and directory say while peers come, go and are away."""

import asyncio
from ipaddress import IPv4Network, IPv6Address

import pytest

from tests.pure.cluster.mesh.meshparts import (
    ATTRS,
    HELD,
    NET_CONF,
    RING,
    member,
    running,
)
from tests.pure.cluster.mesh.storing import OURS, Mesh, chooser
from tests.support.waiting import comes
from weft.beside.tasks import awaited
from weft.cluster.mesh import store as module
from weft.model.cluster import Held, Revoked
from weft.model.errors import Problem, Unavailable
from weft.model.mesh.effects import Agreed, Keep, Kept, Leases, Own, Publish
from weft.model.mesh.messages import Hello, Offer, Seen
from weft.model.mesh.records import peer_id
from weft.model.value import replace
from weft.wire.mesh import Hostile

STRANGER = Hello(key=b"x" * 32, run=1, name="x", ring=None)
SUBNET = IPv4Network("10.32.40.0/24")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)


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


async def test_a_question_waits_a_moment_for_the_ring():
    mesh = Mesh(Kept())
    async with running(mesh):
        asked = awaited(mesh.settings.net_conf())
        await asyncio.sleep(0)
        mesh.say(Keep(kept=HELD))
        assert await asked == NET_CONF


async def test_the_network_is_told_once_all_that_a_neighbour_knows_is_known():
    """A node that comes back as another peer learns so of the lease that it had before, and takes other MACs."""
    mesh = Mesh()
    async with running(mesh):
        mesh.peer.up(1, STRANGER, None)
        asked = awaited(mesh.settings.net_conf())
        await asyncio.sleep(0.02)
        assert not asked.done()
        mesh.say(Leases(changed=(member(2),)), Agreed(so=True))
        assert await asked == NET_CONF
        assert [lease.id for lease in (await mesh.directory.list()).leases] == [peer_id("n2", member(2).key)]


async def test_a_neighbour_that_never_tells_all_is_waited_for_no_longer_than_that(monkeypatch):
    monkeypatch.setattr(module, "_AGREEMENT", 0.05)
    mesh = Mesh()
    async with running(mesh):
        mesh.peer.up(1, STRANGER, None)
        assert await mesh.settings.net_conf() == NET_CONF
        assert not mesh.peer.others.agreed


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
