"""Passwords, tokens and keys, which nobody may see by accident."""

from weft.model.value import Value


class Secret(Value, kw_only=False):
    """A text that no log, repr or f-string shows."""

    _text: str

    def __repr__(self) -> str:
        return "Secret()"

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return repr(self)
