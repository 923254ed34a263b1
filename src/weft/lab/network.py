"""A lab's pod network: whether it has room, each node's share, and which addresses nodes and pods would get. Pure."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, Final

import msgspec

from weft.config.netconf import NetConf, Pool, parse_netconf
from weft.desired.backends import BACKENDS
from weft.lab import spec
from weft.lab.inside import underlay
from weft.model.errors import Problem
from weft.model.net import Family, Subnets, with_port
from weft.model.value import Value

_NOT_FOR_PODS: Final = 3  # addresses of a node's subnet: its first and last, and the bridge's
understand: Final = partial(parse_netconf, backends=BACKENDS)
_FIRST: Final = 2  # of a subnet's addresses: the bridge has the one before, and host-local gives out the others in turn


def share(network: NetConf, index: int) -> Subnets:
    """The network's first subnets are node 1's, and so on."""
    v4 = None if network.v4 is None else network.v4.subnet(index - 1)
    return v4, None if network.v6 is None else network.v6.subnet(index - 1)


def misfits(network: NetConf, lab: spec.Lab, where: str) -> list[Problem]:
    """What would keep nodes from a subnet or from each other, or pods from an address."""
    problems = [*_of_a_mesh(network, lab, where), *_of_policies(lab, where)]
    nodes = len(lab.nodes)
    fullest, pods = max(Counter(pod.node for pod in lab.pods).items(), key=lambda item: item[1], default=("", 0))
    pools: dict[Family, Pool[Any, Any] | None] = {4: network.v4, 6: network.v6}
    for family, pool in pools.items():
        if pool is None:
            continue
        name = "Network" if family == 4 else "IPv6Network"
        bits = pool.network.max_prefixlen - pool.subnet_len
        subnets = (int(pool.last) - int(pool.first) >> bits) + 1
        if subnets < nodes:
            seen = f"{name} {pool.network} has {subnets} subnets (/{pool.subnet_len}) for {nodes} nodes"
            hint = "Take a wider network, smaller subnets of nodes, or fewer nodes."
            problems.append(Problem("LAB-001", where, seen, expected="a subnet for each node", hint=hint))
        room = (1 << bits) - _NOT_FOR_PODS
        if room < pods:
            seen = f"{fullest} has {pods} pods, and its IPv{family} subnet (/{pool.subnet_len}) room for {room}"
            hint = "Take larger subnets of nodes, or fewer pods."
            problems.append(Problem("LAB-001", where, seen, expected="an address for each pod", hint=hint))
        taken = [("the lab's nodes are", underlay.address(family, segment=each).network) for each in lab.segments]
        if lab.store == "kubernetes" or lab.services:
            taken.append(("its Services are", ip_network(spec.SERVICES[family])))
        for what, other in taken:
            if pool.network.overlaps(other):
                seen = f"{name} {pool.network} overlaps {other}, where {what}"
                problems.append(Problem("ADDR-001", where, seen, expected="a network of the pods' own"))
    return problems


def _of_a_mesh(network: NetConf, lab: spec.Lab, where: str) -> Iterator[Problem]:
    usual = spec.usual_backend(lab.store)
    if (network.backend == "mesh") != (lab.store == "mesh"):
        seen = f"Backend.Type {network.backend} with store {lab.store}"
        yield Problem("LAB-001", where, seen, expected=f"another back end, such as {usual}, or another store")
    if lab.password and lab.store != "mesh":
        yield Problem("LAB-001", where, f"a password with store {lab.store}", expected="store mesh")
    if lab.store == "mesh" and (others := [node.name for node in lab.nodes if node.daemon]):
        seen = f"{', '.join(others)} with a daemon of another program, in a mesh"
        yield Problem("LAB-001", where, seen, expected="weftd on all nodes")


def _of_policies(lab: spec.Lab, where: str) -> Iterator[Problem]:
    if lab.policies is None:
        return
    if lab.store == "kubernetes" and not lab.kubelets:
        seen = "policies, and nodes whose pods Kubernetes' API does not know"
        yield Problem("LAB-001", where, seen, expected="nodes of Kubernetes, a lab on etcd, or a mesh")
    if lab.kubelets and any(each["kind"] == "ClusterNetworkPolicy" for each in lab.policies):
        seen, hint = "a ClusterNetworkPolicy, whose kind Kubernetes' API lacks", "Install the kind once the lab is up."
        yield Problem("LAB-001", where, seen, expected="NetworkPolicy, Namespace", hint=hint)
    if others := [node.name for node in lab.nodes if node.daemon]:
        seen = f"policies, and {', '.join(others)} with a daemon of another program, which enforces none"
        yield Problem("LAB-001", where, seen, expected="weftd on all nodes")


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
    """A whole lab. `network` is its net-conf, `store` what holds the leases, `nat` has the segments behind one."""

    name: str
    backend: str
    families: list[Family]
    store: spec.Store
    kubernetes: bool
    network: msgspec.Raw
    nodes: list[PlannedNode]
    pods: list[PlannedPod]
    services: list[spec.Service]
    nat: dict[int, spec.Nat]


def planned(lab: spec.Lab) -> Plan:
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
        asked = ip_address(pod.ip).version if pod.ip else 0
        addresses = [f"{pod.ip if asked == net.version else net[place]}/{net.prefixlen}" for net in subnets[pod.node]]
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
                ports=[f"{with_port(port.address, port.outside)} to {port.inside}" for port in node.ports],
            )
            for node in lab.nodes
        ],
        pods=pods,
        services=list(lab.services),
        nat=lab.nat,
    )
