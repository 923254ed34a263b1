"""Lists and watches of the Kubernetes API, whatever their objects are.

Readers raise `NotTheApiError`.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from weft.model.value import Value, field

T = TypeVar("T")

_LONGEST_VERSION: Final = 64  # a number of 64 bits takes 20
_LONGEST_TOKEN: Final = 1 << 16  # it names the last key of a page, in base64
_CODES: Final = 1000  # of HTTP; more are none


class NotTheApiError(Exception):
    """An answer that no Kubernetes API gives; the text is for people."""


class MetaOf(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...


class ObjectOf(Protocol):
    """An object as msgspec decodes it."""

    @property
    def metadata(self) -> MetaOf: ...


ObjectT = TypeVar("ObjectT", bound=ObjectOf)


class Page(Value, Generic[T]):
    """A part of a list."""

    items: tuple[T, ...]
    version: str  # of the whole list
    rest: str  # the token of the next page, empty at the end


class Happened(Value, Generic[T]):
    """An event of a watch. A bookmark has no item but a version; an error has the API's message and code."""

    kind: str
    version: str = ""
    item: T | None = None
    code: int = 0
    reason: str = ""
    message: str = ""


class _ListMeta(Value):
    version: str = field(name="resourceVersion", default="")
    rest: str = field(name="continue", default="")


class _List(Value, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _Event(Value):
    type: str
    object: msgspec.Raw


class _Status(Value):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Bare(Value):
    metadata: _ListMeta


class Kind(Generic[T]):
    """How objects of one kind are read: as `decoded` says, of which `made` makes a value."""

    def __init__(self, decoded: type[ObjectT], made: Callable[[ObjectT], T]) -> None:
        self._made: Callable[[Any], T] = made
        self._list: msgspec.json.Decoder[_List[Any]] = msgspec.json.Decoder(_List[decoded])  # type: ignore[valid-type]
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(decoded)

    def page(self, body: bytes) -> Page[T]:
        found = decode(self._list, body)
        bound(found.metadata.version, _LONGEST_VERSION, "a resourceVersion")
        bound(found.metadata.rest, _LONGEST_TOKEN, "a token of the next page")
        items = tuple(self._make(each) for each in found.items or ())
        return Page(items=items, version=found.metadata.version, rest=found.metadata.rest)

    def one(self, body: bytes | msgspec.Raw) -> T:
        return self.versioned(body)[0]

    def versioned(self, body: bytes | msgspec.Raw) -> tuple[T, str]:
        found = decode(self._one, body)
        return self._make(found), found.metadata.version

    def event(self, line: bytes) -> Happened[T]:
        """Read one line of a watch."""
        event = decode(_EVENT, line)
        if event.type == "ERROR":
            status = decode(_STATUS, event.object)
            code = status.code if 0 < status.code < _CODES else 0
            return Happened(kind=event.type, code=code, reason=status.reason, message=status.message)
        if event.type == "BOOKMARK":
            version = decode(_BARE, event.object).metadata.version
            bound(version, _LONGEST_VERSION, "a resourceVersion")
            return Happened(kind=event.type, version=version)
        item, version = self.versioned(event.object)
        return Happened(kind=event.type, version=version, item=item)

    def _make(self, found: ObjectOf) -> T:
        if not found.metadata.name:
            raise NotTheApiError("an object without a name")
        bound(found.metadata.version, _LONGEST_VERSION, "a resourceVersion")
        return self._made(found)


def bound(text: str, most: int, what: str) -> None:
    """Refuse a text that goes back to the API and is longer than any API makes it."""
    if len(text) > most:
        raise NotTheApiError(f"{what} of {len(text)} characters")


def decode(decoder: "msgspec.json.Decoder[T]", body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotTheApiError(str(error)) from None


_EVENT: Final = msgspec.json.Decoder(_Event)
_STATUS: Final = msgspec.json.Decoder(_Status)
_BARE: Final = msgspec.json.Decoder(_Bare)
