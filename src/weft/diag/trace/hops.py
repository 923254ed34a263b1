"""A packet's way: the steps on one node and how they end, and the legs in pods and on nodes, there and back. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from weft.model.errors import Problem
from weft.model.value import Value, field, replace

OUTSIDE: Final = "outside"  # the place around all nodes: in a lab, the switch to which they are joined
NAT_ON_LEAVING: Final = "NAT at postrouting"
Ending = Literal["delivered", "sent", "dropped", "undecided", "lost"]

Direction = Literal["there", "back"]


class Hop(Value):
    """A step: `what` was asked, and the row `seen` that decided.

    `passes` is what was predicted, None where nothing decides. The packet itself can be seen at a `device`. Chance may
    choose one of `others` instead of the address that `seen` names. `reached` is false where probes were sent and none
    came. `suspect` is the likely cause of a loss here.
    """

    what: str
    seen: str
    passes: bool | None = True
    device: str = ""
    others: tuple[str, ...] = ()
    reached: bool = True
    suspect: Problem | None = None


class Addressed(Value):
    """A packet's addresses, and its ports if it has any."""

    source: str
    target: str
    source_port: int = 0
    target_port: int = 0


class Way(Value):
    """The hops on one node. A `sent` packet goes `to` another node's address, wrapped in `carried`.

    `packet` is how it leaves, behind NAT. It is `lost` if probes were sent and none came to the end.
    """

    hops: tuple[Hop, ...]
    end: Ending
    to: str = ""
    carried: str = ""
    problem: Problem | None = None
    packet: Addressed | None = None


class End(Value):
    """Where packets come from or go to: an address of a node or pod, or `OUTSIDE`.

    The pod's `device` leads to the node's `host_end`.
    """

    node: str
    address: str
    pod: str = ""
    host_end: str = ""
    device: str = "eth0"

    @property
    def place(self) -> str:
        return self.pod or self.node

    @property
    def is_apart(self) -> bool:
        """True for a place of its own, beside the nodes on the way."""
        return bool(self.pod) or self.node == OUTSIDE


class Leg(Value):
    """A packet's way on one node, or in a `pod` of it, with the probes `counted` at its devices."""

    node: str
    direction: Direction
    way: Way
    pod: str = ""
    counted: dict[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return self.pod or self.node


Ways = dict[Direction, Way]  # both directions on a node, as `weft trace -o json` prints them
# The way on the node of what does not leave a pod.
LOOPBACK: Final = (Hop(what="loopback", seen="lo in the pod, as the address is its own: the packet does not leave it"),)
# A node, and both ways on it. A packet to a Service may come to one twice.
Visit = tuple[str, Ways]


def legs(source: End, target: End, visits: Sequence[Visit]) -> list[Leg]:
    """Return the legs in turn, up to a drop; `visits` are nodes in the packet's order."""
    found: list[Leg] = []
    for leg in _legs(source, target, visits):
        found.append(leg)
        if leg.way.end == "dropped":
            break
    return found


def _legs(source: End, target: End, visits: Sequence[Visit]) -> Iterator[Leg]:
    if source.pod and visits[0][1]["there"].hops[:1] == LOOPBACK:
        hop = replace(LOOPBACK[0], device="lo")
        yield _apart(source, "there", hop, "delivered")
        yield _apart(source, "back", hop, "delivered")
        return
    directions: tuple[tuple[Direction, End, End, Sequence[Visit]], ...] = (
        ("there", source, target, visits),
        ("back", target, source, visits[::-1]),
    )
    for direction, here, there, order in directions:
        if here.is_apart:
            yield _apart(here, direction, Hop(what="sent by", seen=here.device, device=here.device), "sent")
        for number, (node, ways) in enumerate(order):
            way = ways[direction]
            if number == 0 and here.host_end and here.node == node:
                way = replace(way, hops=(*_host_end(here, way), *way.hops))
            if number == len(order) - 1 and there.host_end and there.node == node and way.end != "dropped":
                way = replace(way, hops=(*way.hops, *_host_end(there, way)))
            yield Leg(node=node, direction=direction, way=way)
        if there.is_apart:
            yield _apart(there, direction, Hop(what="received by", seen=there.device, device=there.device), "delivered")


def _apart(end: End, direction: Direction, hop: Hop, ends: Literal["sent", "delivered"]) -> Leg:
    return Leg(node=end.node, pod=end.pod, direction=direction, way=Way(hops=(hop,), end=ends))


def _host_end(end: End, way: Way) -> Iterator[Hop]:
    if all(hop.device != end.host_end for hop in way.hops):
        yield Hop(what="host end", seen=f"{end.host_end}, of {end.pod}", device=end.host_end)


def unreached(found: Sequence[Leg], number: int, device: str) -> list[Leg]:
    return [leg if at < number else _unreached(leg, device if at == number else "") for at, leg in enumerate(found)]


def _unreached(leg: Leg, device: str) -> Leg:
    hops, reached = list[Hop](), bool(device)
    for hop in leg.way.hops:
        reached = reached and hop.device != device
        hops.append(replace(hop, reached=reached))
    return replace(leg, way=replace(leg.way, hops=tuple(hops), end="lost", problem=None))


def counted(leg: Leg, at: Callable[[str, str, Direction], int]) -> Leg:
    """Count the probes at each device of a leg; `at` takes place, device and direction."""
    devices = (hop.device for hop in leg.way.hops if hop.device)
    return replace(leg, counted={each: at(leg.place, each, leg.direction) for each in devices})
