"""`/metrics`: the node's state as Prometheus reads it (https://prometheus.io/docs/instrumenting/exposition_formats/).

Numbers of one node, with labels of few values: no peer has a series of its own. The library is imported with this
module, at the first request for it.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from weft.model.node.nodestate import NodeState


def render(state: NodeState) -> str:
    """The page. May take 20 ms with the first import, so it is made in a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(state))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _Collected:
    """One state, as a collector of the library."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

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
        yield _counter("weft_faults", "Parts of the daemon that a fault of weft's ended.", (), [((), state.faults)])
        yield from self._network()
        yield from self._loops()
        yield from self._calls()

    def _network(self) -> Iterator[Metric]:
        state = self._state
        lacking = sum(bool(peer.lacks or peer.trouble) for peer in state.peers)
        peers = {"served": len(state.peers) - lacking, "failing": lacking, "refused": len(state.refused)}
        yield _gauges("weft_peers", "Other nodes, by what became of their leases.", ("state",), _by_name(peers))
        if state.network is not None:
            yield _gauge("weft_pod_mtu_bytes", "The longest packet that a pod may send.", state.network.mtu)
        if state.lease is not None:
            yield _gauge(
                "weft_lease_confirmed", "1 once the store has confirmed our lease.", float(state.lease.confirmed)
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

    def _calls(self) -> Iterator[Metric]:
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
    troubles = [*(peer.trouble for peer in state.peers), *(lease.trouble for lease in state.refused)]
    for problem in (*state.parts.values(), *state.losses.values(), state.store, *troubles):
        if problem is not None:
            counts[problem.code] = counts.get(problem.code, 0) + 1
    yield from _by_name(counts)


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
