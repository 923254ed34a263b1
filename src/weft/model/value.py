"""Values: immutable classes of named fields, equal when their fields are.

They are structs of msgspec, made, compared and copied in C (docs/decisions/0022).
"""

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec
from msgspec import field

__all__ = ["Value", "field", "fields_of", "put_in", "replace"]

_V = TypeVar("_V", bound="Value")


class _ValueType(msgspec.StructMeta):
    """Makes fields keyword-only and frozen, unless the class says otherwise."""

    def __new__(  # noqa: PYI034 - mypy has none in a metaclass
        cls,
        name: str,
        bases: tuple[type, ...],
        space: dict[str, Any],
        *,
        kw_only: bool = True,
        frozen: bool = True,
        **options: Any,
    ) -> "_ValueType":
        return super().__new__(cls, name, bases, space, kw_only=kw_only, frozen=frozen, **options)


if TYPE_CHECKING:  # a type checker takes a struct for one whose fields may change, and so all that are made of it

    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
    class Value(metaclass=_ValueType):
        __struct_fields__: ClassVar[tuple[str, ...]]
else:

    class Value(msgspec.Struct, metaclass=_ValueType):
        """A class of named fields: `class Lease(Value): id: str`.

        `kw_only=False` after the bases lets fields be given by place; `frozen=False` says that they may change, so that
        the value cannot be hashed. `gc=False` is for what there may be thousands of and what is in no cycle of
        references: the garbage collector does not look at it. `tag`, `rename`, `omit_defaults` and
        `forbid_unknown_fields` are msgspec's, for values that are read or written as JSON. `__post_init__` is called
        as dataclasses call it.
        """


def replace(value: _V, **changes: Any) -> _V:
    """Raises `TypeError` for an unknown name."""
    made: _V = msgspec.structs.replace(value, **changes)  # type: ignore[type-var]
    return made


def put_in(value: Value, name: str, made: Any) -> None:
    """Set a computed field; for `__post_init__` alone."""
    msgspec.structs.force_setattr(value, name, made)  # type: ignore[arg-type]


def fields_of(value: Value) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


class Secret(Value, kw_only=False):
    """A text that no log, repr or f-string shows."""

    _text: str

    def __repr__(self) -> str:
        return "Secret()"

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return repr(self)
