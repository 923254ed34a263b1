"""Policies in files: what is read of them, and when it is read again."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.store import soon
from weft.cluster import policysource
from weft.cluster.policysource import Change, Files, written_at
from weft.model.errors import ConfigError
from weft.model.policy import Pod

POD = "kind: Pod\napiVersion: v1\nmetadata: {name: %s, namespace: shop}\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policysource, "_LOOK_SECONDS", 0.001)


def write(path: Path, text: str) -> None:
    """As an editor does; long ago, so that nobody is writing it now."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)
    os.utime(path, (1e9, 1e9 + len(text)))


class Reading:
    """What files say, one word after the other."""

    def __init__(self, path: Path) -> None:
        self.files = Files(path)
        self._words: asyncio.Queue[Change | ConfigError] = asyncio.Queue()
        self._running = asyncio.ensure_future(self.files.run(self._words.put_nowait))

    async def next(self) -> Change | ConfigError:
        return await soon(self._words.get())

    async def pods(self) -> set[str]:
        """All that are known, after the next word."""
        assert isinstance(await self.next(), Change)
        return {str(each) for each in self.files.things.values() if isinstance(each, Pod)}

    def close(self) -> None:
        self._running.cancel()


def names(found):
    assert not isinstance(found, ConfigError)
    return {str(pod) for pod in found.pods}


async def test_a_file_is_read_again_when_it_changes(tmp_path):
    file = tmp_path / "world.yaml"
    write(file, POD % "web")
    with closing(Reading(file)) as reading:
        assert await reading.pods() == {"shop/web"}
        write(file, POD % "web" + "---\n" + POD % "db")
        found = await reading.next()
        assert isinstance(found, Change)
        assert [str(each) for each in found.put] == ["shop/db"]
        assert found.written == written_at(file)
        write(file, POD % "db")
        found = await reading.next()
        assert isinstance(found, Change)
        assert (found.put, found.gone) == ((), (("pod", "shop", "web"),))


async def test_when_a_file_was_written_is_one_number_for_who_writes_it_and_who_reads_it(tmp_path):
    """A lab waits for that number. `st_mtime` is another one for each seventh time, which was waited for in vain."""
    file, at = tmp_path / "world.yaml", 1795852000_000000000
    write(file, POD % "web")
    while True:
        at += 1_000_003
        os.utime(file, ns=(at, at))
        if file.stat().st_mtime > at / 1e9:
            break
    with closing(Reading(file)) as reading:
        found = await reading.next()
        assert isinstance(found, Change)
        assert found.written == written_at(file)


async def test_of_a_directory_all_files_of_objects_are_read(tmp_path):
    write(tmp_path / "web.yaml", POD % "web")
    write(tmp_path / "db.json", '{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "db"}}')
    write(tmp_path / "notes.txt", "kind: Pod")
    with closing(Reading(tmp_path)) as reading:
        assert await reading.pods() == {"shop/web", "default/db"}
        (tmp_path / "db.json").unlink()
        assert await reading.pods() == {"shop/web"}


async def test_what_cannot_be_read_is_said_once_and_read_again_when_it_can(tmp_path):
    file = tmp_path / "world.yaml"
    with closing(Reading(file)) as reading:
        missing = await reading.next()
        assert isinstance(missing, ConfigError)
        assert (missing.problems[0].code, missing.problems[0].where) == ("POL-003", str(file))
        write(file, POD % "web")
        assert await reading.pods() == {"shop/web"}
        write(file, "kind: Pod")
        wrong = await reading.next()
        assert isinstance(wrong, ConfigError)
        assert wrong.problems[0].code == "POL-005"
        write(file, POD % "web")
        assert await reading.pods() == {"shop/web"}
        file.unlink()
        assert isinstance(await reading.next(), ConfigError)
        write(file, POD % "web")
        assert await reading.pods() == {"shop/web"}, "which may be as it was before"


async def test_a_file_that_is_being_written_is_left_until_it_rests(tmp_path, monkeypatch):
    file = tmp_path / "world.yaml"
    file.write_text("")
    files = Files(file)
    assert files._look(None) is None
    os.utime(file, (1e9, 1e9))
    read = policysource.read_now

    def late(path: str, *, limit: int) -> bytes:
        file.write_text(POD % "web")
        return read(path, limit=limit)

    monkeypatch.setattr(policysource, "read_now", late)
    assert files._look(None) is None


def test_a_file_that_was_moved_away_a_moment_ago_may_be_written_again(tmp_path):
    for name in ("web", "db"):
        write(tmp_path / f"{name}.yaml", POD % name)
    files = Files(tmp_path)
    os.utime(tmp_path, (1e9, 1e9))
    before, found = files._look(None)
    assert names(found) == {"shop/web", "shop/db"}
    (tmp_path / "web.yaml").rename(tmp_path / "web.yaml~")
    assert files._look(before) is None
    os.utime(tmp_path, (1e9, 1e9))
    assert names(files._look(before)[1]) == {"shop/db"}
