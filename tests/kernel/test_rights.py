"""The right to load modules: one thread has it, and what that thread starts, until it is given away."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# CAP_KILL stands for CAP_SYS_MODULE, which this machine may not have; /dev/null for the filter of bridges.
SCRIPT = """
import asyncio, json, subprocess, sys, time
from pathlib import Path
from weft.daemon.process import rights

def held(path):
    words = dict(line.split(":", 1) for line in Path(path).read_text().splitlines() if line.startswith("Cap"))
    return [int(words[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd")]

def threads():
    found = []
    for path in Path("/proc/self/task").glob("*/status"):
        try:
            found.append(held(path))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return found

def left(most):
    # The kernel lists a thread for a moment after Python has done with it.
    until = time.monotonic() + 10
    while len(held_by_all := threads()) > most and time.monotonic() < until:
        time.sleep(0.001)
    return held_by_all

rights._SYS_MODULE = 5
modules = rights.give_away_all_but_modules(Path(sys.argv[1]))
other = held("/proc/self/task/%d/status" % __import__("os").getpid())
child = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
Path("child").write_text(child)
Path("module").write_text(asyncio.run(modules.run("cat", ["/proc/self/status"])))
before = left(2)  # without asyncio's own thread, which has waited for the program's end
modules.end()
print(json.dumps({"kept": rights.kept(), "main": other, "before": before, "after": left(1),
                  "child": held("child"), "module": held("module")}))
"""
KILL = 1 << 5


def seen(bridge_filter: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, bridge_filter], cwd=folder, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def extra(found: dict[str, Any], *of: list[int]) -> list[int]:
    """What there is beyond what the daemon keeps, in each set of each thread or program."""
    return [bits & ~found["kept"] for sets in of for bits in sets]


@pytest.mark.parametrize("bridge_filter, right", [("/nowhere", KILL), ("/dev/null", 0)])
def test_one_thread_alone_may_load_modules(tmp_path: Path, bridge_filter: str, right: int):
    found = seen(bridge_filter, tmp_path)
    assert extra(found, found["main"], found["child"], *found["after"]) == [0] * (6 + 3 * len(found["after"]))
    assert extra(found, found["module"]) == [right] * 3
    assert len([sets for sets in found["before"] if any(extra(found, sets))]) == bool(right)
