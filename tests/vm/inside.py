"""Runs in the virtual machine: checks by name, and a line of JSON for each on the second serial port."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def run(check: Callable[[], None]) -> dict[str, object]:
    """Run one check."""
    start = time.monotonic()
    failure = ""
    try:
        check()
    except Exception:  # noqa: BLE001 - an outcome like any other
        failure = traceback.format_exc()
    return {"failure": failure, "seconds": round(time.monotonic() - start, 2)}


def main(checks: list[str]) -> None:
    with Path("/dev/ttyS1").open("w") as report:
        for module, _, name in (check.rpartition(".") for check in checks):
            # A line each: when the machine hangs, the last one tells where.
            report.write(json.dumps({"check": name, **run(getattr(import_module(module), name))}) + "\n")
            report.flush()
        report.write("end\n")


if __name__ == "__main__":
    main(sys.argv[1:])
