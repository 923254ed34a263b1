"""Running a user's command."""

import asyncio
import errno
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.weftd import eventually
from weft.daemon.backends.extension.commands import run
from weft.desired.backends.extension import Command


def shell(text: str) -> Command:
    return Command(words=("sh", "-c", text), expands=False)


def is_there(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    return False


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_both_streams_are_returned_without_blanks_around():
    assert await run(shell("echo; echo one; echo two >&2; cat"), {}, "three") == "one\ntwo\nthree"


async def test_variables_reach_words_and_environment():
    assert await run(Command(words=("printenv", "$NAME")), {"NAME": "OTHER", "OTHER": "value"}) == "value"


@pytest.mark.parametrize(
    "words, number, says",
    [
        (("sh", "-c", "exit\t3"), errno.EIO, "ended with status 3"),
        (("/nowhere/at/all",), errno.ENOENT, "it cannot be started: No such file or directory"),
        (("$NOTHING",), errno.ENOENT, "it names no program"),
        (("/etc",), errno.EACCES, "it cannot be started: Permission denied"),
    ],
)
async def test_how_it_fails(words: tuple[str, ...], number: int, says: str):
    with pytest.raises(OSError, match=re.escape(says)) as raised:
        await run(Command(words=words), {})
    assert raised.value.errno == number


async def test_what_one_that_fails_has_printed_is_told_on_demand_alone(caplog: pytest.LogCaptureFixture):
    """It may hold credentials."""
    caplog.set_level("DEBUG")
    says = r"^\[Errno 5\] ended with status 1; it printed 60004 bytes, which `weftd -v=1` shows$"
    with pytest.raises(OSError, match=says):
        await run(shell("head -c 90000 /dev/zero | tr '\\0' y | head -c 60000; echo ' no'; exit 1"), {})
    assert re.search("y{497} no$", caplog.text, re.MULTILINE)
    with pytest.raises(OSError, match="ended with signal 9"):
        await run(shell("kill -9 $$"), {})


async def test_one_that_takes_too_long_is_killed_with_all_that_it_has_started(tmp_path: Path):
    child = tmp_path / "child"
    with pytest.raises(OSError, match=r"killed after 0\.5 s; it printed 6 bytes") as raised:
        await run(shell(f"echo begun; sleep 100 & echo $! >{child}; wait"), {}, limit=0.5)
    assert raised.value.errno == errno.ETIMEDOUT
    pid = int(child.read_text())
    eventually(lambda: not is_there(pid))


async def test_one_that_leaves_a_process_running_is_not_waited_for():
    pid = int(await run(shell("sleep 100 & echo $!"), {}))
    assert is_there(pid)
    os.kill(pid, 9)


async def test_input_that_it_does_not_read_is_no_fault():
    assert await run(Command(words=("true",)), {}, "x" * 1_000_000) == ""


async def test_output_beyond_what_is_kept_is_read_and_dropped():
    assert len(await run(shell("head -c 1000000 /dev/zero | tr '\\0' y"), {})) == 65536


async def test_who_stops_waiting_ends_it(tmp_path: Path):
    task = asyncio.create_task(run(shell(f"echo $$ >{tmp_path}/pid; sleep 100"), {}))
    pid = await asyncio.to_thread(eventually, lambda: written(tmp_path / "pid"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_there(int(pid))
