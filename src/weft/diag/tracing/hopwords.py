"""A packet's way as lines of text, with what each step is, in a sentence for learners. Pure."""

from collections.abc import Mapping
from typing import Final

from weft.diag.tracing.hops import Way
from weft.diag.tracing.sequence import mark

_SENTENCES: Final = {
    "sent by": "The pod has a network namespace of its own; eth0 is one end of a pair of links that leaves it.",
    "host end": "The other end of the pod's pair of links is on the node, as a port of the bridge.",
    "from the pod by": "The bridge is the switch of the node's pods; what is for elsewhere it hands to the node.",
    "received by": "A link takes the packet in.",
    "unwrapped by": "The kernel takes the outer headers off; what was inside comes as if by this device.",
    "forwarding": "A machine passes on what is not for itself only if this setting is on.",
    "policy": "Rules (ip rule) choose by addresses, links or marks in which table the route is looked up.",
    "route": "Of all routes that have the target the one with the longest prefix says by which link it leaves.",
    "DNAT": "A rule gives the packet another destination before it is routed: so a Service's address leads to a pod.",
    "size": "What must not be fragmented passes no link that carries less; the kernel tells its sender how much fits.",
    "SNAT": "A rule gives the packet another source before it leaves, so that the answer comes back to this node.",
    "conntrack": "The kernel remembers each connection that it translated, and changes the answers back.",
    "hairpin": "A bridge sends nothing back by the port it came from, unless the port is in hairpin mode.",
    "out by": "The link by which the packet leaves; a packet longer than its MTU does not fit.",
    "neighbour": "The entry that says which MAC has an address; in an overlay weft writes it, without ARP.",
    "FDB": "The entry of a VXLAN device that says behind which node's address a MAC is.",
    "loopback": "What is for a place's own address does not leave it: its own loopback link carries it.",
    "peer": "The device itself knows which node has the target.",
    "outer packet by": "The whole packet is inside another one now, from node to node, which leaves by this link.",
    "outer packet": "The whole packet is inside another one now, which needs a route to the other node.",
    "sent": "This node has done its part; the next one takes over.",
    "delivered": "It has come to where it was sent to.",
    "delivery": "The route leads away from where the target is.",
    "pod": "Nothing on this node leads to the source, so no packet of it comes in.",
}
# What is asked at a hook bears its name.
_AT_HOOKS: Final = {
    "rules": "Programs hang rules into the packet filter; each chain is asked, and one that drops is enough.",
    "NAT": "Rules here may give the packet another address.",
}


def sentence(what: str) -> str:
    """Say what a step is, by its name."""
    kind, _, hook = what.partition(" at ")
    return _AT_HOOKS[kind] if hook else _SENTENCES[what]


def lines(way: Way, counted: Mapping[str, int] | None = None, *, explain: bool = False) -> list[str]:
    """A way for people; `counted` says how many probes were seen at its devices, where that was tried.

    With `explain` a sentence says what each step is.
    """
    width = max((len(hop.what) for hop in way.hops), default=0)
    found = []
    for number, hop in enumerate(way.hops, 1):
        seen = None if counted is None else counted.get(hop.device)
        count = "" if counted is None else f" {'' if seen is None else f'+{seen}' if seen else '0':2}"
        found.append(f"  {number:2} {mark(hop)}{count} {hop.what:{width}}  {hop.seen}")
        if explain:
            found.append(f"       {sentence(hop.what)}")
    return [*found, f"     {way.end}{f': {way.problem}' if way.problem is not None else ''}"]
