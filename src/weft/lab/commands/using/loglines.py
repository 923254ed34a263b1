"""The lines of several logs, by time. Pure.

weftd and etcd write UTC or a zone, Kubernetes' programs local time without a year.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from typing import Final

from weft.model.text import seconds_in
from weft.model.value import Value

_DATED: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_KLOG: Final = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{6}) ")
_HEAD: Final = 200  # characters of a line in which its time is looked for
_TOO_NEW: Final = timedelta(days=1)


class Line(Value):
    """A line of the log `name`. `time` is in seconds since 1970: its own, or that of the line before it, if any."""

    name: str
    time: float | None
    line: str


def lines(name: str, texts: Iterable[str], *, now: datetime, last: float | None = None) -> list[Line]:
    """`now` has the zone of times that name none, `last` is the time of the line before."""
    found = []
    for text in texts:
        last = _moment(text, now) or last
        found.append(Line(name=name, time=last, line=text))
    return found


def merged(logs: Iterable[Sequence[Line]], *, since: float | None = None, tail: int | None = None) -> list[Line]:
    """By time: those from `since` on, and of these the last `tail`."""
    every = [line for log in logs for line in log if since is None or (line.time or 0.0) >= since]
    every.sort(key=lambda line: line.time or 0.0)
    return every if tail is None else every[max(0, len(every) - tail) :]


def start_of(text: str, now: datetime) -> float:
    """`5m`, `14:30` or `2026-01-02T14:30Z`, in seconds since 1970. `ValueError`."""
    try:
        return now.timestamp() - seconds_in(text)
    except ValueError:
        pass
    try:
        return _zoned(datetime.combine(now.date(), time.fromisoformat(text)), now).timestamp()
    except ValueError:
        pass
    try:
        return _zoned(datetime.fromisoformat(text), now).timestamp()
    except ValueError:
        example = "90s, 5min, 14:30 or 2026-01-02T14:30:00Z"
        raise ValueError(f"{text!r} is no time; expected for example {example}") from None


def _moment(text: str, now: datetime) -> float | None:
    """The time that a line tells, if any."""
    try:
        if (dated := _DATED.search(text, 0, _HEAD)) is not None:
            return _zoned(datetime.fromisoformat(dated[0]), now).timestamp()
        if (klog := _KLOG.match(text)) is not None:
            told = _zoned(datetime.fromisoformat(f"{now.year}-{klog[1]}-{klog[2]} {klog[3]}"), now)
            # In January December was last year.
            return (told if told < now + _TOO_NEW else told.replace(year=now.year - 1)).timestamp()
    except ValueError:  # as the 30th of February
        pass
    return None


def _zoned(told: datetime, now: datetime) -> datetime:
    return told if told.tzinfo is not None else told.replace(tzinfo=now.tzinfo)
