"""RE2 patterns, which flannel takes for `--iface-regex` and tuning for its list.

Python's `re` has another dialect, and may take for ever (`(a*)*$`).
"""

import re
from typing import Final

# \C, a byte in RE2's own reading, unless between \Q and \E. Go's has none, and a pattern must not mean one thing here
# and another with upstream.
_BYTE: Final = re.compile(r"(?s)(?:[^\\]|\\Q.*?(?:\\E|\Z)|\\[^CQ])*\\C")


class Pattern:
    """Raises `ValueError` with RE2's words."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        import re2  # late: it takes 20 ms, and few configurations have a pattern

        try:
            pattern.encode()
        except UnicodeEncodeError:
            raise ValueError("invalid UTF-8") from None
        if _BYTE.match(pattern):
            raise ValueError(r"invalid escape sequence: \C")
        options = re2.Options()
        options.log_errors = False
        self.pattern = pattern
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            raise ValueError(error.args[0].decode("utf-8", "replace")) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def search(self, text: str) -> bool:
        """Bytes that are no UTF-8 count as U+FFFD."""
        readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return self._compiled.search(readable) is not None
