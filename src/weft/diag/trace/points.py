"""The devices that a trace's probes should pass, and between which of them they were lost. Pure."""

from collections.abc import Iterator
from itertools import dropwhile, pairwise, takewhile
from typing import Final, Self

from weft.diag.trace.hops import Direction, Leg
from weft.model.errors import Problem
from weft.model.value import Value

WRAPPED_BY: Final = "outer packet by"
_SENDING: Final = ("sent by", "out by", WRAPPED_BY)
_BEFORE_LINK: Final = ("neighbour", "fixed MAC", "outer packet")  # where something may be suspected of the next device
_ASKING: Final = 4  # links of a pod, of its port, of another port, and of the pod there


class Point(Value):
    """A device on leg number `leg` that probes should pass, and how many did; `suspect` may have lost them."""

    leg: int
    node: str
    place: str
    what: str
    device: str
    direction: Direction
    seen: int
    suspect: Problem | None = None

    @property
    def unseen(self) -> Self | None:
        """None if any probe came."""
        return None if self.seen else self

    @property
    def did(self) -> str:
        return "sent" if self.what in _SENDING else "received"


def parted(legs: list[Leg], sent: int) -> tuple[Point | None, Point] | None:
    """Return the devices between which probes were lost first, None if all came to the end.

    A device that saw none where a later one did has lost nothing: a cipher passes it.
    """
    found = list(points(legs))
    alive = sent
    for number, (before, after) in enumerate(pairwise([None, *found])):
        later = max(point.seen for point in found[number:])
        if after is not None and later < alive:
            return before, after
        alive = later
    return None


def points(legs: list[Leg]) -> Iterator[Point]:
    """In the order in which they are passed."""
    for number, leg in enumerate(legs):
        suspect = None
        for hop in leg.way.hops:
            suspect = hop.suspect or suspect if hop.what in _BEFORE_LINK else suspect
            if hop.device:
                yield Point(
                    leg=number,
                    node=leg.node,
                    place=leg.place,
                    what=hop.what,
                    device=hop.device,
                    direction=leg.direction,
                    seen=leg.counted.get(hop.device, 0),
                    suspect=suspect,
                )
                suspect = None


def passed(legs: list[Leg], before: Point | None, after: Point) -> list[tuple[str, str]]:
    """The devices on the way through the place of a loss, which may be lost ahead of a device that answers no ARP."""
    start = before if before is not None and before.node == after.node else after
    ahead = dropwhile(lambda point: (point.leg, point.device) != (start.leg, start.device), points(legs))
    here = takewhile(lambda point: (point.node, point.direction) == (start.node, start.direction), ahead)
    return [(point.place, point.device) for point in here]


def sides(legs: list[Leg], before: Point | None, after: Point) -> list[tuple[str, str]]:
    """The devices on both sides of a loss, and where nothing was sent, those that pass the question for a MAC."""
    ahead = passed(legs, None, after)[: _ASKING if after.what in _SENDING and not after.seen else 1]
    return [*([(before.place, before.device)] if before is not None else []), *ahead]


def around(before: Point | None, after: Point) -> list[str]:
    """The places and nodes on both sides of a loss."""
    known = (point for point in (before, after) if point is not None)
    return list(dict.fromkeys(each for point in known for each in (point.place, point.node)))
