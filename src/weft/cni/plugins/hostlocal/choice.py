"""Which address of a range set a container gets: round robin from the last one given (cni.md §4.3)."""

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv6Address

from weft.cni.plugins.hostlocal.conf import Range, RangeSet
from weft.model.net import Ip


def candidates(ranges: RangeSet, last: Ip | None) -> Iterator[tuple[Ip, Range]]:
    """Yield every address of the set once, gateways left out, from the one after `last` (itself the last one).

    Without `last`, or if it lies outside the set, it starts with the first address of the first range. A gateway is
    only skipped in its own range.
    """
    start = next((index for index, one in enumerate(ranges) if last is not None and last in one), None)
    if start is None or last is None:
        for one in ranges:
            yield from _addresses(one, int(one.first), int(one.last))
        return
    here = ranges[start]
    yield from _addresses(here, int(last) + 1, int(here.last))
    for one in (*ranges[start + 1 :], *ranges[:start]):
        yield from _addresses(one, int(one.first), int(one.last))
    yield from _addresses(here, int(here.first), int(last))


def _addresses(one: Range, first: int, last: int) -> Iterator[tuple[Ip, Range]]:
    kind: type[IPv4Address | IPv6Address] = type(one.first)
    for number in range(first, last + 1):
        ip = kind(number)
        if ip != one.gateway:
            yield ip, one


def pick_requested(ranges: RangeSet, requested: Collection[Ip]) -> tuple[Ip, Range] | None:
    """Return the first requested address that lies in the set, with its range."""
    return next(((ip, one) for ip in requested for one in ranges if ip in one), None)
