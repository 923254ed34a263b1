"""Small files of others: regular, not too long, and never waited for."""

import errno
import os
import socket
from pathlib import Path

import pytest

from weft.beside.files import read_now, read_small, why


async def test_a_regular_file_and_a_link_to_one_are_read(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")  # as kubelet mounts what it renews
    assert await read_small(tmp_path / "link") == read_now(str(tmp_path / "file")) == b"content"


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "device", "missing", "long"])
async def test_what_is_none_is_refused_at_once_and_named(tmp_path: Path, kind: str):
    path = tmp_path / "x"
    held = socket.socket(socket.AF_UNIX)
    words, number = "not a regular file", errno.EINVAL
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        held.bind(str(path))
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "long":
        path.write_bytes(b"x" * 11)
        words, number = "larger than 10 bytes", errno.EFBIG
    else:
        words, number = "No such file or directory", errno.ENOENT
    with held, pytest.raises(OSError, match=words) as raised:
        await read_small(path, limit=10, seconds=60)
    assert (why(raised.value), raised.value.errno) == (words, number)
