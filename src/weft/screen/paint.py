"""Colours finished text: changes neither words nor columns. Pure.

The words are few and mean the same in all commands, so that one list says what is which colour. A word is a state where
it begins a column or a part of a sentence; a heading is a line of names in capitals.
"""

import re
from collections.abc import Callable
from typing import Final

# Parameters of SGR (ECMA-48): colours of the user's own palette, none of which is a background.
_STYLES: Final = {"heading": "1", "code": "1", "good": "32", "bad": "31", "notable": "33", "faint": "2"}

_GOOD: Final = "ready|served|up|attached|delivered|joined|recovered|started|store-back|lease-taken|uplink-back"
_BAD: Final = (
    r"not ready|silent|exited -?\d+|dead|refused|lacks|unusable|dropped|lost|unseen|nat|leaked|fault|failing|held"
    "|store-lost|lease-lost|uplink-lost"
)
_NOTABLE: Final = "repaired|left|changed|uplink-changed|unknown|undecided"
_CELL: Final = "(?:(?<=  )|(?<=, ))"  # not the first of a line: that is a name
_END: Final = "(?=[,: ]|$)"

_KINDS: Final = {
    "heading": "^[A-Z][A-Z ]*(?:  +[A-Z][A-Z ]*)+$",
    "code": r"\b[A-Z][A-Z0-9]+-\d{3}\b",
    "good": f"{_CELL}(?:{_GOOD})(?=,|$|  )|^ok(?=  )|✓",
    "bad": f"{_CELL}(?:{_BAD}){_END}|^fault(?=  )|^!|✗",
    "notable": f"{_CELL}(?:{_NOTABLE}){_END}|^warning(?=  )",
    "faint": "^Next:|^not seen",
}
_MARKS: Final = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.MULTILINE)


def painted(text: str, link: Callable[[str], str]) -> str:
    """Each code becomes a link to `link(code)`."""
    return _MARKS.sub(lambda found: _painted(str(found.lastgroup), found.group(), link), text)


def emphasised(text: str) -> str:
    return _styled("heading", text)


def _painted(kind: str, text: str, link: Callable[[str], str]) -> str:
    styled = _styled(kind, text)
    # OSC 8 (gist egmontkob): terminals that do not know it show the text alone.
    return f"\033]8;;{link(text)}\033\\{styled}\033]8;;\033\\" if kind == "code" else styled


def _styled(kind: str, text: str) -> str:
    return f"\033[{_STYLES[kind]}m{text}\033[0m"
