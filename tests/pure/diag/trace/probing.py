"""A way between two pods of two nodes, and probes that were seen on it."""

from typing import Any

from weft.diag.trace.hops import End, Hop, Way, legs
from weft.diag.trace.probes import ProbesSeen

POD1 = End(node="node1", address="10.244.1.2", pod="pod1", host_end="veth1")


POD2 = End(node="node2", address="10.244.2.2", pod="pod2", host_end="veth2")


def hops(*devices: str) -> tuple[Hop, ...]:
    """`what:device`, or what alone."""
    pairs = (each.partition(":") for each in devices)
    return tuple(Hop(what=what, seen="", device=device) for what, _, device in pairs)


OUT = Way(hops=hops("from the pod by:cni0", "route", "out by:flannel.1", "outer packet by:eth0"), end="sent")


IN = Way(hops=hops("received by:eth0", "unwrapped by:flannel.1", "out by:cni0"), end="delivered")


FIRST: Any = ("node1", {"there": OUT, "back": IN})


KNOWN: Any = [FIRST, ("node2", {"there": IN, "back": OUT})]


NUMBERS = [1, 3, 5]


def seen_up_to(lost_at: int, visits: Any = None, end: End = POD2, **fields: Any) -> ProbesSeen:
    """What is counted if three probes pass the devices before this one and none behind it."""
    passing = [(leg, hop) for leg in legs(POD1, end, visits or KNOWN) for hop in leg.way.hops if hop.device]
    came = {(leg.place, hop.device, leg.direction): set(NUMBERS) for leg, hop in passing[:lost_at]}
    return ProbesSeen(seen=came, **fields)
