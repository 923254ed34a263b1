"""Elements of sets and maps of nf_tables, as bytes, and the changes that make up a transaction."""

from weft.model.value import Value


class Table(Value, kw_only=False):
    """`family` is `inet`, `ip` or `ip6`."""

    family: str
    name: str

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


class Element(Value):
    """`key` and `data` are concatenated fields, each padded to four bytes; a set's element has no data.

    `comment` has at most 127 bytes of text. `packets` and `octets` are those of its counter, if it has one.
    """

    set: str
    key: bytes
    data: bytes = b""
    comment: str = ""
    packets: int = 0
    octets: int = 0


class Add(Value, kw_only=False):
    """Refused with EEXIST if its key is there, with ENOENT without table or set."""

    element: Element


class Delete(Value, kw_only=False):
    """Delete the element with this one's key; refused with ENOENT if there is none."""

    element: Element


Change = Add | Delete


def replacing(wanted: Element, present: Element | None) -> tuple[Change, ...]:
    if present == wanted:
        return ()
    return (Add(wanted),) if present is None else (Delete(present), Add(wanted))


def field(value: bytes) -> bytes:
    """Pad one field of a concatenation to a whole number of registers."""
    return value + bytes(-len(value) % 4)
