"""`weft lab status`: what the daemons of a lab's nodes say of themselves, side by side."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePath

import click

from weft.lab import protocol
from weft.lab.commands import start
from weft.lab.commands.choose import ask, base, lab_option, within
from weft.lab.places import Place
from weft.lab.report import LabReport, NodeReport, StatesReport, serves
from weft.model.node.nodestate import NodeState, wrong
from weft.model.text import counted, one_line, shortly, table
from weft.screen.documents import next_commands, output_option, redraw, show_report, watch_option

_HEADING = ("NODE", "DAEMON", "UP", "POD SUBNET", "LEASE", "PEERS", "REPAIRS", "CALLS", "FAILED", "VERSION")


@click.command()
@watch_option
@lab_option
@output_option
def status(lab: str, output: str, *, watch: bool) -> int:
    """Show how the daemon of each node is: ready or why not, its lease, peers, repairs and plugins' calls.

    LEASE is how long the lease still lasts if nothing renews it, PEERS how many of the other nodes are served, REPAIRS
    how often what another program had changed was put right, CALLS and FAILED are plugins' calls.

    \b
      weft lab status
      weft lab status -w
      weft lab status -o json | jq '.node1.loops[].repairs'

    Exits 0 when all nodes are ready, 1 when one is not.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place = start.find(base(), lab)
    if watch:
        redraw(output, partial(_look, place), _render)
    report, states = _look(place)
    show_report(output, *_render((report, states)))
    bad = [node.name for node in report.nodes if not serves(node.daemon)]
    if bad:
        option = within(place)
        next_commands(output, f"weft lab exec{option} {bad[0]} weft doctor", f"weft lab logs{option} {bad[0]}")
    return 1 if bad else 0


def _look(place: Place) -> tuple[LabReport, StatesReport]:
    return ask(place, protocol.Ps(), LabReport), ask(place, protocol.States(), StatesReport)


def _render(seen: tuple[LabReport, StatesReport]) -> tuple[dict[str, NodeState | None], str]:
    report, states = seen
    return states.states, overview(report, states.states)


def overview(report: LabReport, states: Mapping[str, NodeState | None]) -> str:
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
