"""`weft lab logs`: the logs of daemons, store and supervisor.

They are files on the machine: no supervisor is asked.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import datetime
from io import FileIO
from typing import Final

import click
import msgspec

from weft.lab.commands.choose import find, lab_and_output, logs_and_all
from weft.lab.commands.using import loglines
from weft.lab.commands.using.loglines import Line
from weft.lab.places import Place
from weft.lab.spec import ALL
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_of
from weft.model.value import Value
from weft.screen.documents import DOCUMENTS, PEOPLE, pause, piece, show_report
from weft.screen.groups import read_by
from weft.screen.say import say

_LOOK_AGAIN: Final = 0.2  # seconds


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE|etcd|supervisor|all]…", shell_complete=logs_and_all)
@click.option("-f", "--follow", is_flag=True, help="Then print new lines, until Ctrl-C or the lab's end.")
@click.option("-n", "--tail", metavar="N", type=click.IntRange(0), help="Print the last N lines only.")
@click.option(
    "--since",
    metavar="TIME",
    callback=read_by(lambda text: loglines.start_of(text, _now())),
    help="Print from then on: 5min ago, or at 14:30, or at a date.",
)
@lab_and_output
def logs(names: tuple[str, ...], lab: str, output: str, *, follow: bool, tail: int | None, since: float | None) -> None:
    """Print what nodes' daemons, the store and the lab's supervisor have logged: those named, or all.

    Several are merged by time, with the name of each before its lines.

    \b
      weft lab logs node1
      weft lab logs node1 node2 --since 5min
      weft lab logs -f --tail 20
      weft lab logs node1 -f -o json | jq -r .line

    In JSON each line is an object with `name`, `time` (seconds since 1970) and `line`; with -f, one on each line.
    Exits 0 when the lab ends while its logs are followed, 130 on Ctrl-C.
    """
    place = find(lab)
    chosen = _chosen(place, names)
    with closing(_Logs(place, chosen)) as reading:
        found = loglines.merged(reading.news(whole=follow), since=since, tail=tail)
        if output in DOCUMENTS and not follow:
            show_report(output, [msgspec.to_builtins(line) for line in found], "")
            return
        width = 0 if len(chosen) == 1 else max(map(len, reading.names), default=0)
        _print(found, output, width)
        while follow and reading.grow():
            pause(_LOOK_AGAIN)
            _print(loglines.merged(reading.news(whole=True)), output, width)
    if follow and output in PEOPLE:
        say(f"lab {place.name} is down", err=True)


def _chosen(place: Place, names: Sequence[str]) -> frozenset[str]:
    """Empty for all logs. `ConfigError` names those there are."""
    there = sorted(path.stem for path in place.logs.iterdir())
    if not names or ALL in names:
        return frozenset()
    if unknown := [name for name in names if name not in there]:
        seen, expected = f"no log {unknown[0]!r}", one_of((*there, ALL), unknown[0])
        raise ConfigError(Problem("LAB-002", "weft lab logs", seen, expected=expected))
    return frozenset(names)


class _Log(Value, frozen=False):
    """`rest` is an incomplete line, `last` the time of the line before it."""

    file: FileIO
    rest: bytes = b""
    last: float | None = None

    def news(self, name: str, *, whole: bool) -> list[Line]:
        """`whole` lines, or also the end of the log."""
        text, newline, self.rest = (self.rest + self.file.readall()).rpartition(b"\n")
        if not whole:
            text, self.rest = text + newline + self.rest, b""
        texts = text.decode(errors="replace").removesuffix("\n").split("\n") if text else []
        found = loglines.lines(name, texts, now=_now(), last=self.last)
        self.last = found[-1].time if found else self.last
        return found


class _Logs:
    """The logs of a lab, each read on from where it was read to; `chosen` empty means all, also later ones."""

    def __init__(self, place: Place, chosen: frozenset[str]) -> None:
        self._place = place
        self._chosen = chosen
        self._logs: dict[str, _Log] = {}

    @property
    def names(self) -> Iterable[str]:
        return self._logs

    def close(self) -> None:
        for log in self._logs.values():
            log.file.close()

    def news(self, *, whole: bool) -> list[list[Line]]:
        with suppress(FileNotFoundError):  # the lab is down
            for path in sorted(self._place.logs.iterdir()):
                if path.stem not in self._logs and (not self._chosen or path.stem in self._chosen):
                    self._logs[path.stem] = _Log(file=FileIO(path))
        return [log.news(name, whole=whole) for name, log in self._logs.items()]

    def grow(self) -> bool:
        """Whether one may still grow: a log goes when its lab or its node does."""
        for name, log in list(self._logs.items()):
            if not os.fstat(log.file.fileno()).st_nlink:
                log.file.close()
                del self._logs[name]
        return bool(self._logs)


def _print(found: Iterable[Line], output: str, width: int) -> None:
    for line in found:
        if output in DOCUMENTS:
            click.echo(piece(output, line), nl=False)
        else:
            say(f"{line.name:{width}} | {line.line}" if width else line.line)


def _now() -> datetime:
    return datetime.now().astimezone()
