"""A program that keeps changing subnet.env gets its way less and less contested, and the node says so."""

import asyncio
import errno
import logging
from pathlib import Path

from tests.support.waiting import comes
from weft.daemon.disk import subnetfile
from weft.daemon.disk.subnetfile import SubnetFile
from weft.plan.backoff import BURST, PAUSE


async def test_a_program_that_keeps_changing_the_file_is_fought_less_and_less_and_named(
    tmp_path: Path, monkeypatch, caplog
):
    monkeypatch.setattr(subnetfile, "_LOOK_SECONDS", 0.001)
    path = tmp_path / "subnet.env"
    now = 0.0
    file = SubnetFile(path, lambda: b"ours", clock=lambda: now)
    await file.write()
    task = asyncio.create_task(file.keep())

    with caplog.at_level(logging.WARNING):
        for _ in range(BURST):
            path.write_bytes(b"theirs")
            await comes(lambda: path.read_bytes() == b"ours" and file.problem is None)
        path.unlink()
        await comes(lambda: file.problem is not None)
        assert str(file.problem).startswith(
            f"LEASE-001 {path}: another program keeps changing it; now it was deleted; expected one program"
        )
        assert not path.exists()
        now = PAUSE
        await comes(lambda: path.exists() and file.problem is None)
    assert caplog.text.count("put back") == BURST + 1
    assert caplog.text.count("putting it back less often") == 1
    task.cancel()
    await asyncio.wait((task,))


async def test_a_file_that_cannot_be_written_is_a_problem_until_it_is_and_said_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(subnetfile, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(subnetfile, "_RETRY_SECONDS", 0.02)
    content, full, tries = b"before", False, 0

    def write(*arguments, **named) -> None:
        nonlocal tries
        tries += 1
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        really(*arguments, **named)

    really = subnetfile.write_atomically
    monkeypatch.setattr(subnetfile, "write_atomically", write)
    path = tmp_path / "subnet.env"
    file = SubnetFile(path, lambda: content, clock=lambda: 0.0)
    await file.write()
    keeper = asyncio.create_task(file.keep())

    content, full = b"after", True
    file.renew()
    await comes(lambda: file.problem)
    seen = []
    await comes(lambda: seen.append(file.problem) or tries > 5)
    assert all(seen), "ready while the file says what was"
    assert caplog.text.count("cannot be written") == 1
    full = False
    await comes(lambda: path.read_bytes() == b"after" and file.problem is None)
    assert "put back" not in caplog.text
    keeper.cancel()
    await asyncio.wait((keeper,))
