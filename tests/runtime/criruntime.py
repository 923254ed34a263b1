"""A container runtime's daemon on a machine of a test's own: how it is started, awaited and killed."""

import signal
from pathlib import Path

from grpclib import GRPCError

from tests.runtime.cri import Cri
from tests.runtime.machine import Machine, Program
from tests.support.weftd import eventually


class CriRuntime:
    """The daemon that `command` starts, and its CRI at `socket`."""

    def __init__(self, machine: Machine, socket: str, command: tuple[str, ...]) -> None:
        self.machine = machine
        self.cri = Cri(machine.path(socket))
        self._command = command
        self._program: Program | None = None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start it without waiting for anything."""
        self._program = self.machine.start(Path(self._command[0]).name, *self._command)

    def wait_ready(self) -> None:
        """Wait until the CRI answers."""
        eventually(self._answers, seconds=20)

    def kill(self) -> None:
        """End it without warning; what it has started goes on."""
        assert self._program is not None, "not started"
        self._program.end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._program is not None and self._program.running

    @property
    def log(self) -> str:
        assert self._program is not None, "not started"
        return self._program.log.read_text()

    def _answers(self) -> bool:
        assert self.running, self.log
        try:
            return self.cri.conditions().get("RuntimeReady", False)
        except (OSError, GRPCError):  # not there yet, not ready yet
            return False
