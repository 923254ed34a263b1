"""A packet's way as people see it: lines of text, and a sequence diagram in Mermaid's language. Pure.

GitHub and GitLab draw such a diagram within Markdown.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from weft.diag.trace.hops import Hop, Way
from weft.model.text import one_line
from weft.model.value import Value, field

_MARKS: Final = {True: "✓", False: "✗", None: "?"}
_NOT_REACHED: Final = "·"
_ENTITIES: Final = {"#": "#35;", ";": "#59;", "<": "#lt;", ">": "#gt;"}
_SENTENCES: Final = {
    "sent by": "The pod has a network namespace of its own; eth0 is one end of a pair of links that leaves it.",
    "host end": "The other end of the pod's pair of links is on the node, as a port of the bridge.",
    "from the pod by": "The bridge is the switch of the node's pods; what is for elsewhere it hands to the node.",
    "received by": "A link takes the packet in.",
    "unwrapped by": "The kernel takes the outer headers off; what was inside comes as if by this device.",
    "forwarding": "A machine passes on what is not for itself only if this setting is on.",
    "policy": "Rules (ip rule) choose by addresses, links or marks in which table the route is looked up.",
    "policies": "NetworkPolicies of the sending pod say what leaves it, those of the other pod what enters it.",
    "route": "Of all routes that have the target the one with the longest prefix says by which link it leaves.",
    "DNAT": "A rule gives the packet another destination before it is routed: so a Service's address leads to a pod.",
    "size": "What must not be fragmented passes no link that carries less; the kernel tells its sender how much fits.",
    "SNAT": "A rule gives the packet another source before it leaves, so that the answer comes back to this node.",
    "conntrack": "The kernel remembers each connection that it translated, and changes the answers back.",
    "hairpin": "A bridge sends nothing back by the port it came from, unless the port is in hairpin mode.",
    "port": "A pod's link leads to the bridge only as a port of it.",
    "out by": "The link by which the packet leaves; a packet longer than its MTU does not fit.",
    "neighbour": "The entry that says which MAC has an address; in an overlay weft writes it, without ARP.",
    "fixed MAC": "Somebody has written which MAC has an address, for good: the kernel never asks whether it is right.",
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
    kind, _, hook = what.partition(" at ")
    return _AT_HOOKS[kind] if hook else _SENTENCES[what]


def lines(way: Way, counted: Mapping[str, int] | None = None, *, explain: bool = False) -> list[str]:
    """`counted` says how many probes were seen at the devices, if any were sent."""
    width = max((len(hop.what) for hop in way.hops), default=0)
    found = []
    for number, hop in enumerate(way.hops, 1):
        seen = None if counted is None else counted.get(hop.device)
        count = "" if counted is None else f" {'' if seen is None else f'+{seen}' if seen else '0':2}"
        found.append(f"  {number:2} {mark(hop)}{count} {hop.what:{width}}  {hop.seen}")
        if explain:
            found.append(f"       {sentence(hop.what)}")
    return [*found, f"     {way.end}{f': {way.problem}' if way.problem is not None else ''}"]


class Stage(Value):
    """A way at one place (a node, a pod, an address); `counted` are probes seen at its devices."""

    place: str
    way: Way
    back: bool = False
    counted: dict[str, int] = field(default_factory=dict)


def diagram(stages: Sequence[Stage]) -> str:
    """A note says what is passed at each place, and an arrow leads to the next."""
    names = {place: f"p{number}" for number, place in enumerate(dict.fromkeys(stage.place for stage in stages))}
    found = ["sequenceDiagram", *(f"  participant {name} as {_escaped(place)}" for place, name in names.items())]
    for stage, following in zip_longest(stages, stages[1:]):
        found += _of(stage, following, names)
    return "\n".join(found) + "\n"


def _of(stage: Stage, following: Stage | None, names: dict[str, str]) -> Iterator[str]:
    own, way = names[stage.place], stage.way
    if way.hops:
        yield f"  Note over {own}: {'<br/>'.join(_escaped(_hop(hop, stage)) for hop in way.hops)}"
    if way.end == "dropped":
        yield f"  {own}-x{own}: {_escaped(str(way.problem))}"
    elif way.end == "lost":
        yield f"  {own}-x{own}: lost"
    elif following is not None and following.place != stage.place:
        arrow = "-->>" if stage.back else "->>"
        yield f"  {own}{arrow}{names[following.place]}: {_escaped(way.carried or way.end)}"


def _hop(hop: Hop, stage: Stage) -> str:
    seen = stage.counted.get(hop.device)
    count = "" if seen is None else f"+{seen} " if seen else "0 "
    return f"{mark(hop)} {count}{hop.what}: {hop.seen}"


def mark(hop: Hop) -> str:
    """The sign before a step: it passes, does not, cannot be told, or none came to it."""
    return _MARKS[hop.passes] if hop.reached else _NOT_REACHED


def _escaped(text: str) -> str:
    return "".join(_ENTITIES.get(each, each) for each in one_line(text))
