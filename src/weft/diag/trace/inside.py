"""What loses packets inside a pod: its own link, addresses, routes, rules and settings, by a sight of its namespace.

A pod is asked as a node is, when its node has seen packets end there.
"""

from ipaddress import ip_address
from typing import Final

from weft.diag.finding import CONCLUDED
from weft.diag.rules.matching import ECHO, Packet
from weft.diag.sight.look import inside
from weft.diag.sight.node import Sight
from weft.diag.sight.pods import Pods
from weft.diag.sight.routing import is_own
from weft.diag.trace.hops import End, Way
from weft.diag.trace.predict import Entry, addressed, follow
from weft.diag.trace.probe_report import TraceReport
from weft.model.errors import Problem
from weft.model.kernel.marks import ECHOES_IGNORED
from weft.model.kernel.reported import NO_CARRIER
from weft.model.net import Ip
from weft.model.value import replace

_NOT_SEEN: Final = (*CONCLUDED, "CHECK-001")
_RECREATE: Final = "Something has changed it since the pod was made. Recreate the pod"
_UNHEARD: Final = (
    "It is gone, or the pod's question is dropped on the way: nftrace follows probes alone, so see chains of families"
    " netdev, bridge and arp ('nft list ruleset')"
)
_OWN: Final = "Something in the pod has set it: see the program there, or recreate the pod"


def explained(found: TraceReport, pods: Pods, begin: End, end: End, *, sent: Packet, way: Way) -> TraceReport:
    """Look into the pods of a trace that has not seen what loses the packet. `way` was foretold of it.

    Of an answer that comes back to the sender's link, its own rules are asked, which no device shows.
    """
    told = found.ruling is not None or (found.problem is not None and found.problem.code == "MTU-001")
    if told or not (found.well or _may_be_inside(found.problem, begin, end)):
        return found
    sender = pods.run(begin.pod, inside) if begin.pod else None
    own = None if sender is None else of_sender(sender, begin, sent)
    if own is None and end.pod and not found.well:
        arrived = way.packet or addressed(sent)
        source, target = ip_address(arrived.source), ip_address(arrived.target)
        there = replace(sent, source=source, target=target, target_port=arrived.target_port)
        own = of_receiver(pods.run(end.pod, inside), end, there)
    seen = found.problem is not None and found.problem.code not in _NOT_SEEN
    if own is None and sender is not None and not (found.well or seen):
        unheard = _unheard(sender, begin, sent)
        own = unheard and (way.problem or unheard)  # what holds up the packet holds up the question for a MAC, too
    return found if own is None else replace(found, problem=own, verdict=str(own), well=False)


def _may_be_inside(problem: Problem | None, begin: End, end: End) -> bool:
    return problem is None or problem.code in _NOT_SEEN or problem.where in (begin.place, end.place)


def of_sender(sight: Sight, end: End, packet: Packet) -> Problem | None:
    """Of the packet, and of its answer when that has come back."""
    found = _of_link(sight, end, packet.source) or _dropped(sight, end, packet, Entry(kind="node"))
    return found or _dropped(sight, end, _answer(packet), Entry(kind="remote"), original=packet)


def of_receiver(sight: Sight, end: End, packet: Packet) -> Problem | None:
    ignored = ECHOES_IGNORED[packet.target.version]
    found = _of_link(sight, end, packet.target) or _dropped(sight, end, packet, Entry(kind="remote"))
    if found is None and packet.protocol == ECHO[packet.target.version] and sight.settings.get(ignored) == "1":
        found = Problem(
            "CHECK-002", f"pod {end.pod}", f"its sysctl {ignored} is 1: it answers no echo request", hint=_OWN
        )
    return found or _dropped(sight, end, _answer(packet), Entry(kind="node"), original=packet)


def _answer(packet: Packet) -> Packet:
    ports = {"source_port": packet.target_port, "target_port": packet.source_port}
    return replace(packet, source=packet.target, target=packet.source, state="established", **ports)


def _of_link(sight: Sight, end: End, address: Ip) -> Problem | None:
    link, where = sight.link(end.device), f"{end.device} of pod {end.pod}"
    if link is None or not link.up:
        return Problem("CHECK-001", where, "it is down", expected="up", hint=_RECREATE)
    if link.operstate in NO_CARRIER:
        seen = "it has no carrier: the node's end of it is down"
        return Problem("CHECK-001", where, seen, hint="'weft doctor' has the command that sets it up")
    if not is_own(sight, address):
        return Problem("CHECK-001", where, f"it has lost {address}", hint=_RECREATE)
    return None


def _unheard(sight: Sight, end: End, packet: Packet) -> Problem | None:
    """The next machine does not tell the pod its MAC: most often it is this node, which is not off."""
    way = follow(sight, packet, Entry(kind="node"))
    suspects = (hop.suspect for hop in way.hops if hop.suspect is not None)
    return next((replace(each, where=f"pod {end.pod}", hint=_UNHEARD) for each in suspects), None)


def _dropped(sight: Sight, end: End, packet: Packet, entry: Entry, *, original: Packet | None = None) -> Problem | None:
    way = follow(sight, packet, entry, original=original)
    if way.end != "dropped" or way.problem is None:
        return None
    hint = _RECREATE if way.problem.code.startswith(("ROUTE", "IFACE")) else _OWN
    return replace(
        way.problem,
        code="CHECK-002",
        where=f"pod {end.pod}",
        seen=f"{way.hops[-1].what}: {way.problem.seen}",
        hint=hint,
    )
