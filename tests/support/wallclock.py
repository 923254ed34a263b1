"""A wall clock for daemons of a test, to be set: the machine's own is everybody's."""

from pathlib import Path
from typing import Final

# What a daemon reads at each look at its clock: from a descriptor that it holds, for it may have no other left.
_SITE: Final = """
import os, time
real, ahead = time.time, os.open({path!r}, os.O_RDONLY)
time.time = lambda: real() + float(os.pread(ahead, 32, 0))
"""


class WallClock:
    """Give `env` to the daemon."""

    def __init__(self, folder: Path) -> None:
        self._ahead = folder / "ahead"
        self._ahead.touch()
        (folder / "sitecustomize.py").write_text(_SITE.format(path=str(self._ahead)))
        self.env = {"PYTHONPATH": str(folder)}
        self.set(0)

    def set(self, hours: float) -> None:
        """Have it go so many hours ahead of the machine's."""
        with self._ahead.open("r+b", buffering=0) as file:  # in one write over the old: it is read at any moment
            file.write(b"%-32d" % (3600 * hours))
