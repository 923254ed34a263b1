"""What a command needs to be allowed."""

import os

from weft.model.errors import ConfigError, Problem


def need_root(command: str) -> None:
    """Refuse other users: to them everything would look empty."""
    if os.geteuid() != 0:
        seen, hint = f"run by user {os.geteuid()}", "Run the same command as root."
        raise ConfigError(Problem(code="HOST-002", where=command, seen=seen, expected="root", hint=hint))
