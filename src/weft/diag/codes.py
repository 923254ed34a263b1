"""The codes of problems and what the page of problems says of each. Reads no file: the page comes as text."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from weft.model.value import Value

_SECTION: Final = re.compile(r"^### ([A-Z][A-Z0-9]*-\d{3})\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LATER: Final = "*Not reported.*"
_SENTENCE: Final = re.compile(r"^.*?[.:](?=\s|$)")
_GUESSES: Final = 4
_ALIKE: Final = 0.6  # of 1: `ROUTE` is as like `ROUTE-001` as that


class Section(Value):
    """What the page says of one code: `text` in whole, `about` its first sentence. `later`: no message has it yet."""

    code: str
    about: str
    text: str
    later: bool


def sections(page: str) -> dict[str, Section]:
    """The sections of the page by their codes, in its order."""
    return {code: _section(code, text.strip()) for code, text in _SECTION.findall(page)}


def nearest(word: str, known: Mapping[str, Section]) -> list[str]:
    """The codes that somebody may have meant who wrote `word`, the likeliest first."""
    return get_close_matches(word.upper(), known, n=_GUESSES, cutoff=_ALIKE)


def _section(code: str, text: str) -> Section:
    later = text.startswith(_LATER)
    first = text.removeprefix(_LATER).lstrip().partition("\n")[0]
    found = _SENTENCE.match(first)
    about = first if found is None else found.group()
    return Section(code=code, about=f"{about[:-1]}." if about.endswith(":") else about, text=text, later=later)
