"""Files of the state directory that cannot be ours: they are refused, and nothing of them stays open."""

import os
from pathlib import Path

import pytest

from weft.kernel import statefiles
from weft.kernel.statefiles import Spoilt


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_is_no_file_is_refused_and_closed(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    before = opened()
    with pytest.raises(Spoilt, match="not a regular file"):
        statefiles.read(tmp_path / "fifo", limit=9)
    assert opened() == before
