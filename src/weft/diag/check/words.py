"""The conclusion of a check in words: one line, with the causes and their reasons. Pure."""

from collections.abc import Sequence
from typing import Final

from weft.diag.check.causes import Cause
from weft.diag.check.evidence import Evidence, reason
from weft.diag.check.trial import Fault, Tried
from weft.diag.check.trips import Place, PlaceKind
from weft.model.text import counted, one_line

# What happens to a packet that fails so, what has happened to one, and to several.
_SAID: Final[dict[Fault, tuple[str, str, str]]] = {
    "lost": ("is lost", "was lost", "were lost"),
    "narrow": ("is refused with a smaller MTU", "was refused with a smaller MTU", "were refused with a smaller MTU"),
    "unseen": (
        "is answered by another than its target",
        "was answered by another than its target",
        "were answered by others than their targets",
    ),
    "translated": (
        "arrives from another address than its sender's",
        "arrived from another address than its sender's",
        "arrived from other addresses than their senders'",
    ),
    "shared": (
        "is to an address that another pod has, too",
        "was to an address that another pod has, too",
        "were to addresses that other pods have, too",
    ),
    "unrefused": ("vanishes", "vanished", "vanished"),
}
_PLACES: Final[dict[PlaceKind, str]] = {
    "anywhere": "",
    "pair": " between {} and {}",
    "direction": " from {} to {}",
    "node": " from or to {}",
    "others": " between {} and others",
    "to": " from others to {}",
    "from": " from {} to others",
    "some": " to or from {}",
}
_SOME: Final = 3  # of several nodes: so many have their names in a sentence
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
    """What failed. It is every packet of its kind if none of them passed; `alone` if no other kind failed."""
    now, once, several = _SAID[cause.fault]
    where = _PLACES[cause.place.kind].format(*_named(cause.place))
    if cause.fault == "unrefused":
        return f"packets that are too large{where} {_too_large(cause)}"
    if cause.partly:
        return f"some {_packets(cause, 'packets')}{where} {several}, others like them were not"
    if not cause.passed:
        return f"every {_packets(cause, 'packet')}{where} {now}"
    if not alone or not (where or cause.traits):
        count = f"{cause.failed} {_packets(cause, 'packet' if cause.failed == 1 else 'packets')}"
        said = f"{count}{where} {once if cause.failed == 1 else several}"
        return f"{said}, with no node in common" if alone and not where else said
    which = "every lost packet" if cause.fault == "lost" else f"every packet that {now}"
    kind = f" one of the {_packets(cause, 'packets')}" if cause.traits else ""
    return f"{which} is{kind}{where}"


def _too_large(cause: Cause) -> str:
    """What becomes of packets of which nobody says that they are too large, or says it wrongly."""
    outcomes = [each.outcome for each in cause.examples]
    told = sorted({each.refused for each in outcomes if each.refused})
    if told:
        return f"are refused with an MTU of {' or '.join(map(str, told))}, which is not that of pods"
    if any(each.answered for each in outcomes):
        return "arrive, though pods' MTU is smaller"
    return 'vanish: no "fragmentation needed" comes back'


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
