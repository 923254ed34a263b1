"""Policies in files: what is read of them, and when it is read again."""

import os
from contextlib import aclosing
from pathlib import Path

import pytest

from weft.cluster import policysource
from weft.cluster.policysource import Files
from weft.model.errors import ConfigError

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


def names(found):
    assert not isinstance(found, ConfigError)
    return {str(pod) for pod in found.pods}


async def test_a_file_is_read_again_when_it_changes(tmp_path):
    file = tmp_path / "world.yaml"
    write(file, POD % "web")
    async with aclosing(Files(file).changes()) as changes:
        assert names(await anext(changes)) == {"shop/web"}
        write(file, POD % "web" + "---\n" + POD % "db")
        found = await anext(changes)
        assert names(found) == {"shop/web", "shop/db"}
        assert found.written == file.stat().st_mtime


async def test_of_a_directory_all_files_of_objects_are_read(tmp_path):
    write(tmp_path / "web.yaml", POD % "web")
    write(tmp_path / "db.json", '{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "db"}}')
    write(tmp_path / "notes.txt", "kind: Pod")
    async with aclosing(Files(tmp_path).changes()) as changes:
        assert names(await anext(changes)) == {"shop/web", "default/db"}
        (tmp_path / "db.json").unlink()
        assert names(await anext(changes)) == {"shop/web"}


async def test_what_cannot_be_read_is_said_once_and_read_again_when_it_can(tmp_path):
    file = tmp_path / "world.yaml"
    async with aclosing(Files(file).changes()) as changes:
        missing = await anext(changes)
        assert isinstance(missing, ConfigError)
        assert (missing.problems[0].code, missing.problems[0].where) == ("POL-003", str(file))
        write(file, POD % "web")
        assert names(await anext(changes)) == {"shop/web"}
        write(file, "kind: Pod")
        wrong = await anext(changes)
        assert isinstance(wrong, ConfigError)
        assert wrong.problems[0].code == "POL-005"
        write(file, POD % "web")
        assert names(await anext(changes)) == {"shop/web"}
        file.unlink()
        assert isinstance(await anext(changes), ConfigError)
        write(file, POD % "web")
        assert names(await anext(changes)) == {"shop/web"}, "which may be as it was before"


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
