"""How all nodes of a lab are, in one table: who is ready, what each repaired, and what is wrong where. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from weft.lab.report import LabReport, NodeReport
from weft.model.node.nodestate import NodeState
from weft.model.node.wrong import wrong
from weft.model.table import table
from weft.model.text import counted, one_line, shortly

_HEADING = ("NODE", "DAEMON", "UP", "POD SUBNET", "LEASE", "PEERS", "REPAIRS", "CALLS", "FAILED", "VERSION")


def text(report: LabReport, states: Mapping[str, NodeState | None]) -> str:
    """Return the lab's head, a line for each node, what is wrong, and which node has repaired most."""
    head = f"lab {report.name}: {report.backend}, store {report.store} {report.store_state}\n\n"
    nodes = table(_HEADING, (_row(node, states.get(node.name)) for node in report.nodes))
    return head + nodes + "".join(f"{one_line(line)}\n" for line in _below(report, states))


def repairs(state: NodeState) -> Counter[str]:
    """Return how often a node has repaired something, by code."""
    found: Counter[str] = Counter()
    for loop in state.loops.values():
        found.update(loop.repairs)
    return found


def _row(node: NodeReport, state: NodeState | None) -> tuple[str, ...]:
    subnets = ", ".join(node.subnets)
    if state is None:
        # A program that is not weft says nothing of all this.
        return (node.name, node.daemon, "-", subnets, *["-"] * 5, PurePath(node.program).name or "-")
    served = sum(not (peer.lacks or peer.trouble) for peer in state.peers)
    lease = "-" if state.lease is None or state.lease.seconds is None else shortly(state.lease.seconds)
    return (
        node.name,
        node.daemon,
        shortly(state.seconds),
        subnets,
        lease,
        f"{served} of {len(state.peers) + len(state.refused)}",
        str(repairs(state).total()),
        str(sum(call.count for call in state.calls.values())),
        str(sum(call.failed for call in state.calls.values())),
        state.version,
    )


def _below(report: LabReport, states: Mapping[str, NodeState | None]) -> Iterator[str]:
    for node in report.nodes:
        state = states.get(node.name)
        said = node.problems if state is None else wrong(state)
        yield from (f"! {node.name}: {line}" for line in said)
    ranking = {name: repairs(state) for name, state in states.items() if state is not None}
    most = max(ranking, key=lambda name: ranking[name].total(), default=None)
    if most is not None and ranking[most]:
        codes = ", ".join(f"{code} {count}" for code, count in ranking[most].most_common())
        yield f"most repairs: {most}, {counted(ranking[most].total(), 'repair')} ({codes})"
