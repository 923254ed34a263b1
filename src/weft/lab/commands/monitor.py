"""`weft lab monitor`: what happens on all nodes of a lab, as it happens."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import click

from weft.lab import protocol
from weft.lab.commands import start
from weft.lab.commands.choose import ask, base, lab_option, nodes
from weft.lab.links import ITSELF
from weft.lab.places import Place
from weft.lab.protocol import Deserted
from weft.lab.report import NewsReport
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import Event, Follower, merged, recent
from weft.model.text import one_of
from weft.screen.documents import PEOPLE, output_option, pause
from weft.screen.eventlines import show_event, since_option, wanted_of, wanted_options
from weft.screen.say import say

_LOOK_AGAIN: Final = 0.5  # seconds


@click.command()
@click.option("--node", "only", multiple=True, metavar="NODE", shell_complete=nodes, help="Only events of this node.")
@wanted_options
@since_option("Begin with those of the last 90s, 5min, 2h or 1d.")
@lab_option
@output_option
def monitor(
    only: tuple[str, ...],
    kinds: tuple[str, ...],
    codes: tuple[str, ...],
    *,
    since: float | None,
    lab: str,
    output: str,
) -> None:
    """Show what happens on all nodes of a lab, as it happens, a line each in the order of time, until Ctrl-C.

    Those are the events that `weft events` shows on a node, and of kind `health`, what is wrong with a node now, when
    that is over, and whether its weftd answers; of `the lab`, what commands have done to it. It goes on when a daemon
    is started again, and ends with the lab.

    \b
      weft lab monitor
      weft lab monitor --since 10min --kind repaired
      weft lab monitor --node node1 --code ROUTE
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place, chosen = start.find(base(), lab), wanted_of(kinds, codes)
    followers: dict[str, Follower] = {}
    found = _ask(place, followers)
    if unknown := [name for name in only if name not in (ITSELF, *found.nodes)]:
        expected = one_of(found.nodes, unknown[0])
        raise ConfigError(Problem(code="LAB-002", where="--node", seen=unknown[0], expected=expected))
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
    return ask(place, protocol.AskNews(after=after), NewsReport)


def _news(followers: dict[str, Follower], name: str, found: NewsReport, since: float | None) -> list[Event]:
    """What a node has not told yet; of one that was just met only what is recent enough."""
    met = name not in followers
    follower, news = followers.setdefault(name, Follower()), found.nodes.get(name)
    told = found.lab if name == ITSELF else None if news is None else news.told
    if told is None:
        return follower.silence(time.time())
    events = follower.events(told)
    if met:
        events = recent(events, told.unix, since)
    return events if news is None else [*events, *follower.health(news.health, told.unix)]
