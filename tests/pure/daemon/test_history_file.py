"""The history on disk: what is restored, what is set aside, and when it is written."""

import asyncio
from pathlib import Path

import pytest

from tests.support.waiting import comes
from weft.daemon.disk import history as disk
from weft.model.node.history import MOST, Event, History

GOOD = b'{"number":1,"time":1.0,"kind":"left","subject":"a"}\n{"number":4,"time":1.0,"kind":"new","subject":"b"}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def test_what_was_written_is_read(tmp_path):
    history = History()
    history.note("joined", "a", words="…")
    disk.file(tmp_path, lambda: history.events).write_now()
    assert disk.load(tmp_path) == list(history.events)


def test_of_a_file_with_too_many_the_newest_are_read(tmp_path, path):
    lines = (GOOD.splitlines()[0].replace(b":1,", b":%d," % number, 1) for number in range(1, MOST + 3))
    path.write_bytes(b"\n".join(lines))
    assert [event.number for event in disk.load(tmp_path)] == list(range(3, MOST + 3))


def test_of_a_run_in_which_nothing_happened_nothing_is_read(tmp_path, path, caplog):
    disk.file(tmp_path, tuple).write_now()
    assert path.read_bytes() == b""
    assert disk.load(tmp_path) == []
    assert not caplog.text


def test_without_a_file_there_is_none(tmp_path):
    assert disk.load(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    [GOOD[:-9], b"{}", b"\xff", b"[1]", GOOD + GOOD, GOOD.replace(b":1,", b":0,", 1), b"\0" * 99, b"x" * (5 << 20)],
)
def test_what_is_torn_or_not_ours_is_set_aside(tmp_path, path, content, caplog):
    path.write_bytes(content)
    assert disk.load(tmp_path) == []
    assert "STATE-001" in caplog.text
    assert (tmp_path / "history.jsonl.spoilt-1").read_bytes() == content


async def run(history: History, directory: Path) -> None:
    part = asyncio.create_task(disk.keep(history, directory))
    await comes(lambda: history.restored)
    await asyncio.sleep(0)  # it has begun, where nothing was to be restored
    part.cancel()
    await asyncio.wait((part,))


async def test_it_is_restored_and_written_at_the_end(tmp_path, path):
    path.write_bytes(GOOD)
    history = History()
    await run(history, tmp_path)
    assert [event.number for event in history.events] == [1, 4]
    history.note("joined", "c")
    await run(history, tmp_path)
    assert [event.subject for event in disk.load(tmp_path)] == ["a", "b", "c"]
    assert history.last == 5


async def test_it_is_written_some_time_after_an_event_and_not_again_without_one(tmp_path, path, monkeypatch):
    monkeypatch.setattr(disk, "_SAVE_SECONDS", 0.01)
    history = History()
    part = asyncio.create_task(disk.keep(history, tmp_path))
    await asyncio.sleep(0.1)
    assert not path.exists()
    history.note("joined", "a")
    await comes(lambda: len(disk.load(tmp_path)) == 1)
    path.unlink()
    await asyncio.sleep(0.1)
    assert not path.exists()
    part.cancel()
    await asyncio.wait((part,))
    assert path.exists()


async def test_an_event_that_came_before_the_file_was_read_is_kept(tmp_path, path):
    path.write_bytes(GOOD)
    history = History()
    history.note("joined", "early")
    await run(history, tmp_path)
    assert [(event.number, event.subject) for event in history.events] == [(1, "a"), (4, "b"), (5, "early")]
    assert isinstance(history.events[0], Event)


def test_a_history_of_the_longest_texts_is_read_again(tmp_path):
    history = History()
    long = "\U0001f9f6" * 999  # four bytes each, and printable
    for _ in range(MOST):
        history.note("changed", long, code="ADDR-002", words=long, was=long, now=long)
    disk.file(tmp_path, lambda: history.events).write_now()
    assert disk.load(tmp_path) == list(history.events)
