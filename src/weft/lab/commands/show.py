"""Reports as text."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from weft.lab.links import Cut, Link, shown_delay, shown_loss, shown_rate, words
from weft.lab.network import Plan
from weft.lab.report import Cell, LabReport, LinksReport, PingReport, ServiceReport, TurnReport
from weft.model.text import counted, table

# A wider matrix does not fit a terminal: then each source gets one line.
_WIDEST: Final = 14
_CHOSEN: Final = {"kubernetes": "by Kubernetes", "mesh": "by the mesh"}
_FAULTS: Final = {"lost": "lost", "unseen": "unseen", "translated": "nat", "forbidden": "open"}


def lab(report: LabReport, *, wide: bool = False) -> str:
    """`wide` adds what plugins and `nsenter` know nodes and pods by."""
    families = " and ".join(f"IPv{family}" for family in report.families)
    head = f"lab {report.name}: {report.backend}, {families}, store {report.store} {report.store_state}\n"
    nodes = table(
        ("NODE", "UNDERLAY", "POD SUBNET", "MTU", *(["PID"] if wide else []), "DAEMON"),
        (
            (
                node.name,
                ", ".join(node.underlay),
                ", ".join(node.subnets) or "-",
                str(node.mtu or "-"),
                *([str(node.pid)] if wide else []),
                node.daemon,
            )
            for node in report.nodes
        ),
    )
    nodes += "".join(f"{node.name}: {problem}\n" for node in report.nodes for problem in node.problems)
    nodes += "".join(f"link of {node.name}: {words(node.link)}\n" for node in report.nodes if node.link != Link())
    nodes += _cuts(report.cuts)
    parts = [head, nodes]
    if report.pods:
        rows = (
            (pod.name, pod.node, ", ".join(pod.addresses), *([pod.id, pod.netns] if wide else []))
            for pod in report.pods
        )
        parts.append(table(("POD", "NODE", "ADDRESS", *(["CONTAINER", "NETNS"] if wide else [])), rows))
    if report.services:
        parts.append(services(report.services))
    return "\n".join(parts)


def services(reports: Sequence[ServiceReport]) -> str:
    rows = (
        (
            each.name,
            ", ".join(each.addresses),
            f"{each.port}/{each.protocol}",
            str(each.node_port or "-"),
            str(each.target_port),
            ", ".join(dict.fromkeys(endpoint.pod for endpoint in each.endpoints)) or f"none ({', '.join(each.pods)})",
        )
        for each in reports
    )
    return table(("SERVICE", "ADDRESS", "PORT", "NODE PORT", "TARGET PORT", "PODS"), rows)


def links(report: LinksReport) -> str:
    rows = (
        (
            name,
            "up" if link.up else "down",
            shown_delay(link.delay) if link.delay else "-",
            shown_loss(link.loss) if link.loss else "-",
            shown_rate(link.rate) if link.rate else "-",
        )
        for name, link in report.links.items()
    )
    return table(("NODE", "LINK", "DELAY", "LOSS", "RATE"), rows) + _cuts(report.cuts)


def _cuts(cuts: Sequence[Cut]) -> str:
    by_source = groupby(cuts, key=lambda cut: cut.source)
    return "".join(f"cut: {source} -> {', '.join(cut.target for cut in each)}\n" for source, each in by_source)


def things(report: TurnReport) -> str:
    text = ""
    for thing in report.things:
        text += f"{thing.name}: {thing.state if thing.link is None else f'weftd {thing.state}, link {thing.link}'}\n"
        text += "".join(f"{thing.name}: {problem}\n" for problem in thing.problems)
    return text


def plan(plan: Plan) -> str:
    families = " and ".join(f"IPv{family}" for family in plan.families)
    kind = ", nodes of Kubernetes" if plan.kubernetes else ""
    head = f"lab {plan.name} would be: {plan.backend}, {families}, store {plan.store}{kind}\n"
    chosen = _CHOSEN.get(plan.store, "")
    if plan.nat:
        kinds = (f"{segment} ({kind})" for segment, kind in plan.nat.items())
        head += f"behind a NAT: segment {', '.join(kinds)}\n"
    rows = (
        (
            node.name,
            ", ".join(node.underlay),
            ", ".join(node.subnets) or chosen,
            node.daemon or "weftd",
            ", ".join(node.ports) or "-",
        )
        for node in plan.nodes
    )
    parts = [head, table(("NODE", "UNDERLAY", "POD SUBNET", "DAEMON", "PORTS OF THE MACHINE"), rows)]
    if plan.pods:
        pods = ((pod.name, pod.node, ", ".join(pod.addresses) or chosen) for pod in plan.pods)
        parts.append(table(("POD", "NODE", "ADDRESS"), pods))
    if plan.services:
        said = ((each.name, ", ".join(each.addresses), str(each.port), ", ".join(each.pods)) for each in plan.services)
        parts.append(table(("SERVICE", "ADDRESS", "PORT", "PODS"), said))
    return "\n".join(parts)


def ping(report: PingReport) -> str:
    return "".join(f"{_line(cell)}\n" for cell in report.cells)


def pingall(report: PingReport) -> str:
    """A matrix where that fits, every fault in words, and a sum."""
    text = ""
    families = sorted({cell.family for cell in report.cells})
    for family in families:
        cells = [cell for cell in report.cells if cell.family == family]
        text += f"IPv{family}, from each line to each column, milliseconds\n{_matrix(cells)}\n"
    faults = [cell for cell in report.cells if cell.fault]
    text += "".join(f"{_line(cell)}\n" for cell in faults)
    sources = len({cell.source for cell in report.cells})
    targets = len({cell.target for cell in report.cells})
    refused = sum(cell.refused for cell in report.cells)
    return text + (
        f"{report.reached} of {counted(report.tried, 'ping')} arrived from the source's own address,"
        f" from {sources} pods and nodes to {counted(targets, 'pod')}"
        f"{f'; {refused} were refused, as policies say' if refused else ''}"
        f"{f'; {len(faults)} went wrong' if faults and refused else f'; {len(faults)} did not' if faults else ''}\n"
    )


def _matrix(cells: Sequence[Cell]) -> str:
    targets = sorted({cell.target for cell in cells}, key=[cell.source for cell in cells].index)
    rows = {source: {cell.target: cell for cell in own} for source, own in groupby(cells, key=lambda cell: cell.source)}
    if len(targets) <= _WIDEST:
        heading = ("", *targets)
        return table(heading, ((source, *(_short(row.get(name)) for name in targets)) for source, row in rows.items()))
    return table(
        ("FROM", "REACHED", "TRIED", "SLOWEST"),
        (
            (
                source,
                str(sum(not cell.fault for cell in row.values())),
                str(len(row)),
                f"{max((cell.milliseconds or 0 for cell in row.values()), default=0):.2f}",
            )
            for source, row in rows.items()
        ),
    )


def _short(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return _FAULTS[cell.fault] if cell.fault else "refused" if cell.refused else f"{cell.milliseconds:.2f}"


def _line(cell: Cell) -> str:
    way = f"{cell.source} -> {cell.target} ({cell.address})"
    if cell.fault == "lost":
        arrived = f"it arrived from {cell.seen}, but no answer came back" if cell.seen else "nothing arrived there"
        return f"{way}: lost, {cell.sent} sent; {arrived}"
    if cell.refused:
        return f"{way}: refused, as policies say"
    if cell.fault == "forbidden":
        return f"{way}: {cell.milliseconds:.3f} ms, though policies forbid it"
    if cell.fault == "unseen":
        return f"{way}: answered in {cell.milliseconds} ms, but not by {cell.target}, which saw nothing"
    note = ", which is not an address of the source: translated on the way" if cell.fault else ""
    return f"{way}: {cell.milliseconds:.3f} ms, seen there as {cell.seen}{note}"
