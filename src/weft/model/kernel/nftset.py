"""Elements of nf_tables sets and maps, as bytes, and the changes of a transaction."""

from weft.model.value import Value


class Table(Value, kw_only=False):
    """`family` is `inet`, `ip`, `ip6` or `bridge`."""

    family: str
    name: str

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


class Element(Value):
    set: str
    key: bytes  # concatenated fields (`field`), as `data`
    data: bytes = b""
    verdict: str = ""  # in a map of verdicts, in place of `data`: `accept`, `drop` or the chain to go to
    comment: str = ""  # at most 127 bytes
    packets: int = 0
    octets: int = 0
    left: int = 0  # milliseconds until it goes by itself; 0: it stays


class RuleSeen(Value):
    """`leads` is `accept`, `drop`, `return` or the chain that it jumps or goes to, empty for none of them."""

    chain: str
    comment: str
    leads: str
    packets: int  # of its first counter
    handle: int = 0


class Add(Value, kw_only=False):
    """Refused with EEXIST if the key exists, with ENOENT without table or set."""

    element: Element


class Delete(Value, kw_only=False):
    """Delete the element with this key; ENOENT if there is none."""

    element: Element


class Empty(Value, kw_only=False):
    """Delete all rules of a chain; ENOENT if there is none."""

    chain: str


class DeleteChain(Value, kw_only=False):
    """EBUSY while a rule or an element leads to it."""

    chain: str


class DeleteSet(Value, kw_only=False):
    """A set or a map, with its elements; EBUSY while a rule asks it."""

    set: str


class DeleteTable(Value, kw_only=False):
    """With all that is in it."""


Change = Add | Delete | Empty | DeleteChain | DeleteSet | DeleteTable


def replacing(wanted: Element, present: Element | None) -> tuple[Change, ...]:
    if present == wanted:
        return ()
    return (Add(wanted),) if present is None else (Delete(present), Add(wanted))


def field(value: bytes) -> bytes:
    """Pad one field of a concatenation to a multiple of 4 bytes."""
    return value + bytes(-len(value) % 4)
