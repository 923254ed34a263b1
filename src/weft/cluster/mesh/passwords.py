"""The passwords of a mesh, of its file: the first is offered to others, the second is taken from them, too."""

from typing import Final

from weft.model.errors import ConfigError, Problem
from weft.model.value import Secret
from weft.wire import meshpassword

_LINES: Final = 2
_SHORTEST: Final = 12  # characters


def passwords_in(text: str, where: str) -> tuple[Secret, ...]:
    """Raises `ConfigError` (FLAG-001), which shows nothing of them."""
    lines = text.rstrip("\r\n").split("\n")
    if len(lines) > _LINES:
        expected = "the password, and perhaps in a second line the one before"
        raise ConfigError(Problem("FLAG-001", where, f"{len(lines)} lines", expected))
    passwords = tuple(Secret(line.removesuffix("\r")) for line in lines)
    for number, password in enumerate(passwords, 1):
        if (length := len(password.reveal())) < _SHORTEST:
            seen, hint = f"line {number} has {length} characters", "'weft mesh password' makes a good one"
            raise ConfigError(Problem("FLAG-001", where, seen, f"{_SHORTEST} or more", hint))
        if meshpassword.damaged(password):
            seen = f"line {number} begins as a password of 'weft mesh password' and is not whole"
            raise ConfigError(Problem("FLAG-001", where, seen, "all of the line that it printed"))
    return passwords
