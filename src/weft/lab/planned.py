"""What a lab would be, before it is: the addresses that its nodes and pods get when it starts. Pure."""

from collections import Counter
from ipaddress import ip_address
from typing import Final

import msgspec

from weft.lab import spec
from weft.lab.fitting import share, understand
from weft.lab.inside import underlay
from weft.model.net import Family, Net
from weft.model.value import Value

_FIRST: Final = 2  # of a subnet's addresses: the bridge has the one before, and host-local gives out the others in turn


class PlannedNode(Value):
    """A node. `subnets` are empty where Kubernetes gives them out; `ports` are those of the machine that lead to it.

    `daemon` is the program that serves it in weftd's place, or empty.
    """

    name: str
    underlay: list[str]
    subnets: list[str]
    ports: list[str]
    daemon: str


class PlannedPod(Value):
    """A pod. `addresses` are empty where the node's subnets are not known."""

    name: str
    node: str
    addresses: list[str]


class Plan(Value):
    """A whole lab. `network` is its net-conf, `store` what holds the leases, `nat` are the segments behind a NAT."""

    name: str
    backend: str
    families: list[Family]
    store: spec.Store
    kubernetes: bool
    network: msgspec.Raw
    nodes: list[PlannedNode]
    pods: list[PlannedPod]
    services: list[spec.Service]
    nat: list[int]


def _asks(pod: spec.Pod, net: Net) -> bool:
    """Tell whether a pod asks for an address of this subnet's family."""
    return bool(pod.ip) and ip_address(pod.ip).version == net.version


def planned(lab: spec.Lab) -> Plan:
    """Return what a lab would be."""
    network = understand(lab.network)
    subnets = {
        node.name: [net for net in share(network, node.index) if net is not None] if lab.store == "etcd" else []
        for node in lab.nodes
    }
    before: Counter[str] = Counter()
    pods = []
    for pod in lab.pods:
        place = _FIRST + before[pod.node]
        before[pod.node] += 1
        addresses = [f"{pod.ip if _asks(pod, net) else net[place]}/{net.prefixlen}" for net in subnets[pod.node]]
        pods.append(PlannedPod(name=pod.name, node=pod.node, addresses=addresses))
    return Plan(
        name=lab.name,
        backend=network.backend,
        families=list(lab.families),
        store=lab.store,
        kubernetes=lab.kubelets,
        network=msgspec.Raw(lab.network.encode()),
        nodes=[
            PlannedNode(
                name=node.name,
                underlay=[str(underlay.address_of(node, family)) for family in lab.families],
                subnets=[str(net) for net in subnets[node.name]],
                daemon=node.daemon,
                ports=[f"{port.url_address}:{port.outside} to {port.inside}" for port in node.ports],
            )
            for node in lab.nodes
        ],
        pods=pods,
        services=list(lab.services),
        nat=list(lab.nat),
    )
