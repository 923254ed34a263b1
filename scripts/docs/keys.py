"""Keys in words, from the fields of values that they are read into (`weft.model.keyed`).

The tables of options in docs/reference/backends.md are made so.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args

from weft.model import keyed
from weft.model.attachment import Cidr
from weft.model.keyed import Arg
from weft.model.net import Ip
from weft.model.value import Value

BACKENDS = Path(__file__).parents[2] / "docs" / "reference" / "backends.md"
_MADE = r"<!-- Made by `make docs` from src/weft/desired/backends/(\w+)(?:\.py|/__init__\.py): change that. -->\n\n"
_TABLE = re.compile(rf"({_MADE})(?:\|.*\n)*")


class Row(NamedTuple):
    """A key in words."""

    place: str
    name: str
    kind: str
    default: str
    about: str


_WORDS = {bool: "boolean", int: "integer", str: "string", dict[str, str]: "object of strings"}
_WORDS |= dict.fromkeys((*get_args(Ip), *get_args(Cidr)), "string")


def rows_of(kind: type[Value], place: str = "") -> Iterator[Row]:
    """Yield the keys of a value that stands at `place`, and of those in it. A key that says nothing is no user's."""
    inner: dict[str, type[Value]] = {}
    for field in keyed.fields(kind):
        for source in field.sources:
            if isinstance(source, Arg) or not source.about:
                continue
            at = ".".join(filter(None, (place, source.at)))
            what, depth = _bare(field.type)
            said = source.default or ("" if len(field.sources) > 1 else _said(field.default))
            yield Row(f"`{at}`" if at else "", source.name, _kind(what, depth), said, source.about)
            if isinstance(what, type) and issubclass(what, Value):
                inner[".".join(filter(None, (at, source.name))) + "[]" * depth] = what
    for path, value in inner.items():
        yield from rows_of(value, path)


def _bare(kind: Any) -> tuple[Any, int]:
    """Return the type within unions with None and lists, and how deep in lists it is."""
    options = [option for option in get_args(kind) if option is not NoneType]
    if getattr(kind, "__origin__", None) is tuple:
        what, depth = _bare(options[0])
        return what, depth + 1
    return _bare(options[0]) if options and getattr(kind, "__origin__", None) is not dict else (kind, 0)


def _kind(what: Any, depth: int) -> str:
    word = _WORDS.get(what, "object")
    return f"{'list of ' + 'lists of ' * (depth - 1)}{word}s" if depth else word


def _said(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return str(default or "") if isinstance(default, str | int) else ""


def table(rows: Iterable[Row]) -> str:
    """Return rows as Markdown."""
    return "| Key | Type | Default | Meaning |\n|---|---|---|---|\n" + "".join(map(_row, rows))


def _row(key: Row) -> str:
    cells = (f"`{key.name}`", key.kind, key.default, key.about)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def backends(page: str) -> str:
    """Return the page with the tables of options as the back ends have them."""

    def made(found: re.Match[str]) -> str:
        module = import_module(f"weft.desired.backends.{found[2]}")
        [options] = [kind for name, kind in vars(module).items() if name.endswith("Options")]
        return found[1] + table(rows_of(options))

    return _TABLE.sub(made, page)


def write() -> None:
    BACKENDS.write_text(backends(BACKENDS.read_text()))
