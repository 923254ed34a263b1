"""A server program that a test starts, hangs, ends and starts again. It dies with the test's process.

Whoever names a program (etcd, an API server) says how it is started and when it answers: `spawn` and `answers`.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.waiting import looks


class Server:
    """One program that serves; what it says goes to `folder`/log, all runs into one."""

    SECONDS = 20.0  # until it must answer
    PATIENCE = 5.0  # until a stop becomes a kill

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self, *flags: str) -> None:
        """Start it without waiting, by `launch`."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it serves now."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def launch(self, argv: Sequence[str]) -> None:
        """Start this command as the server."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            # setpriv becomes the server, which the kernel then ends when this process ends, however that happens.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def start(self, *flags: str) -> Self:
        """Start it, on the data and the ports it had, and wait until it answers."""
        self.spawn(*flags)
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def wait(self) -> None:
        """Wait until it answers."""
        for _ in looks(self.SECONDS):
            if self._process is None or self._process.poll() is not None:
                break
            if self.answers():
                return
        raise AssertionError(f"{type(self).__name__} did not start:\n{self.log[-3000:]}")

    def stop(self) -> None:
        """End it, as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self, *flags: str) -> None:
        self.stop()
        self.start(*flags)

    def pause(self) -> None:
        """Let it hang: connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)  # a stopped process does not see SIGTERM
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=self.PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=self.PATIENCE)
        self._process = None
