"""Elements of sets and maps of nf_tables, as bytes, whatever they mean, and the changes that make up a transaction."""

from weft.model.value import Value


class Table(Value, kw_only=False):
    """A table by family (`inet`, `ip`, `ip6`) and name."""

    family: str
    name: str

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


class Element(Value):
    """`key` and `data` are the concatenated fields, each padded to four bytes; a set's element has no data.

    `comment` is what `nft list` shows: at most 128 bytes with its end, so 127 of text. `packets` and `octets` are what
    its counter has counted, where it has one.
    """

    set: str
    key: bytes
    data: bytes = b""
    comment: str = ""
    packets: int = 0
    octets: int = 0


class Add(Value, kw_only=False):
    """Add an element; refused with EEXIST if its key is there, with ENOENT without table or set."""

    element: Element


class Delete(Value, kw_only=False):
    """Delete the element with this one's key; refused with ENOENT if there is none."""

    element: Element


Change = Add | Delete


def replacing(wanted: Element, present: Element | None) -> tuple[Change, ...]:
    """Return what puts an element in place of the one that its key has now."""
    if present == wanted:
        return ()
    return (Add(wanted),) if present is None else (Delete(present), Add(wanted))


def field(value: bytes) -> bytes:
    """Pad one field of a concatenation to a whole number of registers."""
    return value + bytes(-len(value) % 4)
