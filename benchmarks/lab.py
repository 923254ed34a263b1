"""A lab to measure in: real nodes, each with its own mounts, as `weft lab` makes them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WEFT = Path(sys.executable).with_name("weft")
NAME = "bench"
ROOT = Path(__file__).parents[1]


def weft(*words: str) -> str:
    """Run a command of `weft lab` and return what it printed."""
    ran = subprocess.run([WEFT, "lab", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"weft lab {' '.join(words)}: {ran.stderr}{ran.stdout}")
    return ran.stdout


@contextmanager
def lab(*options: str, name: str = NAME) -> Iterator[dict[str, Any]]:
    """A lab that is up; yields the report of `up`."""
    try:
        yield json.loads(weft("up", "--name", name, "-o", "json", *options))
    finally:
        subprocess.run([WEFT, "lab", "down", name], capture_output=True, check=False)


def inside(where: str, *command: str, name: str = NAME) -> str:
    """Run a command in a node or pod of the lab."""
    return weft("exec", "-l", name, where, "--", *command)
