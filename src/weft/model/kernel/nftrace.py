"""Which packets nf_tables is to tell of, and what it tells (nftrace)."""

from typing import Final, Literal

from weft.model.value import Value

TABLE: Final = "weft-trace"  # what the names of tables begin with that have packets traced


class Pattern(Value, kw_only=False):
    """Packets whose bytes from `offset` on, behind the IP header, are from `first` to `last` in order of bytes.

    Both are as long, at most 16 bytes.
    """

    offset: int
    first: bytes
    last: bytes


class Step(Value):
    """What nf_tables did with a packet: the verdict of a rule, or of a chain's policy, or a chain's end.

    `handle` is the rule's, 0 for others. `verdict` is `drop`, `accept`, or where it goes on: `jump NAME`. `packet` is
    the same number for all steps of a packet in one turn of hooks, and the first one in a chain has its IP `header`.
    `iif` and `oif` are numbers of links, 0 for none.
    """

    packet: int
    family: str
    table: str
    chain: str
    kind: Literal["policy", "return", "rule"]
    handle: int
    verdict: str
    iif: int = 0
    oif: int = 0
    header: bytes = b""
