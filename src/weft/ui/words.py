"""What the page says of a lab and of events: Services, traffic, links, and which nodes an event is about. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from weft.lab import links
from weft.lab.links import ITSELF
from weft.lab.report import LabReport, NodeReport, TrafficReport
from weft.model.node.history import Event
from weft.model.text import shown_amount
from weft.model.value import fields_of
from weft.ui.measuring import Pair


def services(report: LabReport) -> dict[str, dict[str, Any]]:
    """`target` is what a trace calls it."""
    return {
        f"service/{each.name}": {
            "name": each.name,
            "target": f"{each.name}:{each.port}",
            "addresses": each.addresses,
            "port": each.port,
            "protocol": each.protocol,
            "node_port": each.node_port,
            "pods": list(dict.fromkeys(end.pod for end in each.endpoints)),
        }
        for each in report.services
    }


def traffic(report: TrafficReport) -> dict[str, Any]:
    """In words; idle ones are left out."""
    return {
        "pods": {
            each.name: f"sends {shown_amount(each.sent_bytes)}B/s, receives {shown_amount(each.received_bytes)}B/s"
            for each in report.pods
            if each.sent_bytes or each.received_bytes
        },
        "ways": {
            f"{each.source}/{each.target}": f"{shown_amount(each.bytes)}B/s"
            + (f", {each.lost:.0f} packets/s lost" if each.lost else "")
            for each in report.ways
        },
    }


def segment(report: LabReport, node: NodeReport) -> list[str]:
    """If the lab has several segments."""
    return [f"segment {node.segment}"] if len({each.segment for each in report.nodes}) > 1 else []


def notes(report: LabReport, node: NodeReport) -> list[str]:
    """Its link's conditions, and cuts from the store."""
    conditions = links.words(node.link)
    said = [f"link: {conditions}"] if conditions else []
    from_store = [cut for cut in report.cuts if node.name in (cut.source, cut.target) and _is_of_store(cut)]
    return [*said, *map(_link_words, from_store)]


def cuts(report: LabReport) -> dict[Pair, list[str]]:
    """In words, by the nodes in the lab's order."""
    order = [node.name for node in report.nodes]
    found: dict[Pair, list[str]] = {}
    for cut in report.cuts:
        if not _is_of_store(cut):
            one, other = sorted((cut.source, cut.target), key=order.index)
            found.setdefault((one, other), []).append(_link_words(cut))
    return found


def _is_of_store(cut: links.Cut) -> bool:
    return links.STORE in (cut.source, cut.target)


def _link_words(cut: links.Cut) -> str:
    return f"cut by the lab: {cut.source} → {cut.target}"


def told(node: str, event: Event, names: Mapping[str, str]) -> dict[str, Any]:
    """`what` is for people, after the name of the node that tells it.

    `about` are the nodes whose event it is, `pairs` those between which something has changed.
    """
    words = [word.strip(",;") for word in event.subject.split()]
    peer = next((names[word] for word in words if word in names and names[word] != node), "")
    about, pairs, what = [node], [[node, peer]] if peer else [], _what(event, peer, names)
    if node == ITSELF:
        ones, _, others = event.subject.replace(" ↔ ", " → ").partition(" → ")
        sides = [[word for word in re.split("[ ,/]", side) if word in names.values()] for side in (ones, others)]
        about, pairs = sides[0] + sides[1], [[one, other] for one in sides[0] for other in sides[1]]
        what = f"{event.kind} {event.subject}"
    piece = {**fields_of(event), "blame": event.blame, "node": node, "about": about, "pairs": pairs, "what": what}
    return {"id": f"{node}/{event.number}/{event.time}", **piece}


_SEEN: Final = {
    "joined": "sees {}",
    "left": "does not see {} any more",
    "changed": "sees {} changed",
}


def _what(event: Event, peer: str, names: Mapping[str, str]) -> str:
    """The other node is the subject of a change of its own."""
    subject = _subnets(event.subject) if event.subject in names else event.subject
    if event.kind in _SEEN:
        return _SEEN[event.kind].format(f"{peer} ({subject})" if peer and peer != subject else subject)
    return f"{event.kind} {subject}" + (f" ({peer})" if peer and peer != subject else "")


def _subnets(lease: str) -> str:
    parts = (part.rpartition("-") for part in lease.split("&"))
    return " ".join(f"{address.replace('-', ':')}/{length}" if address else length for address, _, length in parts)
