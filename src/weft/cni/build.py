"""Builds the CNI client from its source beside this file: `python -m weft.cni.build`.

The program goes to `bin/`, which wheels carry and git does not. musl's compiler (Debian's `musl-tools`) makes a static
program of under 50 KB that runs on any distribution; without it there is no client, and `install` says so.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_SOURCE: Final = _HERE / "client"
_PROGRAM: Final = _HERE / "bin" / "weft-cni"
HINT: Final = "apt-get install musl-tools make; python -m weft.cni.build"


def client() -> Path | None:
    """Return the built program, None if there is none."""
    return _PROGRAM if _PROGRAM.is_file() else None


def build() -> Path | None:
    """Build the program if its source is newer; None without a compiler. `CalledProcessError` if it fails."""
    if shutil.which("musl-gcc") is None or shutil.which("make") is None:
        return None
    _PROGRAM.parent.mkdir(exist_ok=True)
    subprocess.run(["make", "--silent", "-C", str(_SOURCE), f"OUT={_PROGRAM}"], check=True)
    return _PROGRAM


def main() -> int:
    """Build, and say what came of it."""
    built = build()
    if built is None:
        print(f"No musl-gcc or no make here, so there is no CNI client. On Debian: {HINT}")  # noqa: T201
        return 0
    print(f"{built}: {built.stat().st_size} bytes")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
