"""dotenv files, as far as people and tools use them in subnet.env (flannel.md §3.3).

`KEY=value` or `KEY: value`, comments, single and double quotes, `export`, `$VAR` and `${VAR}` of earlier lines. A bad
line costs that line alone.
"""

import re
from collections.abc import Mapping
from typing import Final

from weft.model.value import Value

_ASSIGNMENT: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*[=:]\s*(.*?)\s*", re.ASCII | re.DOTALL)
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?")
_VARIABLE: Final = re.compile(r"\\\$|\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


class Variables(Value):
    """What a file sets, the last of several values, and what in it could not be read."""

    values: Mapping[str, str]
    complaints: tuple[str, ...] = ()


def parse(text: str) -> Variables:
    """Every text is accepted."""
    values: dict[str, str] = {}
    complaints: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _ASSIGNMENT.fullmatch(line)
        value = None if found is None else _value(found[2], values)
        if found is None or value is None:
            complaints.append(f"line {number} is not KEY=value")
        else:
            values[found[1]] = value
    return Variables(values=values, complaints=tuple(complaints))


def _value(text: str, earlier: Mapping[str, str]) -> str | None:
    if text.startswith("'"):
        single = _SINGLE.fullmatch(text)
        return None if single is None else single[1]
    if text.startswith('"'):
        double = _DOUBLE.fullmatch(text)
        if double is None:
            return None
        # `\$` stays for `_expand`, which alone knows that it is no variable.
        unescaped = re.sub(r"\\([^$])", lambda found: _ESCAPES.get(found[1], found[1]), double[1], flags=re.DOTALL)
        return _expand(unescaped, earlier)
    return _expand(re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip(), earlier)


def _expand(text: str, earlier: Mapping[str, str]) -> str:
    """Put in the values of earlier lines; an unset variable is empty."""
    return _VARIABLE.sub(lambda found: earlier.get(found[1] or found[2], "") if found.lastindex else "$", text)
