"""Segments of the underlay that are behind a NAT: rules of the lab's router, as one transaction for nft. Pure.

What their nodes begin leaves with the router's address in the other segment, and answers come back; what others begin
is dropped. The store is the router's own, so it knows nodes by their own addresses.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from weft.model.kernel.nftset import Table
from weft.wire import nft

TABLE: Final = Table("inet", "weft-lab-nat")


def transaction(bridges: Iterable[str]) -> str:
    """Write what translates for the segments with these bridges."""
    return nft.payload(_lines(bridges))


def _lines(bridges: Iterable[str]) -> Iterator[str]:
    yield f"add table {TABLE}"
    yield f"add chain {TABLE} forward {{ type filter hook forward priority filter; }}"
    yield f"add chain {TABLE} postrouting {{ type nat hook postrouting priority srcnat; }}"
    for bridge in bridges:
        yield f'add rule {TABLE} forward iifname != "{bridge}" oifname "{bridge}" ct state new drop'
        yield f'add rule {TABLE} postrouting iifname "{bridge}" oifname != "{bridge}" masquerade'
