"""What does not end when it is asked: said, with what ends it."""

import asyncio
import re
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from weft.lab.inside.changes import stopping
from weft.lab.inside.processes import Child
from weft.model.errors import Unavailable

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1; done"


async def test_a_process_that_does_not_end_when_asked_ends_when_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stopping, "_PATIENCE", 0.1)
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", STUBBORN, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    ended = asyncio.ensure_future(process.wait())
    child = Child(pid=process.pid, ended=ended)
    world: Any = SimpleNamespace(lab=SimpleNamespace(option=" --lab other"))
    said = "LAB-002 node1/weftd: it has not ended 0 s after SIGTERM. 'weft lab kill --lab other node1/weftd' ends it."
    with pytest.raises(Unavailable, match=re.escape(said)):
        await stopping._end(world, child, signal.SIGTERM, "node1/weftd")
    monkeypatch.undo()
    await stopping._end(world, child, signal.SIGKILL, "node1/weftd")
    assert ended.result() == -signal.SIGKILL
    await stopping._end(world, child, signal.SIGKILL, "node1/weftd")  # and once more does nothing
