"""`weft events` and `weft monitor`: what happened on a node, from its daemon's history, and what happens."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click

from weft.diag.bundle.offline import bundle_at, told_in
from weft.kernel import daemons
from weft.model.node import history
from weft.model.node.history import Event, EventsSince, Follower, Wanted
from weft.model.node.nodestate import HealthState
from weft.model.value import replace
from weft.screen.documents import output_option, show_report, watched
from weft.screen.eventlines import line, show_event, since_option, wanted_options
from weft.screen.groups import FROM, INSTANCE, need_root

_LOOK_AGAIN: Final = 0.5  # seconds between two questions of a watch: an answer without news has some hundred bytes


@click.command()
@click.option("-n", "--newest", metavar="N", type=click.IntRange(0), help="Print the newest N only.")
@since_option("Print those of the last 90s, 5min, 2h or 1d only.")
@click.option("-w", "--watch", is_flag=True, help="Then print each that comes, until Ctrl-C.")
@output_option
@INSTANCE
@FROM
def events(  # noqa: PLR0917 - click's way
    newest: int | None,
    since: float | None,
    watch: bool,  # noqa: FBT001 - click's way
    output: str,
    instance: str | None,
    file: Path | None,
) -> int:
    """Show what happened on this node, the oldest first: peers, repairs, store, lease and uplink.

    The daemon keeps the newest 1,000, across restarts. Of a burst of events that are alike, as when a thousand peers
    come at once, some are kept, and the number of the others.

    \b
      weft events
      weft events -w -n 20
      weft events --since 1h -o json | jq '.[] | select(.kind == "repaired")'
      weft events --from weft-bundle-node1.tar.gz

    Exits 1 when no daemon answers.
    """
    if file is None:
        need_root("weft events")
        take = _asking(daemons.choose(instance))
    else:
        take = partial(told_in, bundle_at(file, "instance", "watch"), file)
    found = recent(take(), newest=newest, since=since)
    if not watch:
        show_report(output, found, "".join(f"{line(event)}\n" for event in found))
        return 0
    for event in chain(found, _coming(take)):
        show_event(output, event)
    return 0


@click.command()
@wanted_options
@since_option("Begin with those of the last 90s, 5min, 2h or 1d.")
@output_option
@INSTANCE
def monitor(*, since: float | None, output: str, instance: str | None, **wanted: Any) -> None:
    """Show what happens on this node, as it happens, a line each, until Ctrl-C.

    Those are the events of `weft events`: peers that join, leave or change, leases that are refused, repairs, the
    store, the own lease and the uplink. And of kind `health`, what is wrong with the node now, and when that is over.
    It goes on when weftd is started again.

    \b
      weft monitor
      weft monitor --kind repaired --since 1h
      weft monitor --code ROUTE --code FDB-001
      weft monitor -o json | jq -r '.subject'

    Exits 1 when no daemon answers at first.
    """
    need_root("weft monitor")
    name, follower, chosen = daemons.choose(instance), Follower(), Wanted(**wanted)

    def take() -> tuple[EventsSince, HealthState]:
        return daemons.events(name, follower.last), daemons.health(name)

    told, health = take()
    found = [*history.recent(follower.events(told), told.unix, since), *follower.health(health, told.unix)]
    while True:
        for event in found:
            if chosen.wants(event):
                show_event(output, event)
        told, health = next(watched(take, _LOOK_AGAIN))
        found = [*follower.events(told), *follower.health(health, told.unix)]


def _asking(name: str) -> Callable[[], EventsSince]:
    """Asks for what was not told yet."""
    follower = Follower()

    def take() -> EventsSince:
        told = daemons.events(name, follower.last)
        return replace(told, events=follower.events(told))

    return take


def _coming(take: Callable[[], EventsSince]) -> Iterator[Event]:
    for told in watched(take, _LOOK_AGAIN):
        yield from told.events


def recent(told: EventsSince, *, newest: int | None, since: float | None) -> list[Event]:
    """The time counts by the daemon's clock."""
    found = told.events if since is None else history.recent(told.events, told.unix, since)
    return found if newest is None else found[max(0, len(found) - newest) :]
