"""A node's network on a kernel that is none: who is judged when, and what the status says."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import builders
from tests.support.waiting import comes
from weft.cluster.etcd.values import Mark
from weft.cluster.etcd.watch import continues
from weft.daemon.disk.memory import Memory
from weft.daemon.network import Network
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.process.supervise import Supervisor
from weft.daemon.strandedpods import StrandedPods
from weft.desired.backends import vxlan
from weft.desired.backends.mesh.sealed import Keys, Prepared
from weft.desired.inputs import Inputs
from weft.desired.tunnels.wireguard import Server
from weft.kernel.rtnetlink.notices import AddressMoved, ObjectChanged, Resync
from weft.model.cluster import Changed, Listed, Lost, Malformed
from weft.model.errors import Failure, Problem
from weft.model.kernel.links import NodeLink
from weft.model.kernel.objects import Objects, Sysctl
from weft.model.net import Net
from weft.model.node.status import Status
from weft.model.value import Secret, replace
from weft.plan.diff import Step

GATEWAY = ip_address("10.5.1.1")
UPLINK = ip_address("192.168.0.1")
OTHER = ip_address("10.5.2.9")


def spoilt(node: int, **other: int) -> Malformed:
    lease = builders.lease(node, vxlan)
    problem = Problem(code="ADDR-002", where=f"lease {lease.id}", seen="nonsense")
    return Malformed(id=lease.id, problem=problem, **{"created": lease.created, **other})


class NoKernel:
    """Shows nothing, and takes every step but routes to what is `refused`."""

    kinds = NodeKernel.kinds
    sweep, announces, blind = 60.0, True, False
    refused: AbstractSet[Net] = frozenset()

    def follow(self, _inputs: Inputs) -> None:
        """It shows nothing."""

    async def look(self, *_: object) -> Objects:
        return {}

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        refused = [step for step in steps if getattr(step.object, "dst", None) in self.refused]
        return [Failure(step=step, errno=1, message="refused") for step in refused]


def made(
    tmp_path: Path,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    inputs: Inputs | None = None,
    others: Mapping[str, Plane] | None = None,
) -> Network:
    return Network(
        NoKernel(),
        None,
        others=others or {},
        inputs=inputs or builders.inputs(),
        addresses={GATEWAY, UPLINK},
        subnet_file=tmp_path / "subnet.env",
        status=Status(),
        stranded_pods=StrandedPods(),
        clock=clock,
        now=lambda: 0.0,
        directory=SimpleNamespace(continues=continues),
    )


@pytest.fixture
async def network(tmp_path: Path) -> Network:
    network = made(tmp_path)
    await network.peers.take(Listed(leases=(builders.lease(2, vxlan), builders.lease(3, vxlan)), malformed=()))
    return network


async def settle(network: Network) -> None:
    """Decide and act until there is nothing to do."""
    if not network.reconciler.begun:
        network.reconciler.decide_all_again()
    while network.reconciler.is_deciding or network.links._marked.is_set():
        if network.reconciler.is_deciding:
            await network.reconciler.decide()
        await network.links.round(network.links._take())


class Refusing(NoKernel):
    """A plane of what is beside the kernel's links, which hangs."""

    kinds = frozenset({"wgserver", "wireguard", "wgpeer", "wgroute"})

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        return [Failure(step=step, errno=1, message="refused") for step in steps]

    async def look(self, *_: object) -> Objects:
        await asyncio.Event().wait()
        return {}


@pytest.mark.parametrize("password", [False, True])
async def test_a_start_waits_for_no_device_that_is_spare(tmp_path: Path, password: bool):
    keys = Keys(private=Secret(builders.key(1)), psk=Secret(builders.key(9)), in_process=True)
    inputs = replace(builders.inputs(backend="mesh"), prepared=Prepared(password=password, keys=keys))
    network = made(tmp_path, inputs=inputs, others={"wireguard": Refusing()})
    async with asyncio.TaskGroup() as tasks:
        begun = tasks.create_task(network.begin(Supervisor(tasks, Status())))
        done, _ = await asyncio.wait({begun}, timeout=0.3)
        assert bool(done) == (not password)
        server = Server(dev="flannel-wg")
        network.keepers["wireguard"].tally.failing[server.key] = "refused"
        assert bool(network.reconciler.own_failures()) == password
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


@pytest.mark.parametrize(
    "notice, matters",
    [
        (AddressMoved(OTHER, gone=False), True),
        (AddressMoved(UPLINK, gone=True), True),
        (Resync(), True),
        (AddressMoved(UPLINK, gone=False), False),  # its lifetime was renewed
        (AddressMoved(OTHER, gone=True), False),
        (AddressMoved(GATEWAY, gone=False), False),  # inside our own subnet
        (AddressMoved(ip_address("10.5.1.7"), gone=True), False),
    ],
)
def test_addresses_are_listed_when_one_came_or_went_that_a_lease_may_take(network: Network, notice, matters: bool):
    assert network.addresses_changed.is_set()  # between the first look and the first notice
    network.addresses_changed.clear()
    network.notice(notice)
    assert network.addresses_changed.is_set() is matters


async def test_leases_are_judged_anew_when_an_address_really_changed(network: Network, caplog):
    await settle(network)
    network.addresses_are({GATEWAY, UPLINK, ip_address("10.5.1.77")})
    assert network.peers._roster.settled
    network.addresses_are({GATEWAY, UPLINK, OTHER})
    judging = asyncio.create_task(network.peers.run())
    two = builders.lease(2, vxlan).id
    await comes(lambda: two not in network.reconciler.decider.peers)
    assert (network._status.peers, network._status.peers_refused) == (1, 1)
    await settle(network)
    assert "overlaps this node's address 10.5.2.9" in caplog.text
    network.addresses_are({GATEWAY, UPLINK})
    await comes(lambda: two in network.reconciler.decider.peers)
    assert (network._status.peers, network._status.peers_refused) == (2, 0)
    judging.cancel()


@pytest.mark.parametrize(
    "mark, created, stays",
    [
        (Mark(revision=21, cluster=1, term=2), 10, False),
        (Mark(revision=20, cluster=1, term=3), 10, True),  # no write since, and yet something is gone
        (Mark(revision=25, cluster=1, term=2), 15, True),  # what was there at 20 cannot have come at 15
        (Mark(revision=25, cluster=1, term=2), 21, False),
        (Mark(revision=19, cluster=1, term=2), 10, True),
        (Mark(revision=99, cluster=2, term=2), 10, True),
        (Mark(revision=99, cluster=1, term=1), 10, True),
        (None, 10, False),
    ],
)
async def test_absence_proves_nothing_in_another_history(
    network: Network, mark: Mark | None, created: int, stays: bool
):
    two, three = builders.lease(2, vxlan), replace(builders.lease(3, vxlan), created=10)
    await network.peers.take(Listed(leases=(two, three), mark=Mark(revision=20, cluster=1, term=2)))
    await network.peers.take(Listed(leases=(replace(three, created=created),), mark=mark))
    assert network.peers._roster.believed.keys() == ({two.id, three.id} if stays else {three.id})
    assert network.peers.known(Memory(net_conf="")).unproven == ({two.id: 86400.0} if stays else {})


@pytest.mark.parametrize(
    "what",
    [{"own": (builders.lease(2, vxlan),)}, {"malformed": (spoilt(2, created=99),)}],
)
@pytest.mark.parametrize("revision", [20, 19], ids=["the same history", "another history"])
async def test_a_key_that_is_no_peers_any_more_is_not_missing(network: Network, caplog, what, revision: int):
    """A dead peer's that we took over; or one that was made anew and cannot be read."""
    two, three = builders.lease(2, vxlan), builders.lease(3, vxlan)
    await network.peers.take(Listed(leases=(two, three), mark=Mark(revision=20, cluster=1, term=2)))
    await network.peers.take(Listed(leases=(three,), mark=Mark(revision=revision, cluster=1, term=2), **what))
    assert network.peers._roster.believed.keys() == {three.id}
    assert network.peers.known(Memory(net_conf="")).unproven == {}
    assert ("STORE-003" in caplog.text) is (revision < 20)


async def test_changes_move_the_mark_on_and_spoilt_leases_are_served_as_before(network: Network, caplog):
    two, three = builders.lease(2, vxlan), builders.lease(3, vxlan)
    await network.peers.take(Listed(leases=(two, three), mark=Mark(revision=20, cluster=1, term=2)))
    await network.peers.take(Changed(malformed=(spoilt(2), spoilt(4)), mark=Mark(revision=23, cluster=1, term=2)))
    assert network.peers._roster.believed.keys() == {two.id, three.id}
    assert "lease 10.5.2.0-24: nonsense; it is served by what it said before" in caplog.text
    assert "lease 10.5.4.0-24: nonsense; the lease is ignored" in caplog.text
    assert network._status.peers_refused == 1
    assert {lease.id for lease in network.peers.known(Memory(net_conf="")).leases} == {two.id, three.id}
    await network.peers.take(Listed(leases=(), mark=Mark(revision=22, cluster=1, term=2)))
    assert network.peers._roster.believed.keys() == {two.id, three.id}
    assert "STORE-003" in caplog.text


async def test_what_becomes_unreadable_while_weftd_is_down_is_served_as_it_was(network: Network):
    two, three = builders.lease(2, vxlan), builders.lease(3, vxlan)
    await network.peers.take(Listed(leases=()))
    await network.peers.recall(Memory(net_conf="", leases=(two, three)))
    assert network.peers._roster.believed.keys() == {two.id, three.id}
    other = replace(three, attrs=replace(three.attrs, public_ip=two.attrs.public_ip), created=-1)
    await network.peers.take(Listed(leases=(other,), malformed=(spoilt(2),)))
    assert network.peers._roster.believed == {two.id: two}, "it was here first, and the other was made anew"


async def test_failing_peers_are_counted_as_they_are_now(network: Network):
    await network.peers.take(Changed(put=(builders.lease(4, vxlan, data={"VNI": 1, "VtepMAC": 7}),)))
    assert network.reconciler.failing_peers() == 0  # nothing was tried yet
    network._kernel.refused = {builders.subnet_v4(2)}
    await settle(network)
    assert (network._status.peers, network.reconciler.failing_peers()) == (3, 2)
    network._kernel.refused = set()
    network.links.try_again()
    await settle(network)
    assert network.reconciler.failing_peers() == 1
    await network.peers.take(Changed(gone=(builders.lease(4, vxlan).id,)))
    await settle(network)
    assert (network._status.peers, network.reconciler.failing_peers()) == (2, 0)


@pytest.mark.parametrize("thing", [NodeLink(name="cni0", up=False), Sysctl(name="net/ipv4/ip_forward", value="1")])
async def test_what_the_first_pod_brings_has_no_peer_decided_anew(
    network: Network, thing: NodeLink | Sysctl, monkeypatch: pytest.MonkeyPatch
):
    await settle(network)
    monkeypatch.setattr(vxlan, "peer", lambda *_: 1 / 0)
    network.notice(ObjectChanged(thing.key, thing))
    assert not network.reconciler.is_deciding
    await settle(network)
    wanted = network.reconciler.decider.wanted
    assert wanted[thing.key] == replace(thing, **{"up": True} if isinstance(thing, NodeLink) else {})
    network.notice(ObjectChanged(("nodelink", "cni0"), None))
    await settle(network)
    assert ("nodelink", "cni0") not in wanted


async def test_what_a_pods_plugin_turns_on_is_at_no_moment_said_to_be_off(network: Network):
    forwarding = Sysctl(name="net/ipv4/ip_forward", value="1")
    await settle(network)
    network.notice(ObjectChanged(forwarding.key, forwarding))
    assert network._forwarding_problem() is None
    await network.reconciler.decide()
    assert network._forwarding_problem() is None
    await settle(network)
    assert network._forwarding_problem() is None
    network.notice(ObjectChanged(forwarding.key, Sysctl(name=forwarding.name, value="0")))
    assert network._forwarding_problem().seen == "another program turned it off"


def history(network: Network) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in network._status.history.events]


async def test_what_became_of_peers_is_history(network: Network):
    await comes(lambda: len(history(network)) == 2)
    two, three, four = (builders.lease(number, vxlan) for number in (2, 3, 4))
    assert history(network) == [("joined", two.id), ("joined", three.id)]
    other = replace(two, attrs=replace(two.attrs, public_ip=builders.public_v4(77)))
    await network.peers.take(Changed(put=(other, four), gone=(three.id,), malformed=()))
    await comes(lambda: len(history(network)) == 5)
    assert history(network)[2:] == [("joined", four.id), ("left", three.id), ("changed", two.id)]
    event = network._status.history.events[-1]
    assert (event.was, event.now) == (f"public IP {two.attrs.public_ip}", f"public IP {other.attrs.public_ip}")
    await network.peers.take(Changed(put=(replace(other, created=99),)))
    await comes(lambda: len(history(network)) == 6)
    assert network._status.history.events[-1].words == "it has a new lease that says the same"


async def test_of_thousands_that_come_at_once_some_are_history(network: Network):
    await comes(lambda: len(history(network)) == 2)
    await network.peers.take(
        Listed(leases=tuple(builders.lease(number, vxlan) for number in range(2, 202)), malformed=())
    )
    await comes(lambda: len(history(network)) > 2)
    assert history(network)[-1] == ("joined", "188 more")
    assert len(history(network)) == 2 + 11


async def test_at_the_start_their_number_is_enough(network: Network):
    await comes(lambda: len(history(network)) == 2)
    network._status.waiting = Problem(code="LEASE-001", where="weftd", seen="starting")
    await network.peers.take(Listed(leases=(builders.lease(4, vxlan),), malformed=()))
    network._status.waiting = None
    await asyncio.sleep(0.2)
    assert len(history(network)) == 2
    await network.peers.take(Changed(gone=(builders.lease(4, vxlan).id,), malformed=()))
    await comes(lambda: history(network)[2:] == [("left", builders.lease(4, vxlan).id)])


async def test_what_is_refused_or_cannot_be_read_is_history(network: Network):
    copy = replace(builders.lease(9, vxlan), attrs=builders.lease(2, vxlan).attrs, created=99)
    await network.peers.take(Changed(put=(copy,), malformed=(spoilt(8),)))
    refused = [event for event in network._status.history.events if event.kind == "refused"]
    assert [(event.subject, event.code) for event in refused] == [
        ("lease 10.5.8.0-24", "ADDR-002"),
        (f"lease {copy.id}", "ADDR-002"),
    ]
    assert "claims" in refused[1].words


async def test_what_is_done_with_a_refused_lease_is_logged_before_the_advice(network: Network, caplog):
    harmful = builders.lease(9, vxlan, public_ip=IPv4Address("127.0.0.1"))
    await network.peers.take(Changed(put=(harmful,)))
    await comes(lambda: "cannot be a node's; the lease is ignored. See which node wrote this lease" in caplog.text)


async def test_a_store_that_is_lost_and_comes_back_is_history(network: Network):
    await network.peers.take(Lost(reason="refused", refused=False))
    await network.peers.take(Lost(reason="still", refused=False))
    await network.peers.take(Changed(put=()))
    store = [event for event in network._status.history.events if event.subject == "store"]
    assert [(event.kind, event.code) for event in store] == [("store-lost", "STORE-001"), ("store-back", "")]


@pytest.mark.parametrize("complete", [False, True])
async def test_a_part_of_the_store_that_is_heard_again_is_history_once(network: Network, complete: bool):
    two, three = builders.lease(2, vxlan), builders.lease(3, vxlan)
    await network.peers.take(Lost(reason="no path", ids=frozenset({two.id, three.id})))
    await network.peers.take(Changed(put=(three,)))
    await network.peers.take(Listed(leases=(two,), complete=complete))
    await network.peers.take(Changed(put=(three,)))
    store = [event for event in network._status.history.events if event.subject == "store"]
    assert [event.kind for event in store] == ["store-lost", "store-back"]


async def test_the_way_of_an_event_begins_where_it_is_taken_and_a_first_list_is_none(tmp_path: Path):
    now = [0.0]
    network = made(tmp_path, clock=lambda: now[0])
    await network.peers.recall(Memory(net_conf="", leases=(builders.lease(2, vxlan),)))
    await settle(network)
    await network.peers.take(Listed(leases=tuple(builders.lease(node, vxlan) for node in range(2, 5)), complete=False))
    await network.peers.take(Listed(leases=tuple(builders.lease(node, vxlan) for node in range(2, 9))))
    await settle(network)
    assert sum(network.links.tally.took.counts) == 0, "the store was away at the start"

    judge = network.peers._roster.judge

    def slowly(most: int, **when: float):
        now[0] += 0.25
        return judge(most, **when)

    network.peers._roster.judge = slowly
    await network.peers.take(Changed(put=(builders.lease(9, vxlan),)))
    await settle(network)
    assert (sum(network.links.tally.took.counts), network.links.tally.took.total) == (1, 0.25)
    network.addresses_are({GATEWAY, UPLINK, OTHER})
    await network.peers.settle()
    assert network._status.peers_refused == 1
    await settle(network)
    assert sum(network.links.tally.took.counts) == 1, "what is judged again is no word of the store's"


async def test_a_start_does_not_wait_for_a_part_that_ended_by_a_fault(network: Network):
    async def watch(take, _listing) -> None:
        await take(Changed(put=(builders.lease(4, vxlan),)))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    network.peers._directory.watch, network.peers._roster.judge = watch, broken
    with pytest.raises(ZeroDivisionError):
        await network.peers.follow(lambda: None, lambda: None)
    assert network.peers.spoken.is_set()


async def test_a_list_that_is_not_complete_adds_and_takes_nothing_away(network: Network, tmp_path: Path):
    two, three, four = (builders.lease(number, vxlan) for number in (2, 3, 4))
    await network.peers.take(Listed(leases=(four,), mark=("late",), complete=False))
    assert network.peers._roster.believed.keys() == {two.id, three.id, four.id}
    assert network.peers.known(Memory(net_conf="")).mark is None, "there is none of a complete list"
    network.reconciler.complete = False
    await network.peers.take(Listed(leases=(), complete=False))
    assert not network.reconciler.may_remove()
    await network.peers.take(Listed(leases=(four,), malformed=(), mark=("all",)))
    assert network.reconciler.may_remove()
    assert network.peers._roster.believed.keys() == {four.id}


async def test_a_part_that_is_lost_is_served_as_before_and_the_rest_goes_on(network: Network, caplog):
    two, three, four = (builders.lease(number, vxlan) for number in (2, 3, 4))
    await network.peers.take(Lost(reason="no path", ids=frozenset({two.id, three.id})))
    assert network._status.store is None
    said = f"it hears nothing of 2 leases: {two.id}, {three.id} (no path)"
    assert network._status.lost()["leases"].seen == said
    assert said in caplog.text
    await network.peers.take(Listed(leases=(four,), complete=False))
    assert network.peers._roster.believed.keys() == {two.id, three.id, four.id}
    await network.peers.take(Changed(put=(two,), gone=()))
    assert f"1 lease: {three.id}" in network._status.lost()["leases"].seen
    await network.peers.take(Changed(gone=(three.id,)))
    assert "leases" not in network._status.lost()
    assert network.peers._roster.believed.keys() == {two.id, four.id}


async def test_a_store_that_hears_of_some_again_answers_again(network: Network):
    two = builders.lease(2, vxlan)
    await network.peers.take(Lost(reason="silent"))
    assert network._status.store is not None
    await network.peers.take(Lost(reason="no path", ids=frozenset({two.id})))
    assert network._status.store is None
    assert network._status.lost()["leases"].code == "STORE-001"
    await network.peers.take(Listed(leases=(two,)))
    assert not network._status.lost()
