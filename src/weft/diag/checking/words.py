"""The conclusion of a check in words: one line, with the causes and their reasons. Pure."""

from collections.abc import Sequence
from typing import Final

from weft.diag.checking.causes import Cause
from weft.diag.checking.evidence import Evidence, reason
from weft.diag.checking.trial import Fault, Tried
from weft.diag.checking.trips import Place, PlaceKind
from weft.model.text import counted, one_line

# What happens to a packet that fails so, and what such failures are called.
_SAID: Final[dict[Fault, tuple[str, str]]] = {
    "lost": ("is lost", "losses"),
    "unseen": ("is answered by another than its target", "answers of others"),
    "translated": ("arrives from another address than its sender's", "translations"),
    "unrefused": ("is not refused with the MTU of pods", "missing refusals"),
    "shared": ("is to an address that another pod has, too", "packets to addresses of two pods"),
}
_EVERY: Final[dict[PlaceKind, str]] = {
    "anywhere": "",
    "pair": " between {} and {}",
    "direction": " from {} to {}",
    "node": " that passes {}",
    "others": " between {} and others",
    "to": " from others to {}",
    "from": " from {} to others",
    "some": " to or from {}",
}
_SOME: Final = 3  # of several nodes: so many have their names in a sentence
_ALL: Final[dict[PlaceKind, str]] = {
    "anywhere": "have no node in common",
    "pair": "are between {} and {}",
    "direction": "are on the way from {} to {}",
    "node": "pass {}",
    "others": "are between {} and others",
    "to": "are on the way from others to {}",
    "from": "are on the way from {} to others",
    "some": "are to or from {}",
}
_WAYS: Final = {
    "inside": " inside a node",
    "overlay": " through the pod network",
    "underlay": " between addresses of nodes",
    "service": " through Services",
    "host-port": " to ports of pods' nodes",
}


def conclusion(
    tried: Sequence[Tried], causes: Sequence[Cause], evidence: Sequence[Evidence], untried: Sequence[str] = ()
) -> str:
    """What came of a check, on one line: each cause with its reason."""
    if not causes and untried:
        more = f", and {len(untried) - 1} more" if len(untried) > 1 else ""
        return one_line(f"{counted(len(tried), 'trial')}, and none failed; not tried: {untried[0]}{more}")
    if not causes:
        return f"everything reaches everything: {counted(len(tried), 'trial')}, and none failed"
    alone = len(causes) == 1
    return one_line("; ".join(_cause(cause, reason(cause, evidence), alone=alone) for cause in causes))


def _cause(cause: Cause, why: Evidence | None, *, alone: bool) -> str:
    said = sentence(cause, alone=alone)
    if why is None:
        return said
    where = "" if cause.place.nodes == (why.node,) else f"on {why.node}, "
    return f"{said}: {why.problem.code} {where}{why.problem.where}: {why.problem.seen}"


def sentence(cause: Cause, *, alone: bool) -> str:
    """What failed. `alone` if that is all; it is every packet of its kind if none of them passed."""
    verb, noun = _SAID[cause.fault]
    place, nodes = cause.place, _named(cause.place)
    if not cause.passed:
        return f"every {_packets(cause, 'packet')}{_EVERY[place.kind].format(*nodes)} {verb}"
    many = f"{'all ' * (place.kind != 'anywhere')}{noun}" if alone else f"{cause.failed} {noun}"
    kind = f"are of {_packets(cause, 'packets')} and " if cause.traits else ""
    return f"{many} {kind}{_ALL[place.kind].format(*nodes)}"


def _named(place: Place) -> tuple[str, ...]:
    """The nodes of a place; several in one text."""
    if place.kind != "some":
        return place.nodes
    rest = len(place.nodes) - _SOME
    return (", ".join(place.nodes[:_SOME]) + f" and {rest} more" * (rest > 0),)


def _packets(cause: Cause, noun: str) -> str:
    """`IPv6 UDP packets of 1450 bytes through the pod network`: as much as the cause says."""
    traits = dict(cause.traits)
    family = f"IPv{traits['family']} " if "family" in traits else ""
    protocol = f"{traits['protocol'].upper()} " if "protocol" in traits else ""
    size = f" {_sizes(cause)}" if "size" in traits else ""
    return f"{family}{protocol}{noun}{size}{_WAYS[traits['way']] if 'way' in traits else ''}"


def _sizes(cause: Cause) -> str:
    if cause.limit:
        return f"larger than {cause.limit} bytes"
    return f"of {' or '.join(map(str, sorted({each.trial.size for each in cause.examples})))} bytes"
