"""A program that keeps changing subnet.env gets its way less and less contested, and the node says so."""

import asyncio
import logging
from pathlib import Path

from tests.support.waiting import comes
from weft.daemon import subnetfile
from weft.daemon.subnetfile import SubnetFile
from weft.plan.fuse import BURST, PAUSE


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
