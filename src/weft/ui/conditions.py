"""What the page shows of a lab beside its nodes and pods: Services, segments, traffic, cuts. Pure."""

from typing import Any

from weft.lab import links
from weft.lab.report import LabReport, NodeReport, TrafficReport
from weft.model.text import shown_amount
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
    return [*said, *map(_words, from_store)]


def cuts(report: LabReport) -> dict[Pair, list[str]]:
    """In words, by the nodes in the lab's order."""
    order = [node.name for node in report.nodes]
    found: dict[Pair, list[str]] = {}
    for cut in report.cuts:
        if not _is_of_store(cut):
            one, other = sorted((cut.source, cut.target), key=order.index)
            found.setdefault((one, other), []).append(_words(cut))
    return found


def _is_of_store(cut: links.Cut) -> bool:
    return links.STORE in (cut.source, cut.target)


def _words(cut: links.Cut) -> str:
    return f"cut by the lab: {cut.source} → {cut.target}"
