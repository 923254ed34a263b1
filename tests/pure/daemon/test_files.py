"""Files are replaced whole or not at all: on a real file system, with real kills and a real full disk."""

import asyncio
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.spoiling import spoil
from tests.support.waiting import HANGS
from weft.daemon.disk import identity, memory
from weft.daemon.disk.files import Latest, load, write_atomically
from weft.daemon.disk.identity import Identity
from weft.daemon.disk.memory import Memory
from weft.daemon.world import Moment

MOMENT = Moment(unix=0.0, now=0.0, boot="")

WRITER = """
import sys
from pathlib import Path
from weft.daemon.disk.files import write_atomically
path, size = Path(sys.argv[1]), int(sys.argv[2])
print("up", flush=True)
while True:
    for letter in b"ab":
        write_atomically(path, bytes([letter]) * size, 0o644, sync=False)
"""


@pytest.fixture(name="umask", params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def _umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


@pytest.mark.spec("flannel.md §3.2/modes")
@pytest.mark.parametrize("sync", [False, True])
def test_modes_are_exact_whatever_the_umask(tmp_path, umask, sync):
    path = tmp_path / "run" / "flannel" / "subnet.env"
    write_atomically(path, b"x", 0o644, sync=sync)
    assert path.read_bytes() == b"x"
    assert [mode(each) for each in (path, path.parent, path.parent.parent)] == [0o644, 0o755, 0o755]
    write_atomically(path, b"secret", 0o600, sync=sync)
    assert mode(path) == 0o600


def test_parents_that_exist_keep_their_mode(tmp_path):
    (tmp_path / "p").mkdir(mode=0o700)
    write_atomically(tmp_path / "p" / "f", b"x", 0o644, sync=True)
    assert mode(tmp_path / "p") == 0o700


@pytest.mark.spec("flannel.md §3.2/atomic")
def test_a_reader_with_the_old_file_open_keeps_it_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "f"
    write_atomically(path, b"old", 0o644, sync=True)
    with path.open("rb") as reader:
        write_atomically(path, b"new", 0o644, sync=True)
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["f"]


@pytest.mark.spec("flannel.md §3.2/atomic")
def test_a_leftover_and_a_planted_link_are_replaced_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (tmp_path / ".f.new").symlink_to(victim)
    write_atomically(tmp_path / "f", b"x", 0o644, sync=False)
    assert victim.read_text() == "keep"
    assert not (tmp_path / "f").is_symlink()
    assert names(tmp_path) == ["f", "victim"]


@pytest.mark.spec("flannel.md §3.2/atomic")
def test_a_disk_that_is_full_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "f"
    write_atomically(path, b"old", 0o644, sync=True)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(path, b"n" * 1000, 0o644, sync=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_a_parent_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "p").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        write_atomically(tmp_path / "p" / "q" / "f", b"x", 0o644, sync=False)


@pytest.mark.spec("flannel.md §3.2/atomic")
def test_readers_and_kill_9_never_see_half_a_file(tmp_path):
    path = tmp_path / "f"
    size = 1 << 20
    whole = {b"a" * size, b"b" * size}
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(size)], stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            until = time.monotonic() + 0.15
            while time.monotonic() < until or not path.exists():
                if path.exists():
                    assert path.read_bytes() in whole
            writer.kill()
        assert path.read_bytes() in whole
    write_atomically(path, b"x", 0o644, sync=True)
    assert names(tmp_path) == ["f"]


async def test_the_newest_content_stays_however_many_write_at_once(tmp_path: Path):
    now = 0
    newest_seen = 0

    def content() -> bytes:
        nonlocal newest_seen
        seen = now
        time.sleep(0.002 if seen % 2 else 0)  # some are slow
        assert seen >= newest_seen
        newest_seen = seen
        return str(seen).encode()

    file = Latest(tmp_path / "f", content, mode=0o600)
    async with asyncio.TaskGroup() as tasks:
        for now in range(1, 41):  # noqa: B007  it is what `content` reads
            tasks.create_task(file.write())
            await asyncio.sleep(0)
    assert (tmp_path / "f").read_text() == "40"


async def test_the_event_loop_turns_while_content_is_made_and_synced(tmp_path: Path):
    asked, turned = threading.Event(), threading.Event()

    def content() -> bytes:
        asked.set()
        assert turned.wait(5), "the loop stood still"
        return b"x"

    writing = asyncio.create_task(Latest(tmp_path / "f", content, mode=0o600).write())
    assert await asyncio.to_thread(asked.wait, 5)
    turned.set()
    await writing
    assert (tmp_path / "f").read_bytes() == b"x"


async def test_a_writer_that_is_cancelled_hands_over_to_the_next(tmp_path: Path):
    texts = iter([b"old", b"new"])
    slow = threading.Event()

    def content() -> bytes:
        slow.wait(0.05)
        return next(texts)

    file = Latest(tmp_path / "f", content, mode=0o600)
    writing = asyncio.create_task(file.write())
    await asyncio.sleep(0.01)
    writing.cancel()
    file.write_now()
    assert (tmp_path / "f").read_bytes() == b"new"


@pytest.fixture(name="synced")
def _synced(monkeypatch) -> list[str]:
    """What is forced to disk, and what gets another name, in their order."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def watched_replace(path: Path, target: Path) -> Path:
        done.append(f"rename {path.name} {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    return done


def test_what_must_outlive_a_power_cut_is_on_the_disk_before_and_after_it_gets_its_name(tmp_path, synced):
    write_atomically(tmp_path / "new" / "f", b"x", 0o600, sync=True)
    assert synced == [f"fsync {tmp_path.name}", "fsync .f.new", "rename .f.new f", "fsync new"]


@pytest.mark.parametrize("name", ["identity.json", "cluster.jsonl", "subnet.env"])
async def test_each_file_that_outlives_a_boot_is_synced(tmp_path, synced, name):
    files = {
        "identity.json": lambda: identity.file(tmp_path, Identity.random(os.urandom)),
        "cluster.jsonl": lambda: memory.file(tmp_path, lambda: Memory(net_conf="{}"), lambda: MOMENT),
        "subnet.env": lambda: Latest(tmp_path / "subnet.env", lambda: b"", mode=0o644),
    }
    assert await files[name]().attempt()
    assert synced == [f"fsync .{name}.new", f"rename .{name}.new {name}", f"fsync {tmp_path.name}"]


def test_a_directory_in_the_place_of_the_temporary_file_is_set_aside(tmp_path):
    (tmp_path / ".f.new" / "content").mkdir(parents=True)
    write_atomically(tmp_path / "f", b"x", 0o600, sync=False)
    assert names(tmp_path) == [".f.new.spoilt-1", "f"]


async def test_a_file_that_cannot_be_written_is_said_once_and_tried_until_it_can(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("weft.daemon.disk.files._RETRY_SECONDS", 0.01)
    caplog.set_level("INFO")
    (tmp_path / "f").mkdir()
    trying = asyncio.create_task(Latest(tmp_path / "f", lambda: b"x", mode=0o600).keep_trying())
    async with asyncio.timeout(HANGS):
        while not caplog.messages:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        (tmp_path / "f").rmdir()
        await trying
    assert (tmp_path / "f").read_bytes() == b"x"
    cannot, can = caplog.messages
    assert cannot.startswith(f"STATE-002 {tmp_path / 'f'}: cannot be written: Is a directory")
    assert can == f"STATE-002 {tmp_path / 'f'} is written again"


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), OverflowError("inf"), KeyError("x")])
def test_whatever_a_parser_raises_costs_the_file_alone(tmp_path, caplog, error):
    (tmp_path / "f").write_text("x")

    def parse(_: bytes) -> None:
        raise error

    assert load(tmp_path / "f", parse, limit=9, aside=False) is None
    assert names(tmp_path) == ["f"]
    assert load(tmp_path / "f", parse, limit=9) is None
    assert names(tmp_path) == ["f.spoilt-1"]
    assert caplog.text.count("STATE-001") == 2


def test_a_shortage_says_nothing_of_a_file(tmp_path, caplog):
    (tmp_path / "f").write_text("x")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        assert load(tmp_path / "f", bytes, limit=9) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "Too many open files" in caplog.text
    assert load(tmp_path / "f", bytes, limit=9) == b"x"


def test_what_is_set_aside_is_bounded_and_the_latest_is_kept(tmp_path):
    for number in range(20):
        spoil(tmp_path / "f", ("directory", "random", "fifo")[number % 3])
        assert load(tmp_path / "f", str.encode, limit=1 << 16) is None
        assert f"f.spoilt-{number + 1}" in names(tmp_path)
    assert len(names(tmp_path)) == 8
