"""A way between two pods of two nodes, and probes that were seen on it."""

from collections.abc import Sequence
from typing import Any

from weft.diag.trace.hops import End, Hop, Way, legs
from weft.diag.trace.probe_report import Following
from weft.diag.trace.probes import Kind, Probe, ProbesSeen

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


def following(
    begin: End = POD1,
    end: End = POD2,
    *,
    kind: Kind = "icmp",
    numbers: Sequence[int] = NUMBERS,
    size: int = 0,
    beyond: str = "",
    source: str = "a",
    target: str = "b",
) -> Following:
    probe = Probe(
        source=begin.place,
        address=begin.address,
        target=end.address,
        kind=kind,
        numbers=list(numbers),
        sizes=[size] * len(numbers) if size else [],
    )
    return Following(source=source, target=target, probe=probe, begin=begin, end=end, beyond=beyond)


def seen_up_to(lost_at: int, visits: Any = None, end: End = POD2, **fields: Any) -> ProbesSeen:
    """What is counted if three probes pass the devices before this one and none behind it."""
    passing = [(leg, hop) for leg in legs(POD1, end, visits or KNOWN) for hop in leg.way.hops if hop.device]
    came = {(leg.place, hop.device, leg.direction): set(NUMBERS) for leg, hop in passing[:lost_at]}
    return ProbesSeen(seen=came, **fields)
