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

from weft.daemon.files import Latest, write_atomically

WRITER = """
import sys
from pathlib import Path
from weft.daemon.files import write_atomically
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
