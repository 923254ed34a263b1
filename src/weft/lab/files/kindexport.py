"""`spec.Lab` → a cluster file of kind, for the same nodes in containers, with weft as their network. Pure.

kind's file has no place for the network configuration, nor for what is a lab's alone: comments say what they are.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from weft.config.netconf import NetConf
from weft.lab import spec
from weft.lab.files import labkeys, portmappings
from weft.lab.files.kindfile import API, names
from weft.lab.fitting import misfits, understand
from weft.model.errors import ConfigError

_NODES: Final = {4: 24, 6: 64}  # kubeadm's own sizes of a node's part of podSubnet
_FAMILIES: Final = {(4,): "ipv4", (6,): "ipv6", (4, 6): "dual"}


def written(lab: spec.Lab) -> str:
    """Return the file, which `kindfile` reads again as a lab with as many nodes on the same network.

    Raises `ConfigError` if nodes of Kubernetes cannot have this network.
    """
    network = understand(lab.network)
    if problems := misfits(network, msgspec.structs.replace(lab, store="kubernetes", pods=()), "network"):
        raise ConfigError(*problems)
    cluster = {
        "kind": "Cluster",
        "apiVersion": API,
        "name": lab.name,
        "networking": _networking(lab, network),
        "nodes": [_node(node, number) for number, node in enumerate(lab.nodes)],
    }
    return "".join(f"# {line}\n" for line in _comments(lab, network)) + yaml.safe_dump(cluster, sort_keys=False)


def _networking(lab: spec.Lab, network: NetConf) -> dict[str, Any]:
    return {
        "ipFamily": _FAMILIES[lab.families],
        "podSubnet": ",".join(str(pool.network) for pool in (network.v4, network.v6) if pool is not None),
        "disableDefaultCNI": True,
        "kubeProxyMode": "nftables" if network.nftables else "iptables",
    }


def _node(node: spec.Node, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "worker" if number else "control-plane"}
    if node.ports:
        made[labkeys.PORTS] = portmappings.written(node.ports)
    return made


def _comments(lab: spec.Lab, network: NetConf) -> Iterator[str]:
    yield f"The lab {lab.name} as a cluster of kind. weft is its network, as deploy/kubernetes.yaml installs it, with"
    yield f"this in net-conf.json of its ConfigMap: {lab.network}"
    left_out = {
        "pods (kubectl makes them)": lab.pods,
        "Services (kubectl makes them)": lab.services,
        "segments of the underlay": len(lab.segments) > 1,
        "NAT": lab.nat,
        "what links do to packets, and cuts": lab.links or lab.cuts,
        "daemons that are not weft's": any(node.daemon for node in lab.nodes),
        "names of nodes (kind has its own)": [node.name for node in lab.nodes] != names(lab.name, len(lab.nodes)),
    }
    for pool in (network.v4, network.v6):
        if pool is not None and pool.subnet_len != (usual := _NODES[pool.network.version]):
            yield f"kubeadm gives each node a /{usual} of {pool.network}: for the lab's /{pool.subnet_len} a patch has"
            yield "to set node-cidr-mask-size (-ipv4, -ipv6) of the controller manager."
    if len(lab.nodes) > 1:
        yield "The first node is the control plane, which takes no pods while there are others."
    if said := [what for what, there in left_out.items() if there]:
        yield f"kind has no place for what the lab has besides: {', '.join(said)}."
