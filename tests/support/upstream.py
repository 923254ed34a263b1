"""Programs of upstream's, built from flannel's Go module into the user's cache, once, where the network can be reached.

Tests run apart from it.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

VERSION: Final = "v0.28.9"


def cache() -> Path:
    """The user's folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def place(name: str) -> Path:
    """Where a program of this version is kept."""
    return cache() / "weft" / "upstream" / VERSION / name


def keep(program: Path) -> Path:
    """Move what was built to its place, and return that."""
    kept = place(program.name)
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_suffix(".new")
    shutil.move(program, new)
    new.rename(kept)
    return kept


def source(module: str = "github.com/flannel-io/flannel", version: str = VERSION) -> Path:
    """Return the folder of a module, which is fetched if it is not there. `CalledProcessError` if it can't be."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "go.mod").write_text("module none\n")
        command = ["go", "mod", "download", "-json", f"{module}@{version}"]
        found = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True)
        return Path(json.loads(found.stdout)["Dir"])


def main(what: str, built: Callable[[], Path | None], build: Callable[[], Path]) -> int:
    """Build a program if it is not there, and say where it is."""
    if platform.machine() != "x86_64":
        print(f"{what} is built for x86-64 alone; tests with it are skipped.")
        return 0
    place("").mkdir(parents=True, exist_ok=True)
    with place(".lock").open("w") as lock:
        flock(lock, LOCK_EX)  # another checkout may be building it
        print(built() or build())
    return 0
