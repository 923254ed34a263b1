"""Which trials a check of a lab consists of. Pure: a report in, trials out."""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_interface
from itertools import product
from typing import Final, Literal

from weft.diag.check.scenarios import SCENARIOS, End, Scenario, trials_of
from weft.diag.check.trial import EndpointReport, Trial
from weft.diag.trace.hops import OUTSIDE
from weft.lab.report import LabReport, PodReport, ServiceReport
from weft.lab.spec import Protocol
from weft.model.net import Family, family_of
from weft.model.value import Value

IN_A_LAB: Final = tuple(scenario for scenario in SCENARIOS if scenario.target != "peer")  # its pods stand for those

DoorKind = Literal["service", "node-port", "host-port"]


def trials(report: LabReport, *, quick: bool) -> list[Trial]:
    """If `quick`, one pod speaks for its node, or two where they speak to each other."""
    ends, found = _ends(report), list[Trial]()
    for scenario in IN_A_LAB:
        if scenario.target in ("service", "node-port", "host-port"):
            found += _by_doors(scenario, scenario.target, ends, report, quick=quick)
        elif not (quick and scenario.full):
            pairs = _pairs(scenario, ends, quick=quick)
            found += trials_of(scenario, _not_hidden(scenario, pairs, report), report.families)
    return found


def _by_doors(
    scenario: Scenario, kind: DoorKind, ends: Sequence[End], report: LabReport, *, quick: bool
) -> Iterator[Trial]:
    ends = [*ends, End(kind="outside", name=OUTSIDE, node=OUTSIDE, addresses=dict.fromkeys(report.families, ""), mtu=0)]
    for family in report.families:
        for source, door in product(ends, doors(kind, report, family)):
            is_behind = source.name in {each.pod for each in door.behind}
            if scenario.where == "itself":
                chosen = is_behind
            else:
                # To its own node's port a pod comes back: that is a scenario of its own.
                chosen = (not quick or source.number == 0) and not (is_behind and kind == "host-port")
            if chosen and source.kind == scenario.source and family in source.addresses:
                yield Trial(
                    scenario=scenario.name,
                    source=source.name,
                    target=door.name,
                    from_node=source.node,
                    to_node=door.node,
                    family=family,
                    protocol="tcp" if door.protocol == "TCP" else "udp",
                    address=door.address,
                    flows=scenario.flows,
                    port=door.port,
                    listens=door.listens,
                    behind=door.behind,
                )


def _pairs(scenario: Scenario, ends: Sequence[End], *, quick: bool) -> Iterator[tuple[End, End]]:
    between_neighbours = scenario.where == "same" and scenario.source == scenario.target
    most = 2 if between_neighbours else 1
    chosen = [end for end in ends if not quick or end.number < most]
    sources = [end for end in chosen if end.kind == scenario.source]
    if scenario.where in ("loopback", "itself"):
        yield from ((end, end) for end in sources)
        return
    targets = [end for end in chosen if end.kind == scenario.target]
    same = scenario.where == "same"
    for source in sources:
        yield from (
            (source, target) for target in targets if source is not target and (source.node == target.node) == same
        )


def _not_hidden(scenario: Scenario, pairs: Iterable[tuple[End, End]], report: LabReport) -> Iterator[tuple[End, End]]:
    """Without those of which the target's own address is behind a NAT that the source is not behind."""
    segments = {node.name: node.segment for node in report.nodes}
    for source, target in pairs:
        there = segments[target.node]
        if scenario.way != "underlay" or there not in report.behind_nat or segments[source.node] == there:
            yield source, target


def _ends(report: LabReport) -> list[End]:
    mtu = {node.name: node.mtu for node in report.nodes}
    nodes = [
        End(kind="node", name=node.name, node=node.name, addresses=by_family(node.underlay), mtu=node.mtu)
        for node in report.nodes
    ]
    pods = list[End]()
    for pod in report.pods:
        number = sum(other.node == pod.node for other in pods)
        addresses = by_family(pod.addresses)
        pods.append(
            End(kind="pod", name=pod.name, node=pod.node, addresses=addresses, mtu=mtu[pod.node], number=number)
        )
    return [*nodes, *pods]


class Door(Value):
    """An address and port behind which pods listen at port `listens`; on a `node`, or on none of them."""

    name: str
    node: str
    address: str
    port: int
    protocol: Protocol
    listens: int
    behind: tuple[EndpointReport, ...]


def doors(kind: DoorKind, report: LabReport, family: Family) -> Iterator[Door]:
    if kind == "host-port":
        for pod in report.pods:
            yield from _host_ports(pod, report, family)
        return
    for service in report.services:
        behind = tuple(each for each in service.endpoints if _family_of(each.address) == family)
        if behind and kind == "service":
            yield from (
                _of_service(service, "", address, service.port, behind)
                for address in service.addresses
                if _family_of(address) == family
            )
        elif behind and service.node_port:
            yield from (
                _of_service(service, node.name, by_family(node.underlay)[family], service.node_port, behind)
                for node in report.nodes
            )


def _of_service(service: ServiceReport, node: str, address: str, port: int, behind: tuple[EndpointReport, ...]) -> Door:
    return Door(
        name=service.name,
        node=node,
        address=address,
        port=port,
        protocol=service.protocol,
        listens=service.target_port,
        behind=behind,
    )


def _host_ports(pod: PodReport, report: LabReport, family: Family) -> Iterator[Door]:
    own = by_family(pod.addresses).get(family)
    node = next(each for each in report.nodes if each.name == pod.node)
    if own is None:
        return
    for port in pod.ports:
        yield Door(
            name=pod.name,
            node=pod.node,
            address=by_family(node.underlay)[family],
            port=port.outside,
            protocol=port.protocol,
            listens=port.inside,
            behind=(EndpointReport(pod=pod.name, node=pod.node, address=own),),
        )


def _family_of(address: str) -> Family:
    return family_of(ip_interface(address))


def by_family(addresses: Sequence[str]) -> dict[Family, str]:
    return {_family_of(address): address.partition("/")[0] for address in addresses}
