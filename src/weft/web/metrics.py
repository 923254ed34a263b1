"""`/metrics`: the node's state as Prometheus reads it (https://prometheus.io/docs/instrumenting/exposition_formats/).

Labels have few values. At most so many peers have series of their own; pods have them only where that is asked for,
because anybody who reaches the port reads their names. Counters of links and given addresses are looked up at each
request. The library is imported with this module, at the first request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from itertools import accumulate
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from weft.model.kernel.marks import POD_ALIAS
from weft.model.kernel.reported import Counters, LinkCounts
from weft.model.node.meshstate import MeshState
from weft.model.node.nodestate import BOUNDS, Durations, LeaseState, NodeState, PolicyState

# Where host-local keeps a file for each address.
RESERVED: Final = Path("/var/lib/cni/networks")
_SMALL: Final = 2  # of an IPv4 subnet: the network's address and the last one
_MOST: Final = 500  # peers that have series of their own: all nodes together have the square of that

_Samples = Iterable[tuple[tuple[str, ...], float]]


def render(
    state: NodeState,
    reserved: Path = RESERVED,
    *,
    links: Sequence[LinkCounts] = (),
    pods: Mapping[str, str] | None = None,
    refused: Mapping[str, int] | None = None,
) -> str:
    """May take 20 ms with the first import, so it is made in a thread.

    `links` are all of the node; `pods` are namespaces and names of its pods, as `default/web`, by the aliases of links.
    Without them pods have no series. `refused` counts what policies have refused, by direction.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(state, reserved, links, pods))
    if state.policy is not None:
        registry.register(_Policies(state.policy, refused or {}))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _Policies:
    """Of a node that enforces policies."""

    def __init__(self, state: PolicyState, refused: Mapping[str, int]) -> None:
        self._state = state
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        state = self._state
        yield _gauge("weft_policies", "Policies that are known to this node.", state.policies)
        yield _gauge("weft_policy_pods", "Attachments whose packets are judged.", state.pods)
        yield _gauge("weft_policy_unknown_pods", "Attachments whose pod is not known.", state.unknown)
        yield _gauges(
            "weft_policy_isolated_pods", "Attachments that policies restrict.", ("direction",), _by_name(state.isolated)
        )
        yield _gauge("weft_policy_elements", "Elements of the tables of policies.", state.elements)
        yield _gauge(
            "weft_policy_known_age_seconds",
            "For how long what was read may have been out of date; 0 while it is not.",
            state.age,
        )
        yield _histogram(
            "weft_policy_transaction_seconds",
            "How long the kernel took for a change of elements.",
            (),
            [((), state.transactions)],
        )
        yield _histogram(
            "weft_policy_add_waited_seconds", "How long an ADD waited for a pod's policies.", (), [((), state.waited)]
        )
        yield _counter(
            "weft_policy_refused_packets",
            "Packets that policies refused, or would have in an audit.",
            ("direction",),
            _by_name(dict(self._refused)),
        )
        yield _counter(
            "weft_policy_connections_cut", "Open connections that were ended by a change.", (), [((), state.cut)]
        )


class _Collected:
    """One state, as a collector of the library."""

    def __init__(
        self, state: NodeState, reserved: Path, links: Sequence[LinkCounts], pods: Mapping[str, str] | None
    ) -> None:
        self._state = state
        self._reserved = reserved
        self._links = links
        self._pods = pods

    def collect(self) -> Iterator[Metric]:
        state = self._state
        yield InfoMetricFamily("weft_build", "The version of weftd.", value={"version": state.version})
        yield _gauge("weft_ready", "1 while pods of this node have their network.", float(state.ready))
        yield _gauge("weft_up_seconds", "How long the daemon has run.", state.seconds)
        yield _gauges(
            "weft_part_ready",
            "1 for each part of readiness that is as it should be.",
            ("part",),
            (((name,), float(problem is None)) for name, problem in state.parts.items()),
        )
        yield _gauge("weft_store_up", "1 while the store answers and takes us.", float(state.store is None))
        yield _gauges("weft_problems", "What is wrong now, by its permanent code.", ("code",), _problems(state))
        if state.heard is not None:
            yield _gauge("weft_store_event_age_seconds", "For how long the store has said nothing.", state.heard)
        yield _counter("weft_faults", "Parts of the daemon that a fault of weft's ended.", (), [((), state.faults)])
        yield from self._network()
        yield from self._traffic()
        yield from self._loops()
        yield from self._calls()
        yield from self._store()
        if state.mesh is not None:
            yield from _mesh(state.mesh)

    def _store(self) -> Iterator[Metric]:
        requests = [(tuple(kind.split(" ", 1)), counted) for kind, counted in self._state.requests.items()]
        labels = ("verb", "code")
        counts = ((kind, counted.count) for kind, counted in requests)
        yield _counter("weft_store_requests", "What was asked of the store, by what it answered.", labels, counts)
        received = ((kind, counted.received) for kind, counted in requests)
        yield _counter("weft_store_received_bytes", "Bytes that came from the store, as they came.", labels, received)

    def _network(self) -> Iterator[Metric]:
        state = self._state
        lacking = sum(bool(peer.lacks or peer.trouble) for peer in state.peers)
        peers = {"served": len(state.peers) - lacking, "failing": lacking, "refused": len(state.refused)}
        yield _gauges("weft_peers", "Other nodes, by what became of their leases.", ("state",), _by_name(peers))
        if state.network is not None:
            yield _gauge("weft_pod_mtu_bytes", "The longest packet that a pod may send.", state.network.mtu)
            config = {"backend": state.network.backend, "digest": state.network.config}
            yield InfoMetricFamily("weft_config", "The network configuration, equal where that is.", value=config)
        if state.lease is not None:
            yield _gauge(
                "weft_lease_confirmed", "1 once the store has confirmed our lease.", float(state.lease.confirmed)
            )
            yield _gauges(
                "weft_addresses", "Addresses of the node's subnets.", ("family", "state"), self._addresses(state.lease)
            )

    def _addresses(self, lease: LeaseState) -> Iterator[tuple[tuple[str, str], float]]:
        """How many are given to pods, and how many are left; nothing where that cannot be seen."""
        if not self._reserved.is_dir():
            return
        given = set()
        for file in self._reserved.glob("*/*"):
            with suppress(ValueError):  # locks, and what was given last
                given.add(ip_address(file.name))
        for subnet in map(ip_network, lease.subnets):
            used = sum(address in subnet for address in given)
            bridge = 1 + (_SMALL if subnet.version == 4 else 1)
            family = f"IPv{subnet.version}"
            yield (family, "used"), used
            yield (family, "free"), max(0, subnet.num_addresses - bridge - used)

    def _traffic(self) -> Iterator[Metric]:
        """The devices that carry packets between nodes, the uplink, and the pods' own."""
        state = self._state
        network, uplink = state.network, state.uplink
        names = {*(network.devices if network else ()), *([uplink.name] if uplink else ())}
        devices = [link for link in self._links if link.name in names]
        tunnel = [link for link in devices if network is not None and link.name in network.devices]
        mtus = (((link.name,), link.mtu) for link in tunnel)
        yield _gauges("weft_device_mtu_bytes", "The MTU of a device.", ("device",), mtus)
        device = ("device", "direction")
        lost = [((link.name,), link.counted.received_lost, link.counted.sent_lost) for link in tunnel]
        yield _counter(
            "weft_device_lost_packets",
            "Packets that a device dropped, or could not take or send.",
            device,
            _both_ways(lost),
        )
        carried = [((link.name,), link.counted) for link in devices]
        yield _counter("weft_device_bytes", "Bytes that a device carried.", device, _bytes(carried))
        yield _counter("weft_device_packets", "Packets that a device carried.", device, _packets(carried))
        if self._pods is not None:
            yield from self._pods_traffic(self._pods)
        yield from self._peers_traffic()

    def _pods_traffic(self, pods: Mapping[str, str]) -> Iterator[Metric]:
        """What pods sent is what the host's end of their links received, and the reverse."""
        links = [link for link in self._links if link.alias.startswith(POD_ALIAS)]
        known = [((*_pod(pods, link), link.name), link.counted.reversed()) for link in links]
        labels = ("namespace", "pod", "interface", "direction")
        yield _counter("weft_pod_bytes", "Bytes that a pod sent and received.", labels, _bytes(known))
        yield _counter("weft_pod_packets", "Packets that a pod sent and received.", labels, _packets(known))
        lost = [(names, each.received_lost, each.sent_lost) for names, each in known]
        yield _counter("weft_pod_lost_packets", "Packets of a pod that its link dropped.", labels, _both_ways(lost))

    def _peers_traffic(self) -> Iterator[Metric]:
        """WireGuard counts bytes for each peer, udp's relay packets too."""
        counted, labels = [peer for peer in self._state.peers if peer.sent_bytes is not None], ("peer", "direction")
        peers = counted[:_MOST]
        yield _gauge("weft_peers_without_series", "Peers that are too many to have series.", len(counted) - len(peers))
        carried = [((peer.id,), peer.received_bytes or 0, peer.sent_bytes or 0) for peer in peers]
        yield _counter("weft_peer_bytes", "Bytes of a peer.", labels, _both_ways(carried))
        packets = [((peer.id,), peer.received or 0, peer.sent or 0) for peer in peers if peer.sent is not None]
        yield _counter("weft_peer_packets", "Packets of a peer.", labels, _both_ways(packets))

    def _loops(self) -> Iterator[Metric]:
        loops = self._state.loops
        yield _counter(
            "weft_reconcile_rounds",
            "Rounds of a plane's loop.",
            ("plane",),
            (((name,), loop.rounds) for name, loop in loops.items()),
        )
        yield _counter(
            "weft_reconcile_repairs",
            "Objects that were put back after another program changed them.",
            ("plane", "code"),
            (((name, code), count) for name, loop in loops.items() for code, count in loop.repairs.items()),
        )
        yield _gauges(
            "weft_plane_numbers",
            "What a plane knows itself, as packets of the relay or sessions of WireGuard.",
            ("plane", "what"),
            (((name, what), count) for name, loop in loops.items() for what, count in loop.counts.items()),
        )
        yield _gauges(
            "weft_reconcile_failing_objects",
            "Objects that the kernel refuses now.",
            ("plane",),
            (((name,), len(loop.failing)) for name, loop in loops.items()),
        )

        yield _histogram(
            "weft_store_to_kernel_seconds",
            "From the store's event of a node until the kernel had it; the first list does not count.",
            ("plane",),
            (((name,), loop.took) for name, loop in loops.items()),
        )

    def _calls(self) -> Iterator[Metric]:
        yield _histogram(
            "weft_cni_seconds",
            "How long a call of a plugin took, once it was its turn.",
            ("plugin", "command"),
            ((tuple(kind.split(" ", 1)), took) for kind, took in sorted(self._state.took.items())),
        )
        yield _histogram(
            "weft_cni_waited_seconds", "How long until it was a call's turn.", (), [((), self._state.waited)]
        )
        calls = [(kind.partition(" "), counted) for kind, counted in self._state.calls.items()]
        yield _counter(
            "weft_cni_requests",
            "Calls of CNI plugins.",
            ("plugin", "command", "result"),
            (
                ((kind[0], kind[2], result), count)
                for kind, counted in calls
                for result, count in (("ok", counted.count - counted.failed), ("failed", counted.failed))
            ),
        )


def _problems(state: NodeState) -> Iterator[tuple[tuple[str], int]]:
    counts: dict[str, int] = {}
    troubles = [each for peer in state.peers for each in (peer.trouble, peer.doubt)]
    troubles += [lease.trouble for lease in state.refused]
    for problem in (*state.parts.values(), *state.losses.values(), state.store, *troubles):
        if problem is not None:
            counts[problem.code] = counts.get(problem.code, 0) + 1
    yield from _by_name(counts)


def _pod(pods: Mapping[str, str], link: LinkCounts) -> tuple[str, str]:
    namespace, _, name = pods.get(link.alias, "").partition("/")
    return namespace, name


def _both_ways(counts: Iterable[tuple[tuple[str, ...], int, int]]) -> _Samples:
    """Samples with the direction as a further label."""
    for names, received, sent in counts:
        yield (*names, "received"), received
        yield (*names, "sent"), sent


def _bytes(counts: Iterable[tuple[tuple[str, ...], Counters]]) -> _Samples:
    return _both_ways((names, each.received_bytes, each.sent_bytes) for names, each in counts)


def _packets(counts: Iterable[tuple[tuple[str, ...], Counters]]) -> _Samples:
    return _both_ways((names, each.received_packets, each.sent_packets) for names, each in counts)


def _by_name(counts: dict[str, int]) -> Iterator[tuple[tuple[str], int]]:
    return (((name,), count) for name, count in sorted(counts.items()))


def _mesh(mesh: MeshState) -> Iterator[Metric]:
    linked = sum(peer.linked for peer in mesh.peers)
    strangers = sum(map(len, mesh.strangers.values()))
    links = {"ring": linked, "other": strangers}
    yield _gauges(
        "weft_mesh_links", "Links that are up, to peers of our ring and to others.", ("with",), _by_name(links)
    )
    yield _gauge("weft_mesh_members", "Peers of the ring, this node included.", len(mesh.peers))
    yield _gauge("weft_mesh_agreed", "1 once a neighbour knew what this node knows.", float(mesh.agreed))
    yield _gauge("weft_mesh_removals_pending", "Peers whose removal waits for others.", len(mesh.removing))
    way = ("way",)
    yield _gauges("weft_mesh_way", "Peers by the way that packets take to them.", way, _by_name(mesh.ways))
    yield _counter("weft_mesh_way_changes", "Changes of such ways, by the new one.", way, _by_name(mesh.moves))
    what = "Links that were closed: hostile ones, and those with another password."
    yield _counter("weft_mesh_refused", what, ("why",), _by_name(mesh.refused))
    if mesh.ring is not None:
        ours = sum(peer.blocks for peer in mesh.peers if peer.us)
        others = mesh.ring.blocks - mesh.ring.unknown - ours
        blocks = {"ours": ours, "others": others, "unknown": mesh.ring.unknown}
        yield _gauges("weft_mesh_blocks", "Blocks of the ring, by owner.", ("owner",), _by_name(blocks))


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _gauges(name: str, what: str, labels: tuple[str, ...], samples: _Samples) -> Metric:
    return _filled(GaugeMetricFamily(name, what, labels=labels), samples)


def _counter(name: str, what: str, labels: tuple[str, ...], samples: _Samples) -> Metric:
    return _filled(CounterMetricFamily(name, what, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: _Samples) -> Metric:
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _histogram(
    name: str, what: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], Durations]]
) -> Metric:
    family = HistogramMetricFamily(name, what, labels=labels)
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    for values, took in samples:
        family.add_metric(values, list(zip(bounds, accumulate(took.counts), strict=True)), took.total)
    return family
