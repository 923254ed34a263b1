"""What a configuration calls the fields of a value: key, limits and meaning, once, beside the field.

As in `table: Annotated[int | None, Key("table", "The table for all addresses.", default="a free one")] = None`.

Of several sources the first that says something counts; a field without any is not read. `weft.wire.cnivalue` reads and
writes values by this table, and the reference pages are made from it.
"""

from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from weft.model.value import Value

LEAST: Final = -(1 << 63)  # the reference's integers have 64 bits, with a sign or without
MOST: Final = (1 << 64) - 1


class Key(Value, kw_only=False):
    """A key of the object that `at` leads to from the value's own, as `args.cni`; integers' limits are inclusive.

    `about`, and `default` where absence has a meaning, are for people, in Markdown.
    """

    name: str
    about: str = ""
    at: str = ""
    default: str = ""
    least: int = LEAST
    most: int = MOST


class Arg(Value, kw_only=False):
    """A text in CNI_ARGS."""

    name: str
    about: str


class Field(Value):
    """A `required` field has no `default`."""

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
