"""The log waits for nobody: what is not taken, or is too much of one kind, is counted and said later."""

import contextlib
import json
import logging
import os
import re
import select
import sys
import threading
import time

import pytest

from weft.daemon.process import logs
from weft.daemon.process.logs import JournalFormatter, JsonFormatter, LineFormatter, Queue


class Pipe:
    """A log that goes into a pipe, and the end that a reader has."""

    def __init__(self) -> None:
        self.now = 0.0
        self._reading, writing = os.pipe()
        self.queue = Queue(writing, lines=LineFormatter(), clock=lambda: self.now)
        self.log = logging.Logger("weft.test")  # noqa: LOG001 - apart from the tree of loggers
        self.log.addHandler(self.queue)
        self._text = ""

    def stop_up(self) -> None:
        """Fill the pipe, and wait until the queue's thread has a line that it cannot write."""
        writing = self.queue._descriptor
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"\n" * 4096)
        os.set_blocking(writing, True)
        self.log.debug("the line that waits")
        deadline = time.monotonic() + 10
        while self.queue._lines:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def until(self, words: str) -> str:
        """Read until these words come; returns all that came so far."""
        deadline = time.monotonic() + 10
        while words not in self._text:
            assert time.monotonic() < deadline, self._text[-500:]
            self.more()
        return self._text

    def more(self) -> None:
        """Read what there is, without waiting for long."""
        if select.select((self._reading,), (), (), 0.1)[0]:
            self._text += os.read(self._reading, 65536).decode()


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def test_lines_come_out_whole_and_in_order(pipe: Pipe):
    for number in range(50):
        pipe.log.info("line %d", number)
    lines = pipe.until("line 49\n").splitlines()
    assert [line.partition("INFO test: ")[2] for line in lines] == [f"line {number}" for number in range(50)]


def test_a_log_that_nobody_takes_stops_nobody_and_says_afterwards_what_is_missing(pipe: Pipe):
    def talk() -> None:
        for number in range(3000):
            pipe.log.debug("%d %s", number, "x" * 1000)

    talking = threading.Thread(target=talk, daemon=True)
    talking.start()
    talking.join(20)
    assert not talking.is_alive()
    said: list[int] = []
    dropped = 0
    while len(said) + dropped < 3000:
        text = pipe.until("of the log dropped here: nothing took them\n")
        said = [int(found) for found in re.findall(r"test: ([0-9]+) x{1000}\n", text)]
        dropped = sum(int(found) for found in re.findall(r"WARN logs: ([0-9]+) lines? of the log dropped", text))
        pipe.more()
    assert said == sorted(said)
    assert dropped > 2000
    pipe.log.info("and on it goes")
    pipe.until("and on it goes\n")


def test_after_a_dropped_line_none_comes_before_that_is_said(pipe: Pipe):
    pipe.stop_up()
    while not pipe.queue._dropped:
        pipe.log.debug("%s", "x" * 1000)
    pipe.log.debug("a short one, for which there is room")
    text = pipe.until("of the log dropped here: nothing took them\n")
    assert "a short one" not in text
    assert " 2 lines of the log dropped" in text


def test_the_end_waits_for_what_is_left_but_not_for_a_reader_that_does_not_come(pipe: Pipe):
    start = time.monotonic()
    for _ in range(200):
        pipe.log.debug("%s", "x" * 1000)
    pipe.queue.flush()
    assert time.monotonic() - start > 0.5
    pipe.until("x\n")
    pipe.queue.flush()


def test_one_place_that_says_too_much_is_cut_short_and_that_is_said(pipe: Pipe):
    for number in range(1300):
        pipe.log.warning("kind of line %d", number)
    pipe.log.warning("another place is heard")
    text = pipe.until("another place is heard\n")
    assert text.count("kind of line") == 1000
    pipe.now = 1.0
    assert "WARN test: and 300 more like that, left out\n" in pipe.until("left out\n")
    pipe.now = 3.0
    pipe.log.warning("kind of line once more")
    assert pipe.until("once more\n").count("left out") == 1


def test_what_was_left_out_is_said_before_the_next_of_its_kind(pipe: Pipe):
    def say(number: int) -> None:
        pipe.log.warning("kind of line %d", number)

    for number in range(1010):
        say(number)
    pipe.now = 0.6  # a little more than one line's worth
    say(1010)
    assert pipe.until("line 1010\n").splitlines()[-2].endswith("and 10 more like that, left out")


def test_a_descriptor_that_others_made_non_blocking_is_waited_for(pipe: Pipe):
    os.set_blocking(pipe.queue._descriptor, False)
    for number in range(200):
        pipe.log.debug("%03d%s", number, "x" * 1000)
    assert "199x" in pipe.until("199x")


def test_a_reader_that_is_gone_harms_nobody(pipe: Pipe):
    os.close(pipe._reading)
    pipe.log.info("into nothing")
    pipe.queue.flush()
    pipe.log.info("again")


def record(level: int, text: str, *, fault: bool = False) -> logging.LogRecord:
    try:
        if fault:
            raise ValueError("odd\x07")
        trace = None
    except ValueError:
        trace = sys.exc_info()
    made = logging.LogRecord("weft.daemon.reconcile", level, "", 0, text, None, trace)
    made.created, made.msecs = 1_767_323_045.678, 678
    return made


def test_json_is_an_object_a_line_whatever_is_in_it():
    text = JsonFormatter().format(record(logging.WARNING, 'put "back"\n\x1b[1m: ROUTE-001 x'))
    assert json.loads(text) == {
        "time": "2026-01-02T03:04:05.678Z",
        "level": "WARN",
        "part": "reconcile",
        "code": "ROUTE-001",
        "message": 'put "back"\n\x1b[1m: ROUTE-001 x',
    }
    assert "\n" not in text
    told = json.loads(JsonFormatter().format(record(logging.CRITICAL, "no code", fault=True)))
    assert told["message"] == "no code"
    assert "code" not in told
    assert "code" not in json.loads(JsonFormatter().format(record(logging.INFO, "TLS with AES-256 to etcd")))
    assert told["trace"][-1] == "ValueError: odd\\x07"


@pytest.mark.parametrize(
    "level, priority",
    [
        (logging.CRITICAL, 2),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
        (logging.DEBUG, 7),
    ],
)
def test_the_journal_gets_a_priority_before_each_line(level, priority):
    lines = JournalFormatter(LineFormatter()).format(record(level, "x", fault=True)).split("\n")
    assert len(lines) > 2
    assert {line[:3] for line in lines} == {f"<{priority}>"}
    assert lines[0].endswith(" reconcile: x")


@pytest.mark.parametrize("form", ["text", "json"])
def test_priorities_go_to_the_journal_alone(form, monkeypatch, tmp_path):
    monkeypatch.setattr(logging, "basicConfig", lambda **given: handlers.append(given["handlers"][0]))
    handlers: list[Queue] = []
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        there = os.fstat(stderr.fileno())
        for journal in ("", f"{there.st_dev}:{there.st_ino + 1}", f"{there.st_dev}:{there.st_ino}"):
            logs.set_up(0, form, journal)
    lines = [handler.format(record(logging.INFO, "x")) for handler in handlers]
    assert lines[0] == lines[1]
    assert lines[2] == f"<6>{lines[0]}"
    assert lines[0].startswith("{" if form == "json" else "2026")
