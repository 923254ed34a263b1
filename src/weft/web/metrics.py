"""`/metrics`: the node's state as Prometheus reads it (https://prometheus.io/docs/instrumenting/exposition_formats/).

Numbers of one node, with labels of few values: no peer has a series of its own. What the daemon need not know is
looked at when it is asked for: counters of devices, addresses that are given. The library is imported with this module,
at the first request for it.
"""

import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator
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

from weft.model.node.nodestate import BOUNDS, Durations, LeaseState, NodeState

# Where host-local keeps a file for each address; of this process's network namespace, what its devices have counted.
RESERVED: Final = Path("/var/lib/cni/networks")
COUNTED: Final = Path("/proc/self/net/dev")
_SIOCGIFMTU: Final = 0x8921
_ERRORS: Final = {"received": (2, 3), "sent": (10, 11)}  # columns with errors and drops, after the name
_SMALL: Final = 2  # of an IPv4 subnet: the network's address and the last one


def render(state: NodeState, reserved: Path = RESERVED, counted: Path = COUNTED) -> str:
    """The page. May take 20 ms with the first import, so it is made in a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(state, reserved, counted))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _Collected:
    """One state, as a collector of the library."""

    def __init__(self, state: NodeState, reserved: Path, counted: Path) -> None:
        self._state = state
        self._reserved = reserved
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        """Give each family with its samples."""
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
        yield from self._tunnel()
        yield from self._loops()
        yield from self._calls()
        yield from self._store()

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

    def _tunnel(self) -> Iterator[Metric]:
        """Give what the devices have lost that carry packets between nodes, and how long those may be."""
        names = self._state.network.devices if self._state.network is not None else []
        rows = {name: mtu for name in names if (mtu := _mtu(name))}
        yield _gauges("weft_device_mtu_bytes", "The MTU of a device.", ("device",), _by_name(rows))
        yield _counter(
            "weft_device_lost_packets",
            "Packets that a device dropped, or could not take or send.",
            ("device", "direction"),
            _lost(self._counted, rows),
        )

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
            "From what the store said of a node until the kernel had it.",
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
    """How many problems there are of each code."""
    counts: dict[str, int] = {}
    troubles = [each for peer in state.peers for each in (peer.trouble, peer.doubt)]
    troubles += [lease.trouble for lease in state.refused]
    for problem in (*state.parts.values(), *state.losses.values(), state.store, *troubles):
        if problem is not None:
            counts[problem.code] = counts.get(problem.code, 0) + 1
    yield from _by_name(counts)


def _mtu(name: str) -> int:
    """The MTU of a device; 0 if there is none of that name."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, _SIOCGIFMTU, struct.pack("16si20x", name.encode(), 0))
        mtu: int = struct.unpack_from("i", answer, 16)[0]
        return mtu
    return 0


def _lost(file: Path, names: Iterable[str]) -> Iterator[tuple[tuple[str, str], int]]:
    """What devices have lost, in each direction (proc(5), /proc/net/dev)."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            name, _, rest = line.strip().partition(":")
            if name in names:
                columns = rest.split()
                for direction, (errors, drops) in _ERRORS.items():
                    yield (name, direction), int(columns[errors]) + int(columns[drops])


def _by_name(counts: dict[str, int]) -> Iterator[tuple[tuple[str], int]]:
    return (((name,), count) for name, count in sorted(counts.items()))


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _gauges(name: str, what: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, what: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
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
