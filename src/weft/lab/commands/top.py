"""`weft lab top`: what nodes, pods and ways between nodes carry in each second."""

import shutil
import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

import click

from weft.lab import protocol
from weft.lab.commands.choose import ask, find, lab_and_output
from weft.lab.report import Carried, TrafficReport, rates
from weft.model.text import shown_amount, table
from weft.screen.documents import DOCUMENTS, pause, redraw, show_report
from weft.screen.say import is_screen

_SECONDS: Final = 1.0  # between two readings
_AROUND: Final = 10  # lines of a screen that are no rows: headings, empty lines, the prompt

_CARRIED: Final = ("SENT", "RECEIVED", "PACKETS SENT", "PACKETS RECEIVED", "LOST")


@click.command()
@click.option("--once", is_flag=True, help="Print one reading, over a second, and end; so do a pipe and -o json.")
@lab_and_output
def top(lab: str, output: str, *, once: bool) -> None:
    """Show what nodes, pods and ways between nodes carry in each second, the busiest first, until Ctrl-C.

    Of a node it is what its uplink carries, of a way what goes from one node to another by the lab's switch, in their
    tunnel or without one. LOST are packets: of a node or pod those that its link could not carry, of a way those that
    `weft lab link --loss` and `weft lab partition` took.

    \b
      weft lab top
      weft lab top --once
      weft lab top -o json | jq '.pods[] | select(.sent_bytes > 1e6) | .name'
    """
    readings = _Readings(lab)
    live = not once and output not in DOCUMENTS and is_screen(sys.stdout)
    rows = max(1, shutil.get_terminal_size().lines - _AROUND) if live else None

    def render(report: TrafficReport) -> tuple[TrafficReport, str]:
        return report, text(readings.name, report, rows)

    if live:
        redraw(output, readings.take, render, sleep=lambda _: None)  # a reading takes its second itself
    show_report(output, *render(readings.take()))


class _Readings:
    """Readings of a lab's counters. `ConfigError` once it is down."""

    def __init__(self, lab: str) -> None:
        self.name = find(lab).name
        self._before = self._ask()

    def take(self) -> TrafficReport:
        """Wait a second; returns the rates since the reading before."""
        pause(_SECONDS)
        before, self._before = self._before, self._ask()
        return rates(before, self._before)

    def _ask(self) -> TrafficReport:
        return ask(find(self.name), protocol.Traffic())


def text(name: str, report: TrafficReport, rows: int | None = None) -> str:
    """All by name, or the busiest if they do not fit into `rows`."""
    nodes = [((each.name, *_cells(each)), each.sent_bytes + each.received_bytes) for each in report.nodes]
    pods = [((each.name, each.node, *_cells(each)), each.sent_bytes + each.received_bytes) for each in report.pods]
    ways = [
        ((each.source, each.target, _bytes(each.bytes), _number(each.packets), _number(each.lost)), each.bytes)
        for each in report.ways
    ]
    each_has = None if rows is None else max(1, rows // 3)
    parts = [f"lab {name}: in each second, over {report.seconds:.1f} s\n"]
    for heading, listed in (
        (("NODE", *_CARRIED), nodes),
        (("POD", "ON", *_CARRIED), pods),
        (("FROM", "TO", "BYTES", "PACKETS", "LOST"), ways),
    ):
        if listed:
            parts.append(_table(heading, listed, each_has))
    return "\n".join(parts)


def _table(heading: Sequence[str], rows: Sequence[tuple[tuple[str, ...], float]], most: int | None) -> str:
    shown = sorted(rows, key=itemgetter(1), reverse=True)[:most]
    left = len(rows) - len(shown)
    return table(heading, (cells for cells, _ in shown)) + (f"and {left} more, less busy\n" if left else "")


def _cells(each: Carried) -> tuple[str, ...]:
    sent, received = _bytes(each.sent_bytes), _bytes(each.received_bytes)
    return sent, received, _number(each.sent_packets), _number(each.received_packets), _number(each.lost)


def _bytes(amount: float) -> str:
    return f"{shown_amount(amount)}B/s"


def _number(amount: float) -> str:
    return f"{amount:.0f}"
