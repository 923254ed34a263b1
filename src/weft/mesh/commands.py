"""The commands of people and of the daemon: which part of a core carries out or refuses each."""

from weft.mesh.founding import Founding
from weft.mesh.leaving import Leaving
from weft.mesh.meeting import Meeting
from weft.mesh.publishing import Publishing
from weft.mesh.reach import Reach
from weft.mesh.removing import Removing
from weft.mesh.state import State
from weft.model.mesh.effects import (
    Adopt,
    Command,
    Connect,
    Create,
    Forget,
    Leave,
    Publish,
    Remove,
    Used,
    Withdraw,
)


class Commands:
    def __init__(
        self,
        state: State,
        *,
        founding: Founding,
        leaving: Leaving,
        meeting: Meeting,
        publishing: Publishing,
        reach: Reach,
        removing: Removing,
    ) -> None:
        self._state = state
        self._founding = founding
        self._leaving = leaving
        self._meeting = meeting
        self._publishing = publishing
        self._reach = reach
        self._removing = removing

    def check(self, command: Command, now: float) -> None:
        """Raises `ConfigError` for what is refused now."""
        if isinstance(command, Create):
            self._founding.check()
        elif isinstance(command, Forget):
            self._reach.check(command)
        elif isinstance(command, Leave):
            self._leaving.check()
        elif isinstance(command, Remove):
            self._removing.check(command, now)
        elif isinstance(command, Withdraw):
            self._removing.check_withdrawal()
        elif isinstance(command, Adopt):
            self._meeting.check(command, now)

    def do(self, command: Command, now: float) -> None:
        """What `check` lets pass."""
        if isinstance(command, Create):
            self._founding.create(command, now)
        elif isinstance(command, Publish):
            self._publishing.publish(command)
        elif isinstance(command, Used):
            self._state.used = command.ever
        elif isinstance(command, Connect):
            self._reach.connect(command.address)
            self._reach.soon(now)
        elif isinstance(command, Forget):
            self._reach.forget(command.address)
        elif isinstance(command, Leave):
            self._leaving.leave(now)
        elif isinstance(command, Remove):
            self._removing.remove(command, now)
        elif isinstance(command, Withdraw):
            self._removing.withdraw(now)
        else:
            self._meeting.adopt(command, now)
            self._reach.hasten(now)
