"""This node's subnets where Kubernetes gives them: which of its podCIDRs serve, and why there is none (LEASE-002).

Pure: what the API says of the nodes is given.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from weft.config.netconf import NetConf, Pool
from weft.model.errors import Problem, Unavailable
from weft.model.net import Net, Subnets
from weft.model.text import counted
from weft.model.value import Value

_CODE: Final = "LEASE-002"


class Census(Value):
    """How many nodes there are, and the podCIDRs of how many; `length` is the prefix length of one of them."""

    nodes: int
    given: int
    length: int | None = None


def usable(name: str, subnets: Subnets, netconf: NetConf, census: Census | None) -> Subnets:
    """The subnets of the node `name` in the families that are on. Raises `Unavailable` with every problem.

    `census` tells why a podCIDR is missing; None if that is not known.
    """
    problems = [*_problems(name, subnets[0], netconf.v4, census), *_problems(name, subnets[1], netconf.v6, census)]
    if problems:
        raise Unavailable(*problems)
    return (subnets[0] if netconf.v4 is not None else None), (subnets[1] if netconf.v6 is not None else None)


def _problems(
    name: str,
    subnet: Net | None,
    pool: Pool[IPv4Network, IPv4Address] | Pool[IPv6Network, IPv6Address] | None,
    census: Census | None,
) -> Iterator[Problem]:
    if pool is None:
        return
    network = pool.network
    family = f"IPv{network.version}"
    if subnet is None:
        yield _missing(name, family, network, census)
    elif not (subnet.prefixlen >= network.prefixlen and subnet.network_address in network):
        key = f"{'IPv6' if network.version == 6 else ''}Network"
        yield Problem(
            code=_CODE,
            where=f"node {name}",
            seen=f"podCIDR {subnet}, which lies outside of {key} {network}",
            expected=f"a podCIDR within {network}",
            hint=f"Make {key} of net-conf.json the controller manager's --cluster-cidr",
        )


def _missing(name: str, family: str, network: Net, census: Census | None) -> Problem:
    seen = f"no {family} podCIDR"
    if census is None or not census.nodes:
        hint = "Waiting for it; see whether kube-controller-manager runs with --allocate-node-cidrs=true"
    elif not census.given:
        seen += f", and neither has any other of {counted(census.nodes, 'node')}"
        hint = (
            f"Start kube-controller-manager with --allocate-node-cidrs=true --cluster-cidr={network}"
            f" (kubeadm init --pod-network-cidr={network})"
        )
    elif census.length is not None and census.given >= 1 << max(0, census.length - network.prefixlen):
        seen += f", and {counted(census.given, 'node')} have all of {network}"
        hint = "Delete nodes that are gone, or give the controller manager a larger --cluster-cidr"
    else:
        seen += f", while {census.given} of {counted(census.nodes, 'node')} have one"
        hint = "A new node gets one in a moment. If not, see `kubectl describe node` for CIDRNotAvailable"
    return Problem(code=_CODE, where=f"node {name}", seen=seen, expected=f"a podCIDR within {network}", hint=hint)
