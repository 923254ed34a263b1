"""Values: classes of named fields that are compared by them, as frozen dataclasses are, for a fiftieth of the price.

A dataclass compiles half a dozen methods when its module is imported, whether or not it is ever used: that was
most of what a plugin without a daemon did, and a third of a daemon's start (docs/decisions/0015). Here `__init__` is
compiled when the first value is made, and the other methods are the same few for all.

The type checker alone keeps a value from being changed: to enforce it would make each twice as slow to build.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform

_V = TypeVar("_V", bound="Value")
_UNSET: Final = object()
_MADE: Final = frozenset({"__init__", "__eq__", "__hash__"})


class _Field:
    """What a class says of one of its fields."""

    __slots__ = ("compare", "default", "factory", "hash", "init", "repr")

    def __init__(
        self,
        default: Any = _UNSET,
        factory: Callable[[], Any] | None = None,
        *,
        init: bool = True,
        repr: bool = True,  # noqa: A002 - the names are those of dataclasses
        compare: bool = True,
        hash: bool = True,  # noqa: A002
    ) -> None:
        self.default, self.factory = default, factory
        self.init, self.repr, self.compare, self.hash = init, repr, compare, hash and compare


def field(*, default: Any = _UNSET, default_factory: Callable[[], Any] | None = None, **flags: bool) -> Any:
    """Say more of a field than its type, in the words of `dataclasses.field`: init, repr, compare, hash."""
    return _Field(default, default_factory, **flags)


class _ValueType(type):
    """Makes a class's annotations its slots, and keeps what it says of them, after what its bases say."""

    fields_: dict[str, _Field]
    kw_only_: bool

    def __new__(
        cls, name: str, bases: tuple[type, ...], space: dict[str, Any], *, kw_only: bool = True, frozen: bool = True
    ) -> "_ValueType":
        fields: dict[str, _Field] = {}
        for base in bases:
            fields |= getattr(base, "fields_", {})
        own = space.get("__annotations__", {})
        for key in own:
            said = space.pop(key, _UNSET)
            each = fields[key] = said if isinstance(said, _Field) else _Field(said)
            if type(each.default).__hash__ is None:
                raise TypeError(f"{name}.{key}: all values would share one {type(each.default).__name__}")
        if not _MADE.isdisjoint(space):
            raise TypeError(f"{name}: {', '.join(sorted(_MADE))} are made of the fields")
        space["__slots__"] = tuple(own)
        space["__match_args__"] = () if kw_only else tuple(fields)
        space["__init__"] = _first
        space["__eq__"] = _equality(_getter(key for key, each in fields.items() if each.compare))
        space["__hash__"] = _hashing(_getter(key for key, each in fields.items() if each.hash)) if frozen else None
        made = super().__new__(cls, name, bases, space)
        made.fields_, made.kw_only_ = fields, kw_only
        return made


def _getter(names: Iterable[str]) -> Callable[[object], object]:
    return attrgetter(*(tuple(names) or ("__class__",)))


def _equality(compared: Callable[[object], object]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - the name shows in tracebacks
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hashing(hashed: Callable[[object], object]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    return __hash__


def _first(self: "Value", *args: Any, **kwargs: Any) -> None:
    """Stands for `__init__` until a value is made."""
    kind = type(self)
    kind.__init__ = _initializer(kind)  # type: ignore[method-assign]
    kind.__init__(self, *args, **kwargs)


def _initializer(kind: _ValueType) -> Callable[..., None]:
    """Write and compile the `__init__` of a class. Its names are those of the fields: nobody else's text comes in."""
    known: dict[str, Any] = {"_UNSET": _UNSET}
    parameters = ["self", "*"] if kind.kw_only_ and any(each.init for each in kind.fields_.values()) else ["self"]
    lines = ["pass"]
    for name, each in kind.fields_.items():
        if not each.init:
            continue
        if each.factory is not None:
            known[f"make_{name}"] = each.factory
            parameters.append(f"{name}=_UNSET")
            lines.append(f"self.{name} = make_{name}() if {name} is _UNSET else {name}")
            continue
        known[f"default_{name}"] = each.default
        parameters.append(name if each.default is _UNSET else f"{name}=default_{name}")
        lines.append(f"self.{name} = {name}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), known)  # noqa: S102
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"  # for the TypeError of a call that does not fit
    return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Value(metaclass=_ValueType):
    """A class of named fields: `class Lease(Value): id: str`.

    `kw_only=False` after the bases lets fields be given by place; `frozen=False` says that they may change, so that
    the value cannot be hashed. `__post_init__` is called as dataclasses call it.
    """

    def __repr__(self) -> str:
        kind = self.__class__
        shown = (f"{name}={getattr(self, name)!r}" for name, each in kind.fields_.items() if each.repr)
        return f"{kind.__qualname__}({', '.join(shown)})"


def replace(value: _V, **changes: Any) -> _V:
    """The same value but for some fields. Raises `TypeError` for a name that is none."""
    kept = {name: getattr(value, name) for name, each in type(value).fields_.items() if each.init}
    return type(value)(**{**kept, **changes})


def fields_of(value: Value) -> dict[str, Any]:
    """The fields of a value by their names, values in it as they are."""
    return {name: getattr(value, name) for name in type(value).fields_}
