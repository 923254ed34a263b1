"""Ends labs, and removes what is left of dead ones."""

import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from weft.lab import places, protocol
from weft.lab.call import Call
from weft.lab.places import Place
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import one_of

_PATIENCE: Final = 10.0  # seconds for a supervisor's end, first asked for and then forced
_LOOK_AGAIN: Final = 0.02


def down(place: Place) -> None:
    end(place)
    place.remove()


def clean(base: Path, names: Sequence[str]) -> list[str]:
    """Remove every trace of these dead labs, or of all; returns their names.

    `ConfigError` names those that are up or unknown; then nothing is removed.
    """
    there = {place.name: place for place in places.found(base)}
    dead = {name: place for name, place in there.items() if not place.alive}
    problems = []
    for name in names:
        if name not in there:
            expected = one_of(there, name) if there else ""
            problems.append(Problem("LAB-002", name, "no trace of a lab of this name", expected=expected))
        elif name not in dead:
            hint = f"'weft lab down {name}' ends it."
            problems.append(Problem("LAB-002", name, "it is up", expected="a lab that is dead", hint=hint))
    if problems:
        raise ConfigError(*problems)
    chosen = [dead[name] for name in names or dead]
    for place in chosen:
        place.remove()
    return [place.name for place in chosen]


def end(place: Place) -> None:
    """End the supervisor, by asking or else by force, and wait for it."""
    if not place.alive:
        return
    process = place.open_supervisor()
    asked = _ask_to_end(place)
    if process is None:
        if not _freed(place, _PATIENCE if asked else 0.0):
            raise Unavailable(_nameless(place))
        return
    try:
        if not _ended(process):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            _ended(process)
    finally:
        os.close(process)


def _ask_to_end(place: Place) -> bool:
    try:
        Call(place.socket, protocol.Down()).close()
    except OSError:
        return False
    return True


def _ended(process: int) -> bool:
    return bool(select.select([process], [], [], _PATIENCE)[0])


def _freed(place: Place, patience: float) -> bool:
    """Wait for the lab's end by its lock, where its supervisor's process is not known."""
    end = time.monotonic() + patience
    while place.alive:
        if time.monotonic() >= end:
            return False
        time.sleep(_LOOK_AGAIN)
    return True


def _nameless(place: Place) -> Problem:
    """The problem of a lab that does not end when asked, and whose process is not known."""
    if not place.pid:
        seen, hint = "it is just being started, or its file 'pid' was changed", "Try again in a second."
    else:
        proves = f"its file 'pid' does not prove that process {place.pid} is its supervisor"
        seen = f"it does not end when it is asked, and {proves}"
        hint = f"If 'ps {place.pid}' shows that it is: 'kill -9 {place.pid}', then 'weft lab clean {place.name}'."
    return Problem("LAB-002", place.name, seen, hint=hint)
