"""Several peers with real cores, whose links are in memory: leases, reports and commands as operators have them."""

# ruff: noqa: ARG002 - the protocol of links says what is given

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import IPv4Address

import pytest

from tests.pure.cluster.mesh.meshparts import NET_CONF, FakeDisk, FakeLinks, asked
from tests.support.waiting import comes
from weft.beside.tasks import awaited
from weft.cluster.mesh.commands import Operator
from weft.cluster.mesh.peer import Peer, Self
from weft.cluster.mesh.report import Report
from weft.cluster.mesh.store import MeshDirectory, MeshSettings, MeshTenure
from weft.config.blocks import layout_of
from weft.config.netconf import parse_netconf
from weft.desired.allocate import Chooser
from weft.desired.backends import BACKENDS
from weft.model.errors import ConfigError, Problem
from weft.model.lease import LeaseAttrs
from weft.model.mesh.effects import Remove
from weft.model.node.history import History

NETCONF = parse_netconf(NET_CONF, backends=BACKENDS)
REFUSED = Problem(code="MESH-006", where="dial", seen="nobody is there")


class HubLinks(FakeLinks):
    """What one says the other hears, in the next turn of the loop."""

    def __init__(self, hub, address, secret, ears, hello):
        super().__init__(secret, ears, hello)
        self._hub, self._ends = hub, {}
        hub[address] = self

    def _soon(self, heard, *what):
        asyncio.get_running_loop().call_soon(heard, *what)

    def dial(self, address):
        other = self._hub.get(address)
        if other is None:
            self._soon(self.ears.undialled, address, REFUSED)
            return
        ours, theirs = next(self._hub.numbers), next(self._hub.numbers)
        self._ends[ours], other._ends[theirs] = (other, theirs), (self, ours)
        us, them = self.hello(), other.hello()
        self._soon(self.ears.up, ours, them, address)
        self._soon(other.ears.up, theirs, us, None)

    def send(self, link, message):
        if link in self._ends:
            other, number = self._ends[link]
            self._soon(other.ears.received, number, message)

    def close(self, link, why):
        if link in self._ends:
            other, number = self._ends.pop(link)
            other._ends.pop(number, None)
            self._soon(other.ears.down, number)

    def die(self):
        self._hub = {}
        for link in list(self._ends):
            self.close(link, "it died")


class Hub(dict):
    """Links by the address of who listens there."""

    def __init__(self):
        super().__init__()
        self.numbers = iter(range(1, 10**6))


class Node:
    def __init__(self, hub, number, disk):
        self.address = f"192.0.2.{number}"
        self.attrs = LeaseAttrs(public_ip=IPv4Address(self.address), backend="vxlan")
        dialled = f"{self.address}:51820"
        peers = () if number == 1 else ("192.0.2.1:51820",)
        me = Self(name=f"node{number}", peers=peers, founding=None, machine="machine", boot="boot")
        links = partial(HubLinks, hub, dialled)
        loop = asyncio.get_running_loop()
        self.history = History()
        given = {"now": loop.time, "random": os.urandom, "used": lambda _: False}
        self.peer = Peer(me, disk, links, **given, history=self.history)
        self.settings, self.tenure = MeshSettings(self.peer), MeshTenure(self.peer)
        self.directory = MeshDirectory(self.peer)
        self.look = Report(self.peer, {})
        layout = layout_of(NET_CONF, NETCONF)
        self.operator = Operator(self.peer, self.look, layout, os.urandom)

    async def lease(self):
        assert await self.settings.net_conf() == NET_CONF
        await comes(lambda: self.peer.own.usable)
        return await self.tenure.acquire(Chooser(netconf=NETCONF, attrs=self.attrs, pick=lambda _: 0))


@asynccontextmanager
async def started(hub, number, disk):
    node = Node(hub, number, disk)
    task = awaited(node.peer.run())
    try:
        await comes(lambda: node.peer.core is not None or task.done())
        yield node
    finally:
        task.cancel()
        if (links := hub.pop(f"192.0.2.{number}:51820", None)) is not None:
            links.die()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def mesh(count):
    """So many nodes, of which the first has made the ring, and their disks."""
    hub = Hub()
    disks = [FakeDisk() for _ in range(count)]
    async with asyncio.timeout(200):  # neighbours compare what they know every 30 seconds or so
        async with _all(hub, disks) as nodes:
            await nodes[0].operator.command(asked("create", sure=True))
            for node in nodes:
                await node.lease()
            for node in nodes:
                await comes(lambda node=node: len(node.look().peers) == count and node.look().agreed, seconds=30)
            yield hub, nodes


@asynccontextmanager
async def _all(hub, disks, number=1):
    if not disks:
        yield []
        return
    async with started(hub, number, disks[0]) as node, _all(hub, disks[1:], number + 1) as others:
        yield [node, *others]


def allowed(peer, command):
    try:
        peer.check(command)
    except ConfigError:
        return False
    return True


async def test_each_node_gets_a_block_and_all_know_the_leases_of_all():
    async with mesh(3) as (_, nodes):
        leases = [(await node.lease()).lease for node in nodes]
        assert len({lease.v4 for lease in leases}) == 3
        for node in nodes:
            others = {lease for lease in leases if lease.id != (await node.lease()).lease.id}
            wanted = {(each.id, each.v4) for each in others}
            await comes(lambda node=node: len(node.peer.book.members) == 2)
            await comes(lambda node=node: all(member.attrs for member in node.peer.book.members.values()))
            assert {(each.id, each.v4) for each in (await node.directory.list()).leases} == wanted
        state = nodes[1].look()
        assert state.usable
        assert state.ring.network == NET_CONF
        assert sum(peer.blocks for peer in state.peers) == state.ring.blocks == 4064
        assert [peer.name for peer in state.peers] == ["node1", "node2", "node3"]
        assert [peer.name for peer in state.peers if peer.us] == ["node2"]
        await comes(lambda: {peer.name for peer in nodes[0].look().peers if peer.linked} == {"node2", "node3"})
        [first] = [peer for peer in nodes[1].look().peers if peer.name == "node1"]
        assert first.addresses == ("192.0.2.1:51820",)
        nodes[1].peer.undialled("192.0.2.1:51820", REFUSED)  # while it started, before it dialled us
        assert nodes[1].look().unreached == {}


async def test_before_there_is_a_ring_it_is_said_who_answers_and_who_does_not():
    hub = Hub()
    async with _all(hub, [FakeDisk(), FakeDisk()]) as (first, second):
        await comes(lambda: second.look().strangers.get(""))
        state = second.look()
        assert state.ring is None
        assert state.strangers == {"": [first.look().id]}
        assert f"no ring here, nor on {first.look().id}" in str(state.waits)
        lines = await first.operator.command(asked("create"))
        assert lines[0].startswith("makes a ring of 4064 blocks")
        assert second.look().id in lines[1]
        assert first.look().ring is None, "it was only said"
        with pytest.raises(ConfigError, match="MESH-001"):
            await first.operator.command(asked("adopt", "00"))
        with pytest.raises(ConfigError, match="in no ring"):
            await first.operator.command(asked("leave"))
    async with started(hub, 2, FakeDisk()) as alone:
        await comes(lambda: alone.look().unreached)
        assert alone.look().unreached == {"192.0.2.1:51820": REFUSED}
        await alone.operator.command(asked("forget", "192.0.2.1", sure=True))
        assert alone.look().unreached == {}


async def test_what_cannot_be_is_refused():
    async with mesh(2) as (_, nodes):
        first, second = nodes
        refused = {
            ("create",): "this node is of ring",
            ("rmpeer", "node1"): "this node itself is named",
            ("rmpeer", "node2"): "answers",
            ("rmpeer", "node9"): "no peer is called node9",
            ("adopt", "00"): "no neighbour has a ring 00",
            ("connect", "http://a"): "HOST, HOST:PORT",
            ("forget", "192.0.2.9"): "not told to dial 192.0.2.9:51820",
        }
        await comes(lambda: [peer.linked for peer in first.look().peers if not peer.us] == [True])
        for (verb, *words), seen in refused.items():
            with pytest.raises(ConfigError, match=seen):
                await first.operator.command(asked(verb, *words))  # already when it would only be said
        assert second.look().usable


async def test_a_node_is_dialled_by_command_and_forgotten():
    async with mesh(1) as (hub, [first]), started(hub, 3, FakeDisk()) as third:
        await third.operator.command(asked("forget", "192.0.2.1", sure=True))
        await first.operator.command(asked("connect", "192.0.2.3", sure=True))
        await comes(lambda: third.look().ring is not None)
        await first.operator.command(asked("forget", "192.0.2.3", sure=True))


def events(node):
    return [event.words for event in node.history.events if event.kind == "ring"]


async def test_what_becomes_of_blocks_stands_in_the_history():
    async with mesh(2) as (_, (first, second)):
        [made, gave] = events(first)
        assert made == f"made ring {first.look().ring.id[:8]}"
        assert gave == f"gave blocks to {second.look().id}: 10.47.223.0/24 to 10.47.255.0/24"
        took = f"took its first blocks from {first.look().id}"
        assert events(second) == [gave.replace(f"gave blocks to {second.look().id}", took)]
        await second.operator.command(asked("leave", sure=True))
        await comes(lambda: len(events(first)) > 2)
        assert events(first)[-1] == f"{second.look().id} has left, and {first.look().id} has its blocks"


async def test_a_node_leaves_and_its_block_is_anothers():
    async with mesh(3) as (_, nodes):
        first, *_, last = nodes
        lines = await last.operator.command(asked("leave", sure=True))
        assert "gives all" in lines[0]
        await comes(lambda: last.peer.own.home is None)
        await comes(lambda: len(first.peer.book.members) == 1)
        await comes(lambda: sum(peer.blocks for peer in first.look().peers if peer.name != "node3") == 4064)


async def test_a_lost_node_is_removed_when_all_others_agree():
    async with mesh(3) as (hub, nodes):
        lost = nodes[2]
        hub["192.0.2.3:51820"].die()
        del hub["192.0.2.3:51820"]
        gone = lost.look().id
        await comes(lambda: not any(gone in peer.links for peer in nodes[0].look().peers if peer.name != "node3"))
        remove = Remove(keys=(lost.peer.key,))
        await comes(lambda: allowed(nodes[0].peer, remove))  # the ways to it over others are looked up now and then
        with pytest.raises(ConfigError, match="no removal by this node"):
            await nodes[0].operator.command(asked("withdraw"))
        lines = await nodes[0].operator.command(asked("rmpeer", "node3"))
        assert nodes[1].look().id in lines[2]
        await nodes[0].operator.command(asked("rmpeer", "node3", sure=True))
        await comes(lambda: nodes[0].look().ring.removed == {nodes[0].look().id: [lost.peer.key[:4].hex()]})
        await comes(lambda: len(nodes[1].peer.book.members) == 1)
        assert nodes[0].look().ring.resting == 33
