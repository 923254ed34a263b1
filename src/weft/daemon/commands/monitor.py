"""`weft monitor`: what happens on a node, as it happens."""

from typing import Final

import click

from weft.kernel import daemons
from weft.model.node.history import EventsSince, Follower, recent
from weft.model.node.nodestate import HealthState
from weft.screen.documents import output_option, watched
from weft.screen.eventlines import show_event, since_option, wanted_of, wanted_options
from weft.screen.groups import INSTANCE, need_root

_LOOK_AGAIN: Final = 0.5  # seconds between two questions, of which an answer without news has some hundred bytes


@click.command()
@wanted_options
@since_option("Begin with those of the last 90s, 5min, 2h or 1d.")
@output_option
@INSTANCE
def monitor(
    kinds: tuple[str, ...], codes: tuple[str, ...], *, since: float | None, output: str, instance: str | None
) -> None:
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
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    need_root("weft monitor")
    name, follower, chosen = daemons.choose(instance), Follower(), wanted_of(kinds, codes)

    def take() -> tuple[EventsSince, HealthState]:
        return daemons.events(name, follower.last), daemons.health(name)

    told, health = take()
    found = [*recent(follower.events(told), told.unix, since), *follower.health(health, told.unix)]
    while True:
        for event in found:
            if chosen.wants(event):
                show_event(output, event)
        told, health = next(watched(take, _LOOK_AGAIN))
        found = [*follower.events(told), *follower.health(health, told.unix)]
