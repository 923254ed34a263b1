"""Files that hang, as on NFS whose server is gone: who reads them says so in time, and the end is not waited for."""

import os
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from tests.support.hungdisk import hung
from tests.support.waiting import HANGS, in_time
from weft.beside.files import read_small
from weft.cluster.etcd.access import Access as EtcdAccess
from weft.cluster.etcd.client import Client as EtcdClient
from weft.cluster.kube.access import Access, Pem, Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.credentials import TokenFile
from weft.model.errors import Unavailable
from weft.model.value import Secret, replace

QUICK = Timing(connect=0.3, call=0.3)


async def test_a_file_on_a_dead_disk_is_a_time_limit(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with hung(tmp_path):
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
                await read_small(tmp_path / "file", seconds=0.2)
    assert await read_small(tmp_path / "file") == b"x"


@pytest.mark.parametrize("which", ["token", "ca", "etcd"])
async def test_a_store_whose_file_hangs_is_away(tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("weft.beside.files.SECONDS", 0.3)
    file = tmp_path / "file"
    file.write_text("x")
    if which == "etcd":
        access = EtcdAccess(endpoints=("https://127.0.0.1:1",), ca_file=str(file))
        client = EtcdClient(replace(access, timing=replace(access.timing, connect=0.3)))
        ask = client._connected([])
    else:
        held = Pem(file=str(file), where="ca") if which == "ca" else Pem()
        credentials = TokenFile(file) if which == "token" else TokenFile(Path("/proc/self/cmdline"))
        kube = Client(Access(url="https://127.0.0.1:1", ca=held, credentials=credentials, timing=QUICK))
        ask = kube._context() if which == "ca" else credentials.token()
    with hung(tmp_path):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer within"):
            await ask
        assert in_time(began, 20)


@pytest.mark.parametrize("how", ["hangs", "is a FIFO", "is gone", "says nonsense"])
async def test_a_token_serves_until_the_api_refuses_it_while_its_file_cannot_be_read(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("weft.beside.files.read_small.__kwdefaults__", {"limit": 100, "seconds": 0.2})
    monkeypatch.setattr("weft.cluster.kube.credentials._FRESH_SECONDS", 0.0)
    file = tmp_path / "token"
    file.write_text("x")
    credentials = TokenFile(file)
    assert await credentials.token() == Secret("x")
    if how != "hangs":
        file.unlink()
    if how == "is a FIFO":
        os.mkfifo(file)
    if how == "says nonsense":
        file.write_bytes(b"\xff\0")
    with hung(tmp_path) if how == "hangs" else nullcontext():
        assert await credentials.token() == Secret("x")
        credentials.refused()
        # Only what is wrong with the file itself is for an operator to mend.
        with pytest.raises(Unavailable, match="STORE-001" if how == "hangs" else "STORE-002"):
            await credentials.token()
    file.unlink(missing_ok=True)
    file.write_text("y")
    assert await credentials.token() == Secret("y")


def test_a_program_with_a_file_that_hangs_ends_at_once_when_it_is_told_to(tmp_path: Path):
    """As asyncio's own threads do not: the end of the program waits for each."""
    file = tmp_path / "token"
    file.write_text("x")
    text = f"""
import asyncio, sys
from weft.beside.files import read_small
async def main():
    reading = asyncio.ensure_future(read_small({str(file)!r}, seconds=600))
    await asyncio.sleep(0.3)
    print("reads", flush=True)
    reading.cancel()
asyncio.run(main())
"""
    with hung(tmp_path):
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"reads\n"
        with suppress(subprocess.TimeoutExpired):
            process.wait(HANGS)
        process.stdout.close()
        ended = process.poll()
        if ended is None:
            process.kill()
        process.wait()
    assert ended == 0
