"""What a configuration calls the fields of a value: key, limits and meaning, once, beside the field.

    class SbrConf(Value):
        table: Annotated[int | None, Key("table", "The table for all addresses.", default="a free one")] = None

A field may have several sources, of which the first that says something counts; one without any is not read.
By this table `weft.wire.cnivalue` reads and writes values, and the reference pages are made.
"""

from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from weft.model.value import Value

LEAST: Final = -(1 << 63)  # the reference's integers have 64 bits, with a sign or without
MOST: Final = (1 << 64) - 1


class Key(Value, kw_only=False):
    """A key of the object that `at` leads to from the value's own, as `args.cni`; limits are an integer's, inclusive.

    `about`, and `default` if it has to be said what absence means, are for people, in Markdown.
    """

    name: str
    about: str = ""
    at: str = ""
    default: str = ""
    least: int = LEAST
    most: int = MOST


class Arg(Value, kw_only=False):
    """An argument in CNI_ARGS, which is a text."""

    name: str
    about: str


class Field(Value):
    """A field that is read: its type and its sources. A field that is `required` has no `default`."""

    name: str
    type: Any
    sources: tuple[Key | Arg, ...]
    required: bool
    default: Any


@cache
def fields(kind: type[Value]) -> tuple[Field, ...]:
    """Return the fields of a class that have sources, in its order."""
    found = []
    for info in msgspec.structs.fields(kind):  # type: ignore[arg-type]
        if get_origin(info.type) is Annotated:
            type_, *sources = get_args(info.type)
            default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
            found.append(
                Field(name=info.name, type=type_, sources=tuple(sources), required=info.required, default=default)
            )
    return tuple(found)
