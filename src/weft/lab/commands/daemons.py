"""`weft lab status` and `monitor`: what the daemons of a lab's nodes say of themselves."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import Any, Final

import click

from weft.lab import protocol
from weft.lab.call import Deserted
from weft.lab.commands.choose import ask, find, lab_and_output, nodes, within
from weft.lab.links import ITSELF
from weft.lab.places import Place
from weft.lab.report import LabReport, NewsReport, NodeReport, States, serves
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import Event, Follower, Wanted, merged, recent
from weft.model.node.nodestate import NodeState, wrong
from weft.model.text import counted, one_line, one_of, shortly, table
from weft.screen.documents import PEOPLE, next_commands, pause, redraw, show_report, watch_option
from weft.screen.eventlines import show_event, since_option, wanted_options
from weft.screen.say import say

_HEADING = ("NODE", "DAEMON", "UP", "POD SUBNET", "LEASE", "PEERS", "REPAIRS", "CALLS", "FAILED", "VERSION")
_LOOK_AGAIN: Final = 0.5  # seconds


@click.command()
@watch_option
@lab_and_output
def status(lab: str, output: str, *, watch: bool) -> int:
    """Show how the daemon of each node is: ready or why not, its lease, peers, repairs and plugins' calls.

    LEASE is how long the lease still lasts if nothing renews it, PEERS how many of the other nodes are served, REPAIRS
    how often weftd put right what another program had changed, CALLS and FAILED are plugins' calls.

    \b
      weft lab status
      weft lab status -w
      weft lab status -o json | jq '.node1.loops[].repairs'

    Exits 0 when all nodes are ready, 1 when one is not.
    """
    place = find(lab)
    if watch:
        redraw(output, partial(_look, place), _render)
    report, states = _look(place)
    show_report(output, *_render((report, states)))
    bad = [node.name for node in report.nodes if not serves(node.daemon)]
    if bad:
        option = within(place)
        next_commands(output, f"weft lab exec{option} {bad[0]} weft doctor", f"weft lab logs{option} {bad[0]}")
    return 1 if bad else 0


def _look(place: Place) -> tuple[LabReport, States]:
    return ask(place, protocol.Ps()), ask(place, protocol.States())


def _render(seen: tuple[LabReport, States]) -> tuple[States, str]:
    report, states = seen
    return states, overview(report, states)


def overview(report: LabReport, states: Mapping[str, NodeState | None]) -> str:
    head = f"lab {report.name}: {report.backend}, store {report.store} {report.store_state}\n\n"
    nodes = table(_HEADING, (_row(node, states.get(node.name)) for node in report.nodes))
    return head + nodes + "".join(f"{one_line(line)}\n" for line in _below(report, states))


def repairs(state: NodeState) -> Counter[str]:
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


@click.command()
@click.option("--node", "only", multiple=True, metavar="NODE", shell_complete=nodes, help="Only events of this node.")
@wanted_options
@since_option("Begin with those of the last 90s, 5min, 2h or 1d.")
@lab_and_output
def monitor(only: tuple[str, ...], *, since: float | None, lab: str, output: str, **wanted: Any) -> None:
    """Show what happens on all nodes of a lab, as it happens, a line each in the order of time, until Ctrl-C.

    These are each node's events, as `weft events` shows them; events of kind `health`: what is wrong with a node now,
    when that ends, and whether its weftd answers; and, as `the lab`, what commands have done to the lab. It goes on
    when a daemon is started again, and ends with the lab.

    \b
      weft lab monitor
      weft lab monitor --since 10min --kind repaired
      weft lab monitor --node node1 --code ROUTE
    """
    place, chosen = find(lab), Wanted(**wanted)
    followers: dict[str, Follower] = {}
    found = _ask(place, followers)
    if unknown := [name for name in only if name not in (ITSELF, *found.nodes)]:
        raise ConfigError(Problem("LAB-002", "--node", unknown[0], expected=one_of(found.nodes, unknown[0])))
    while place.alive:
        news = [(name, _news(followers, name, found, since)) for name in (ITSELF, *found.nodes)]
        for node, event in merged(news):
            if chosen.wants(event) and (not only or node in only):
                show_event(output, event, node)
        pause(_LOOK_AGAIN)
        with suppress(OSError, Deserted):  # its end, of which `alive` tells next
            found = _ask(place, followers)
    if output in PEOPLE:
        say(f"lab {place.name} is down", err=True)


def _ask(place: Place, followers: Mapping[str, Follower]) -> NewsReport:
    after = {name: follower.last for name, follower in followers.items()}
    return ask(place, protocol.AskNews(after=after))


def _news(followers: dict[str, Follower], name: str, found: NewsReport, since: float | None) -> list[Event]:
    """What a node has not told yet; of a node that was just met, only recent events."""
    met = name not in followers
    follower, news = followers.setdefault(name, Follower()), found.nodes.get(name)
    told = found.lab if name == ITSELF else None if news is None else news.told
    if told is None:
        return follower.silence(time.time())
    events = follower.events(told)
    if met:
        events = recent(events, told.unix, since)
    return events if news is None else [*events, *follower.health(news.health, told.unix)]
