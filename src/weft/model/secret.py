"""What nobody may see by accident: passwords, tokens, keys."""

from weft.model.value import Value


class Secret(Value, kw_only=False):
    """A text that no log, repr or f-string shows; `reveal()` is the one way to it."""

    _text: str

    def __repr__(self) -> str:
        return "Secret()"

    def reveal(self) -> str:
        """Give the text itself, for the one place that sends it."""
        return self._text

    def __str__(self) -> str:
        return repr(self)
