"""The keys of a value's fields in a configuration, with limits and meaning, beside the field.

As in `table: Annotated[int | None, Key("table", "The table for all addresses.", default="a free one")] = None`.

The first source with a value counts; a field without sources is not read. `wire.cnivalue` reads and writes values by
this table, and the reference pages are made from it.
"""

from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from weft.model.value import Value

LEAST: Final = -(1 << 63)  # the reference's integers have 64 bits, with a sign or without
MOST: Final = (1 << 64) - 1


class Key(Value, kw_only=False):
    """A key of a JSON object."""

    name: str
    about: str = ""  # this and `default` are Markdown for people
    at: str = ""  # where the object is, as `args.cni`
    default: str = ""  # what absence means
    least: int = LEAST  # limits of integers are inclusive
    most: int = MOST


class Arg(Value, kw_only=False):
    """A text in CNI_ARGS."""

    name: str
    about: str


class Field(Value):
    name: str
    type: Any
    sources: tuple[Key | Arg, ...]
    required: bool
    default: Any


@cache
def fields(kind: type[Value]) -> tuple[Field, ...]:
    """The fields that have sources, in the class's order."""
    found = []
    for info in msgspec.structs.fields(kind):  # type: ignore[arg-type]
        if get_origin(info.type) is Annotated:
            type_, *sources = get_args(info.type)
            default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
            found.append(
                Field(name=info.name, type=type_, sources=tuple(sources), required=info.required, default=default)
            )
    return tuple(found)
