"""What leads to pods beside their own addresses: Services, ports of nodes for them, and ports of pods' nodes. Pure."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from typing import Literal

from weft.diag.check.trial import EndpointReport
from weft.lab.report import LabReport, PodReport, ServiceReport
from weft.lab.spec import Protocol
from weft.model.net import Family
from weft.model.value import Value

DoorKind = Literal["service", "node-port", "host-port"]


class Door(Value):
    """An address and port behind which are pods, which listen at port `listens`; on a `node`, or on none of them."""

    name: str
    node: str
    address: str
    port: int
    protocol: Protocol
    listens: int
    behind: tuple[EndpointReport, ...]


def doors(kind: DoorKind, report: LabReport, family: Family) -> Iterator[Door]:
    """All of one kind and family, behind which there are pods."""
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
    """Return the family of an address, which may have a prefix length."""
    return 4 if ip_interface(address).version == 4 else 6


def by_family(addresses: Sequence[str]) -> dict[Family, str]:
    """Return the address of each family, without its prefix length."""
    return {_family_of(address): address.partition("/")[0] for address in addresses}
