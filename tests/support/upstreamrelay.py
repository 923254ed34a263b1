"""Upstream's own relay, compiled from flannel's Go module: what ours works with, and what it is measured against.

`python -m tests.support.upstreamrelay` builds it into the user's cache, once, where the network can be reached: tests
run apart from it.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "v0.28.9"
HINT: Final = "python -m tests.support.upstreamrelay"
_SOURCE: Final = Path(__file__).with_suffix(".c")


def _place() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "weft" / "upstream" / f"relay-{VERSION}"


def built() -> Path | None:
    """Return the program, None if it was not built."""
    place = _place()
    return place if place.exists() and place.stat().st_mtime >= _SOURCE.stat().st_mtime else None


def build() -> Path:
    """Build the program. `CalledProcessError` if that fails."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "go.mod").write_text("module none\n")
        command = ["go", "mod", "download", "-json", f"github.com/flannel-io/flannel@{VERSION}"]
        found = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True)
        source = Path(json.loads(found.stdout)["Dir"], "pkg", "backend", "udp")
        program = Path(directory, "relay")
        subprocess.run(["gcc", "-O2", "-w", f"-I{source}", "-o", program, _SOURCE], check=True)
        place = _place()
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(program, place)
    return place


def main() -> int:
    """Build the program if it is not there."""
    if platform.machine() != "x86_64":
        print("Upstream's relay is for x86-64 alone; tests with it are skipped.")
        return 0
    print(built() or build())
    return 0


if __name__ == "__main__":
    sys.exit(main())
