"""Whether a network has room for a lab, and which part of it each node has."""

from collections import Counter
from functools import partial
from ipaddress import ip_network
from typing import Any, Final

from weft.config.netconf import NetConf, Pool, parse_netconf
from weft.desired.backends import BACKENDS
from weft.lab import spec
from weft.lab.inside import underlay
from weft.model.errors import Problem
from weft.model.net import Family, Subnets

_NOT_FOR_PODS: Final = 3  # addresses of a node's subnet: its first and last, and the bridge's
understand: Final = partial(parse_netconf, backends=BACKENDS)


def share(network: NetConf, index: int) -> Subnets:
    """Return the subnets of node number `index`: the network's first ones for node 1, and so on."""
    v4 = None if network.v4 is None else network.v4.subnet(index - 1)
    return v4, None if network.v6 is None else network.v6.subnet(index - 1)


def misfits(network: NetConf, lab: spec.Lab, where: str) -> list[Problem]:
    """Say what would keep nodes of this lab from a subnet or from each other, or pods from an address."""
    problems = []
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
            problems.append(
                Problem(code="LAB-001", where=where, seen=seen, expected="a subnet for each node", hint=hint)
            )
        room = (1 << bits) - _NOT_FOR_PODS
        if room < pods:
            seen = f"{fullest} has {pods} pods, and its IPv{family} subnet (/{pool.subnet_len}) room for {room}"
            hint = "Take larger subnets of nodes, or fewer pods."
            problems.append(
                Problem(code="LAB-001", where=where, seen=seen, expected="an address for each pod", hint=hint)
            )
        taken = [("the lab's nodes are", underlay.address(family, segment=each).network) for each in lab.segments]
        if lab.store == "kubernetes" or lab.services:
            taken.append(("its Services are", ip_network(spec.SERVICES[family])))
        for what, other in taken:
            if pool.network.overlaps(other):
                seen = f"{name} {pool.network} overlaps {other}, where {what}"
                problems.append(Problem(code="ADDR-001", where=where, seen=seen, expected="a network of the pods' own"))
    return problems
