"""Programs that plugins call and that hang, and connections to a daemon that serves plugins."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.cni.daemon import CniDaemon
from tests.support.waiting import eventually

ENV = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "raw", "CNI_IFNAME": "eth0"}


def connections(daemon: CniDaemon) -> list[str]:
    """The daemon's socket and the connections to it, with those that it has not accepted."""
    lines = daemon.netns.run("cat /proc/net/unix").splitlines()
    return [line for line in lines if str(daemon.socket) in line]


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@contextmanager
def hangs(directory: Path, body: str) -> Iterator[Callable[[], int]]:
    """Make a program `hangs`; yields what waits until it runs and returns its process id. It is ended at last."""
    started = directory / "started"
    script(directory / "hangs", f"echo $$ >{started}.new; mv {started}.new {started}; {body}")

    def process() -> int:
        eventually(started.exists)
        return int(started.read_text())

    try:
        yield process
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(started.read_text()), signal.SIGKILL)


def has_ended(process: int) -> bool:
    """Tell whether a process of the client has ended, and been waited for."""
    return not Path(f"/proc/{process}").exists()
