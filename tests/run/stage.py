"""Runs one stage of all tests: `python -m tests.run.stage REPORTS NAME COMMAND…`.

It is ended when nothing progresses any more, however long it takes until then: no test begins or ends, and its
processes use no processor. A line of REPORTS/stages.tsv says how long it took, how it ended and when, in seconds since
the machine started.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.run import progress

QUIET: Final = 600.0  # seconds; each test has less of its own, by `timeout` in pyproject.toml or its mark
ENDED: Final = 124  # as timeout(1) has it
_GRACE: Final = 20.0  # seconds from SIGTERM to SIGKILL
_LOOK_AGAIN: Final = 0.5  # seconds
_TICKS: Final = 10  # of the processor, hundredths of a second: what counts as progress


def main(reports: Path, name: str, command: list[str], quiet: float = QUIET) -> int:
    """Run the command; returns how it ended."""
    print(f"\n== {name}", flush=True)
    file = reports / (re.sub(r"\W+", "-", name) + progress.END)
    start = time.monotonic()
    environ = os.environ | {progress.VARIABLE: str(file.resolve())}
    told: list[int] = []  # signals
    with subprocess.Popen(command, env=environ, start_new_session=True) as running:

        def pass_on(number: int, _: object) -> None:
            told.append(number)
            _signal(running, number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, pass_on)
        code = _watch(running, lambda: (_size(file), _work(running.pid)), quiet)
    with (reports / "stages.tsv").open("a") as stages:
        end = time.monotonic()
        stages.write(f"{name}\t{end - start:.1f}\t{code}\t{end:.1f}\n")
    for number in told[:1]:  # so that the script that runs the stages ends, too
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


def _watch(
    running: "subprocess.Popen[bytes]",
    done: Callable[[], object],
    quiet: float,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Wait for the command's end, and end it once `done` has not changed for too long."""
    last, since = done(), clock()
    while running.poll() is None:
        if (now := done()) != last:
            last, since = now, clock()
        elif clock() - since > quiet:
            print(f"nothing has progressed for {quiet:.0f} s: ended", file=sys.stderr, flush=True)
            _end(running)
            return ENDED
        time.sleep(_LOOK_AGAIN)
    return running.returncode


def _end(running: "subprocess.Popen[bytes]") -> None:
    _signal(running, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        running.wait(_GRACE)
    _signal(running, signal.SIGKILL)
    running.wait()


def _signal(running: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, number)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _work(session: int) -> int:
    """How much of the processors the processes of a session have used, in portions that count as progress."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):  # not */stat: pathlib looks whether that is there, and may raise
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
    return ticks // _TICKS


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
