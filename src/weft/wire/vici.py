"""The messages of strongSwan's vici socket, without the length before each (vici's README.md, "Protocol").

A message is a tree of names: texts, lists of texts, and sections, which are trees again.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final

from weft.model.value import Secret

Message = Mapping[str, "str | Secret | Sequence[str] | Message"]
Section = dict[str, "str | list[str] | Section"]

# The kinds of packet.
REQUEST: Final = 0
RESPONSE: Final = 1
REGISTER: Final = 3
UNREGISTER: Final = 4
CONFIRM: Final = 5
EVENT: Final = 7

_SECTION_START: Final = 1
_SECTION_END: Final = 2
_KEY_VALUE: Final = 3
_LIST_START: Final = 4
_LIST_ITEM: Final = 5
_LIST_END: Final = 6
_LENGTH: Final = Struct("!H")
_DEPTH: Final = 16  # of sections in sections; charon's have four


class Unreadable(ValueError):
    pass


def packet(kind: int, name: str, message: Message | None = None) -> bytes:
    """A named packet: a request with its message, or a registration for an event."""
    body = b"" if message is None else encode(message)
    return bytes((kind,)) + _short(name) + body


def encode(message: Message) -> bytes:
    """A name has at most 255 bytes and a text 65,535, else `ValueError` or `struct.error`."""
    return b"".join(_encoded(message))


def _encoded(message: Message) -> Iterator[bytes]:
    for name, value in message.items():
        if isinstance(value, str | Secret):
            yield bytes((_KEY_VALUE,)) + _short(name) + _text(value if isinstance(value, str) else value.reveal())
        elif isinstance(value, Mapping):
            yield bytes((_SECTION_START,)) + _short(name)
            yield from _encoded(value)
            yield bytes((_SECTION_END,))
        else:
            yield bytes((_LIST_START,)) + _short(name)
            yield from (bytes((_LIST_ITEM,)) + _text(item) for item in value)
            yield bytes((_LIST_END,))


def _short(name: str) -> bytes:
    data = name.encode()
    return bytes((len(data),)) + data


def _text(value: str) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def unpack(data: bytes) -> tuple[int, Section]:
    """Read a packet: its kind and its message. Raises `Unreadable`."""
    reader = _Reader(data)
    kind = reader.byte()
    if kind == EVENT:
        reader.name()
    return kind, reader.section(_DEPTH)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def section(self, depth: int) -> Section:
        """Read a tree up to its end; the outermost ends with the bytes."""
        if not depth:
            raise Unreadable("sections in sections without an end")
        found: Section = {}
        while self._at < len(self._data):
            kind = self.byte()
            if kind == _SECTION_END:
                if depth == _DEPTH:
                    raise Unreadable("the end of a section that has not begun")
                return found
            if kind not in (_SECTION_START, _KEY_VALUE, _LIST_START):
                raise Unreadable(f"an element of kind {kind}")
            name = self.name()
            if kind == _SECTION_START:
                found[name] = self.section(depth - 1)
            else:
                found[name] = self.text() if kind == _KEY_VALUE else list(self.items())
        if depth != _DEPTH:
            raise Unreadable("a section without its end")
        return found

    def items(self) -> Iterator[str]:
        while (kind := self.byte()) != _LIST_END:
            if kind != _LIST_ITEM:
                raise Unreadable(f"an element of kind {kind} in a list")
            yield self.text()

    def byte(self) -> int:
        return self._take(1)[0]

    def name(self) -> str:
        return self._take(self.byte()).decode(errors="replace")

    def text(self) -> str:
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        return self._take(length).decode(errors="replace")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise Unreadable(f"{count} bytes expected where {len(self._data) - self._at} are left")
        found, self._at = self._data[self._at : end], end
        return found
