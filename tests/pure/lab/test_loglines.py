"""The times that lines of logs tell, and the order of several logs."""

from datetime import datetime, timedelta, timezone

import pytest

from weft.lab.commands.using import loglines
from weft.lab.commands.using.loglines import Line, merged, start_of

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=ZONE)


def utc(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    "text, time",
    [
        ("2026-01-02T03:04:05.678Z INFO node: x", "2026-01-02T03:04:05.678"),
        ('{"level":"info","ts":"2026-01-02T03:04:05.678Z"}', "2026-01-02T03:04:05.678"),
        ('{"level":"info","ts":"2026-01-02T05:04:05.678+0200"}', "2026-01-02T03:04:05.678"),
        ("2026-01-02 05:04:05.678901 I | etcdmain: in local time", "2026-01-02T03:04:05.678901"),
        ('time="2026-01-02T03:04:05Z" level=info', "2026-01-02T03:04:05"),
        ('time="2026-01-02T03:04:05.123456789Z" level=info', "2026-01-02T03:04:05.123456"),
        ("I0102 05:04:05.678901   12 server.go:1] local", "2026-01-02T03:04:05.678901"),
        ("E1231 23:59:59.000000   12 server.go:1] of last year", "2025-12-31T21:59:59"),
        ("2026-02-30T03:04:05Z is no day", ""),
        ("E0230 23:59:59.000000 is none either", ""),
        ("Traceback (most recent call last):", ""),
        ("x" * 200 + "2026-01-02T03:04:05Z", ""),
    ],
)
def test_the_time_of_a_line(text, time):
    [line] = loglines.lines("node1", [text], now=NOW)
    assert line == Line(name="node1", time=utc(time) if time else None, line=text)


def test_a_line_without_a_time_belongs_to_the_one_before():
    texts = ["first", "2026-01-02T03:04:05Z a", "  Traceback", "2026-01-02T03:04:06Z b"]
    known = loglines.lines("x", texts, now=NOW)
    seconds = utc("2026-01-02T03:04:05")
    assert [line.time for line in known] == [None, seconds, seconds, seconds + 1]
    [more] = loglines.lines("x", ["  more"], now=NOW, last=known[-1].time)
    assert more.time == seconds + 1


def log(name: str, *times: float | None) -> list[Line]:
    return [Line(name=name, time=time, line=f"{name}{number}") for number, time in enumerate(times)]


@pytest.mark.parametrize(
    "since, tail, found",
    [
        (None, None, ["b0", "a0", "a1", "b1", "a2", "b2"]),
        (2.0, None, ["a0", "a1", "b1", "a2", "b2"]),
        (3.0, None, ["a2", "b2"]),
        (None, 2, ["a2", "b2"]),
        (None, 0, []),
        (2.0, 99, ["a0", "a1", "b1", "a2", "b2"]),
        (99.0, 3, []),
    ],
)
def test_several_logs_are_one_by_time(since, tail, found):
    logs = [log("a", 2.0, 2.0, 3.0), log("b", None, 2.0, 4.0)]
    assert [line.line for line in merged(logs, since=since, tail=tail)] == found


@pytest.mark.parametrize(
    "text, time",
    [
        ("90s", "2026-01-02T09:58:30"),
        ("5m", "2026-01-02T09:55:00"),
        ("1h 30min", "2026-01-02T08:30:00"),
        ("11:30", "2026-01-02T09:30:00"),
        ("11:30:15", "2026-01-02T09:30:15"),
        ("2026-01-01", "2025-12-31T22:00:00"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05"),
        ("2026-01-02 05:04", "2026-01-02T03:04:00"),
    ],
)
def test_a_start(text, time):
    assert start_of(text, NOW) == utc(time)


@pytest.mark.parametrize("text", ["", "yesterday", "5", "25:00", "2026-13-01"])
def test_what_is_no_start(text):
    with pytest.raises(ValueError, match="expected for example 90s, 5min, 14:30"):
        start_of(text, NOW)
