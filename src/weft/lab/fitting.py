"""Whether a network has room for a lab."""

from collections import Counter
from functools import partial
from typing import Final

from weft.config.netconf import NetConf, parse_netconf
from weft.desired.backends import BACKENDS
from weft.lab import spec
from weft.lab.inside import underlay
from weft.model.errors import Problem

_NOT_FOR_PODS: Final = 3  # addresses of a node's subnet: its first and last, and the bridge's
understand: Final = partial(parse_netconf, backends=BACKENDS)


def misfits(network: NetConf, lab: spec.Lab, where: str) -> list[Problem]:
    """Say what would keep nodes of this lab from a subnet or from each other, or pods from an address."""
    problems = []
    nodes = len(lab.nodes)
    fullest, pods = max(Counter(pod.node for pod in lab.pods).items(), key=lambda item: item[1], default=("", 0))
    for family, name, pool in ((4, "Network", network.v4), (6, "IPv6Network", network.v6)):
        if pool is None:
            continue
        bits = pool.network.max_prefixlen - pool.subnet_len
        subnets = (int(pool.last) - int(pool.first) >> bits) + 1
        if subnets < nodes:
            seen = f"{name} {pool.network} has {subnets} subnets (/{pool.subnet_len}) for {nodes} nodes"
            hint = f"Write a lab file with a wider {name}, or with a larger SubnetLen."
            problems.append(
                Problem(code="LAB-001", where=where, seen=seen, expected="a subnet for each node", hint=hint)
            )
        room = (1 << bits) - _NOT_FOR_PODS
        if room < pods:
            seen = f"{fullest} has {pods} pods, and its IPv{family} subnet (/{pool.subnet_len}) room for {room}"
            hint = f"Write a smaller {name.replace('Network', 'SubnetLen')}, or fewer pods."
            problems.append(
                Problem(code="LAB-001", where=where, seen=seen, expected="an address for each pod", hint=hint)
            )
        below = underlay.address(4 if name == "Network" else 6).network
        if pool.network.version == below.version and pool.network.overlaps(below):
            seen = f"{name} {pool.network} overlaps {below}, where the lab's nodes are"
            problems.append(Problem(code="ADDR-001", where=where, seen=seen, expected="a network of the pods' own"))
    return problems
