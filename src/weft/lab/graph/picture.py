"""What a picture of a lab shows, made of what the lab reports. How it is drawn is elsewhere.

Which devices a back end makes, and what addresses they have, follows from the network configuration and the node's
lease: so the picture shows a lab as it is meant to be, and beside each node how its daemon is.
"""

from collections.abc import Iterator
from ipaddress import ip_interface, ip_network
from typing import Final

from weft.config.netconf import NetConf
from weft.desired.backends import ipip, udp, wireguard
from weft.desired.backends.vxlan import VxlanOptions
from weft.desired.backends.wireguard import WireguardOptions
from weft.lab.fitting import understand
from weft.lab.inside import underlay
from weft.lab.report import LabReport, NodeReport
from weft.model.net import Family
from weft.model.value import Value

_BRIDGE: Final = "cni0"  # of flannel's conflist, which is in each node


class Device(Value):
    """A link of a node: its name, what it is in a few words, and its addresses."""

    name: str
    kind: str
    addresses: tuple[str, ...] = ()


class Pod(Value):
    """A pod and its addresses."""

    name: str
    addresses: tuple[str, ...]


class Node(Value):
    """A node: from the uplink by the devices of the back end, if it has any, to the bridge and the pods on it.

    `state` is the daemon's, `ready` when all is well; `subnets` are the node's leases.
    """

    name: str
    state: str
    subnets: tuple[str, ...]
    uplink: Device
    devices: tuple[Device, ...]
    bridge: Device
    pods: tuple[Pod, ...]


class Picture(Value):
    """A lab. `underlay` are the networks between the nodes, `store` is where leases are, and how that is."""

    name: str
    backend: str
    families: tuple[Family, ...]
    underlay: tuple[str, ...]
    store: str
    store_state: str
    nodes: tuple[Node, ...]


def picture(report: LabReport) -> Picture:
    """Return what a picture of a lab shows."""
    network = understand(bytes(report.network).decode())
    return Picture(
        name=report.name,
        backend=report.backend,
        families=tuple(report.families),
        underlay=tuple(
            str(underlay.address(family, segment=segment).network)
            for segment in sorted({node.segment for node in report.nodes})
            for family in report.families
        ),
        store=report.store,
        store_state=report.store_state,
        nodes=tuple(_node(node, report, network) for node in report.nodes),
    )


def _node(node: NodeReport, report: LabReport, network: NetConf) -> Node:
    gateways = tuple(str(ip_network(subnet)[1]) for subnet in node.subnets)
    pods = (pod for pod in report.pods if pod.node == node.name)
    return Node(
        name=node.name,
        state=node.daemon,
        subnets=tuple(node.subnets),
        uplink=Device(name=underlay.UPLINK, kind="uplink", addresses=tuple(node.underlay)),
        devices=tuple(_devices(node, network)),
        bridge=Device(name=_BRIDGE, kind="bridge", addresses=gateways),
        pods=tuple(
            Pod(name=pod.name, addresses=tuple(str(ip_interface(address).ip) for address in pod.addresses))
            for pod in pods
        ),
    )


def _devices(node: NodeReport, network: NetConf) -> Iterator[Device]:
    """Yield the devices of a node's back end; their address is the first of the lease."""
    names, kind = _names(network)
    for name in dict.fromkeys(names.values()):
        bases = (ip_network(subnet) for subnet in node.subnets)
        addresses = tuple(str(base.network_address) for base in bases if names.get(base.version) == name)
        if addresses:
            yield Device(name=name, kind=kind, addresses=addresses)


def _names(network: NetConf) -> tuple[dict[int, str], str]:
    """Return the name of a back end's device for each family, none if it makes none, and what the device does."""
    if isinstance(network.options, VxlanOptions):
        vni = network.options.vni
        return {4: f"flannel.{vni}", 6: f"flannel-v6.{vni}"}, f"VXLAN {vni}"
    if isinstance(network.options, WireguardOptions):
        separate = network.options.mode == "separate"
        return {4: wireguard.DEVICE, 6: wireguard.DEVICE_V6 if separate else wireguard.DEVICE}, "WireGuard"
    if network.backend == "udp":
        return {4: udp.DEVICE, 6: udp.DEVICE}, "UDP"
    return ({4: ipip.DEVICE}, "IP in IP") if network.backend == "ipip" else ({}, "")
