"""Keys of plugins' configurations: each says how it is read and what it means, once.

A parser (`wire.*conf`) reads by its keys, and the reference page of its plugin (`docs/reference/plugins/`) lists the
same ones. What a value must satisfy beyond its type is the parser's business.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cnijson import Object

T = TypeVar("T")


class Key(Value, Generic[T], kw_only=False):
    """A key: `place` names the object that it stands in, in Markdown; it is empty for the plugin's own.

    `kind`, `default` and `about` are for people. Calling it reads it from its object: `JsonError` for another type.
    """

    name: str
    about: str
    kind: str
    default: str
    place: str
    read: Callable[[Object], T]

    def __call__(self, obj: Object) -> T:
        return self.read(obj)

    def given(self, obj: Object) -> bool:
        """Tell whether the object has the key at all: null is as nothing."""
        return cnijson.value_of(obj, self.name) is not None


def flag(name: str, about: str, *, place: str = "") -> Key[bool]:
    """Make a boolean, false by default."""
    return Key(name, about, "boolean", "false", place, lambda obj: cnijson.flag(obj, name))


def maybe_flag(name: str, about: str, *, default: str = "") -> Key[bool | None]:
    """Make a boolean whose false means something, None by default; `default` says what that means."""

    def read(obj: Object) -> bool | None:
        return None if cnijson.value_of(obj, name) is None else cnijson.flag(obj, name)

    return Key(name, about, "boolean", default, "", read)


def integer(name: str, about: str, *, place: str = "", default: str = "") -> Key[int]:
    """Make an integer, 0 by default; `default` says what that means."""
    return Key(name, about, "integer", default, place, lambda obj: cnijson.integer(obj, name))


def maybe_integer(
    name: str,
    about: str,
    *,
    place: str = "",
    default: str = "",
    least: int = cnijson.LEAST,
    most: int = cnijson.MOST,
) -> Key[int | None]:
    """Make an integer within limits whose 0 means something, None by default; `default` says what that means."""

    def read(obj: Object) -> int | None:
        return cnijson.maybe_integer(obj, name, least=least, most=most)

    return Key(name, about, "integer", default, place, read)


def text(name: str, about: str, *, place: str = "", default: str = "", meaning: str = "") -> Key[str]:
    """Make a string; none, and an empty one, are the default. `meaning` says what an empty default means."""
    return Key(name, about, "string", default or meaning, place, lambda obj: cnijson.text(obj, name) or default)


def items(
    name: str, about: str, read: Callable[[Any, str], T], *, place: str = "", kind: str = "list of strings"
) -> Key[tuple[T, ...]]:
    """Make a list whose items `read(item, where)` reads, empty by default."""
    return Key(name, about, kind, "", place, lambda obj: cnijson.items(obj, name, read))


def member(name: str, about: str, *, place: str = "", kind: str = "object") -> Key[Object]:
    """Make an object, empty by default, that is read by keys of its own."""
    return Key(name, about, kind, "", place, lambda obj: cnijson.member(obj, name))
