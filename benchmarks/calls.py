"""Programs started, fed and waited for with as little work of our own as can be.

`subprocess` and threads take longer than the programs that are measured here: 70 of 85 ms for a hundred of them.
"""

import json
import os
import time
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One run of a program."""

    program: str
    stdin: bytes
    env: Mapping[str, str]


# Calls that follow each other; each gets what the one before it printed, as JSON.
Steps = Generator[Call, Any, None]


class _Running(NamedTuple):
    steps: Steps
    call: Call
    output: int


def together(*chains: Steps) -> float:
    """Carry out the calls of all chains side by side, those of each in turn; returns milliseconds.

    A program has ended when its output has, as for a runtime that reads it. `RuntimeError` if one fails.
    """
    start = time.perf_counter()
    running = dict(_start(steps, next(steps)) for steps in chains)
    while running:
        pid, status = os.waitpid(-1, 0)
        steps, call, output = running.pop(pid)
        printed = _rest(output)
        if status:
            raise RuntimeError(f"{call.program} {call.env}: {printed.decode()}")
        try:
            following = steps.send(json.loads(printed) if printed.strip() else None)
        except StopIteration:
            continue
        running.update([_start(steps, following)])
    return (time.perf_counter() - start) * 1e3


def _start(steps: Steps, call: Call) -> tuple[int, _Running]:
    given = os.memfd_create("stdin")
    os.write(given, call.stdin)
    os.lseek(given, 0, os.SEEK_SET)
    reader, writer = os.pipe()
    streams = [(os.POSIX_SPAWN_DUP2, source, number) for number, source in enumerate((given, writer, writer))]
    pid = os.posix_spawn(call.program, [call.program], call.env, file_actions=streams)
    os.close(given)
    os.close(writer)
    return pid, _Running(steps, call, reader)


def _rest(output: int) -> bytes:
    with open(output, "rb") as file:
        return file.read()
