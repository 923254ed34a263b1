"""Text for people: on one line, safe on a terminal, with plurals, durations, tables and guesses."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from weft.model.errors import WeftCommand

_PREFIXES: Final = ("", "k", "M", "G", "T")
_THOUSAND: Final = 1000
_ALL_OF: Final = 12  # names are listed whole; of more, these
_SOME_OF: Final = 3

# Control characters, those of C1 as well; marks that turn the direction of what follows; line and paragraph separators.
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(min|m|s|h|d)\s*")


def one_line(text: str) -> str:
    """Join lines by `; `, and escape what is not printable."""
    if text.isprintable():
        return text
    lines = (line.strip(" \t\r") for line in text.split("\n"))
    joined = "; ".join(line for line in lines if line)
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in joined)


def visible(text: str) -> str:
    """Keep lines and tabs; escape whatever else a terminal obeys."""
    return _OBEYED.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def counted(count: int, noun: str) -> str:
    """`1 peer`, `2 peers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some_of(names: Sequence[str], most: int) -> str:
    """`a, b and 7 more`: all of a few."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shortly(seconds: float) -> str:
    """The two largest units: `3 h 12 min`, `41 s`."""
    rest, parts = int(seconds), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def shown_amount(amount: float) -> str:
    """Three or four digits, and a space before a unit: `0 `, `999 `, `12.3 k`, `4.56 G`."""
    place = 0
    while amount >= _THOUSAND and place + 1 < len(_PREFIXES):
        amount, place = amount / _THOUSAND, place + 1
    return f"{amount:.{0 if not place or amount >= _THOUSAND / 10 else 1}f} {_PREFIXES[place]}"


def one_of(known: Iterable[str], wanted: str) -> str:
    """Name the right ones: all of a few; of many the nearest, or some."""
    from difflib import get_close_matches  # only who made a mistake pays for it

    names = list(known)
    if len(names) <= _ALL_OF:
        return f"one of {', '.join(names)}" if names else "a name, but there is none"
    if near := get_close_matches(wanted, names, n=_SOME_OF):
        return f"perhaps {' or '.join(near)}, of {len(names)} names"
    return f"one of {len(names)} names, such as {', '.join(names[:_SOME_OF])}"


def typed_from(environ: Mapping[str, str]) -> Callable[[WeftCommand], str]:
    """How people type a command for a program with these variables: outside of the pod in which it runs.

    The pod's image has no shell. `weft cni install` becomes the deletion of the pod: the next one's init container
    installs the plugins.
    """
    pod, namespace = environ.get("POD_NAME"), environ.get("POD_NAMESPACE")
    if not (pod and namespace):
        return str

    def typed(command: WeftCommand) -> str:
        if command.words.split()[0] == "lab":
            return str(command)
        if command.words.startswith("cni install") and "--check" not in command.words:
            return f"kubectl -n {namespace} delete pod {pod}"
        return f"kubectl -n {namespace} exec {pod} -- {command}"

    return typed


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns by spaces, without trailing blanks, so that the text can be piped and cut."""
    lines = [tuple(heading), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join(text) + "\n"


def seconds_in(text: str) -> float:
    """Read `90s`, `5min` (or `5m`), `2h` or `1d 12h`. Raises `ValueError`."""
    seconds, place = 0.0, 0
    while (part := _PART.match(text, place)) is not None:
        seconds += float(part[1]) * _UNITS[part[2]]
        place = part.end()
    if not text or place < len(text):
        raise ValueError(f"{text!r} is no time; expected for example 90s, 5min, 2h or 1d")
    return seconds
