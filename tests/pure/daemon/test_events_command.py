"""Events, as people read them."""

import time

import pytest

from weft import cli
from weft.daemon.commands.events import recent
from weft.model.node.history import Event, EventsSince
from weft.screen.eventlines import line

EVENT = Event(number=1, time=1e9, kind="repaired", subject="link flannel.1")
TOLD = EventsSince(
    unix=100.0, last=9, events=[Event(number=each, time=each * 10, kind="left", subject="") for each in range(10)]
)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "more, said",
    [
        ({}, "link flannel.1"),
        (
            {"code": "VTEP-003", "words": "put back", "was": "mtu 1400", "now": "mtu 1450"},
            "VTEP-003 link flannel.1: put back; was mtu 1400, now mtu 1450",
        ),
        ({"was": "gone"}, "link flannel.1: was gone"),
        ({"was": "gone", "by": "nft (pid 7)"}, "link flannel.1: was gone; removed by nft (pid 7)"),
        ({"was": "gone", "by": "perhaps ip (pid 7)"}, "link flannel.1: was gone; perhaps removed by ip (pid 7)"),
        ({"was": "a", "by": "perhaps ip (pid 7)"}, "link flannel.1: was a; perhaps changed by ip (pid 7)"),
        ({"words": "removed", "by": "ip (pid 7)"}, "link flannel.1: removed; put there by ip (pid 7)"),
    ],
)
def test_an_event_on_one_line(more, said):
    event = Event(number=1, time=1e9, kind="repaired", subject="link flannel.1", **more)
    assert line(event) == f"2001-09-09 01:46:40  repaired        {said}"


@pytest.mark.parametrize(
    "newest, since, numbers",
    [
        (None, None, list(range(10))),
        (2, None, [8, 9]),
        (0, None, []),
        (None, 20.0, [8, 9]),
        (1, 20.0, [9]),
        (99, 20.0, [8, 9]),
    ],
)
def test_the_newest_and_the_latest(newest, since, numbers):
    assert [event.number for event in recent(TOLD, newest=newest, since=since)] == numbers


@pytest.mark.parametrize("text", ["", "5", "h", "5 h x", "-5s"])
def test_what_is_no_time_is_refused(capsys, text):
    assert cli.run(["events", f"--since={text}"]) == 2
    assert "FLAG-001 weft events: " in capsys.readouterr().err
