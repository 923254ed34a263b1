"""Upstream's own relay, compiled from flannel's Go module: what ours works with, and what it is measured against."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support import upstream

HINT: Final = "python -m tests.support.relay.upstreamrelay"
_SOURCE: Final = Path(__file__).with_suffix(".c")
_NAME: Final = "relay"


def built() -> Path | None:
    """Return the program, None if it was not built."""
    place = upstream.place(_NAME)
    return place if place.exists() and place.stat().st_mtime >= _SOURCE.stat().st_mtime else None


def build() -> Path:
    """Build the program. `CalledProcessError` if that fails."""
    source = upstream.source() / "pkg" / "backend" / "udp"
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, _NAME)
        subprocess.run(["gcc", "-O2", "-w", f"-I{source}", "-o", program, _SOURCE], check=True)
        return upstream.keep(program)


if __name__ == "__main__":
    sys.exit(upstream.main("Upstream's relay", built, build))
