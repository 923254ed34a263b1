"""`weft drops`: what this node drops of the pod network, as it happens."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from typing import Any, Final

import click

from weft.diag.drops.loss import Loss, together
from weft.diag.drops.sources import Counted, Source, Told
from weft.diag.options import place_options, places_of
from weft.diag.sight.look import Places
from weft.kernel.dropmonitor import Monitor
from weft.kernel.rtnetlink.attributes import Malformed
from weft.model.text import one_line
from weft.model.value import Value, fields_of
from weft.screen.documents import DOCUMENTS, output_option, pause, piece, show_report
from weft.screen.groups import need_root
from weft.screen.say import say

_SECONDS: Final = 5  # for which it looks without --watch
_AT_A_TIME: Final = 1.0  # seconds


class Report(Value):
    """What was dropped in `seconds`, `by` drop_monitor or by counters."""

    by: str
    seconds: int
    losses: list[Loss]


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Show it as it happens, until Ctrl-C; else five seconds of it.")
@output_option
@place_options
def drops(output: str, *, watch: bool, **where: Any) -> None:
    """Show what this node drops of the pod network: why, of which pod and peer, and by which rule.

    A kernel that has drop_monitor tells of each packet why it was dropped, by which function, and its addresses. Weft
    adds which rule, policy or route it expects to drop such packets. Without drop_monitor, and in a network namespace
    other than the machine's first, it shows which counters of the kernel, of rules and of weft's policies have grown;
    most of them do not say whose packets those were.

    Each second, packets that are alike are one line; of more than twenty such lines, the rest is summed up in one. The
    monitor ends with the command, even if that is killed (kill -9); the kernel's module stays loaded.

    \b
      weft drops
      weft drops -w
      weft drops -w -o json | jq -r 'select(.pod != "") | [.pod, .reason, .rule] | @tsv'
      weft lab exec node1 weft drops

    Exits 0, whatever was dropped: 'weft doctor' says what of it is a fault.
    """
    need_root("weft drops")
    with ExitStack() as held:
        told = _each_second(places_of(where), held)
        if watch:
            for _, found in told:
                _show(output, together(found))
        seconds = list(islice(told, _SECONDS))
    losses, by = together(loss for _, found in seconds for loss in found), seconds[-1][0]
    text = "".join(f"{line}\n" for line in _lines(losses)) or "nothing was dropped\n"
    show_report(output, Report(by=by, seconds=_SECONDS, losses=losses), text)


def _each_second(places: Places, held: ExitStack) -> Iterator[tuple[str, list[Loss]]]:
    """What was dropped since the last time, and what tells it: counters, from where on the monitor does not."""
    by, source = _source(places, held)
    while True:
        pause(_AT_A_TIME)
        try:
            found = list(source.losses())
        except (OSError, Malformed) as error:
            if isinstance(source, Counted):
                raise
            by, source, found = *_counted(places, held, error), []
        yield by, found


def _source(places: Places, held: ExitStack) -> tuple[str, Source]:
    try:
        monitor = held.enter_context(closing(Monitor()))
    except (OSError, Malformed) as error:
        return _counted(places, held, error)
    return "drop_monitor", Told(places, monitor)


def _counted(places: Places, held: ExitStack, error: OSError | Malformed) -> tuple[str, Source]:
    why = error.strerror if isinstance(error, OSError) else error
    say(f"weft: {why}; counters say what is dropped, and mostly not whose", err=True)
    return "counters", held.enter_context(closing(Counted(places)))


def _show(output: str, losses: list[Loss]) -> None:
    if output in DOCUMENTS:
        for each in losses:
            click.echo(piece(output, {"time": time.time(), **fields_of(each)}), nl=False)
        return
    for line in _lines(losses):
        say(line)


def _lines(losses: list[Loss]) -> Iterator[str]:
    when = time.strftime("%H:%M:%S")
    yield from (one_line(f"{when}  {each}") for each in losses)
