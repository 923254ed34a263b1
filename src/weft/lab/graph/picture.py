"""What a picture of a lab shows, and its text: a tree, Mermaid or Graphviz. `drawing` makes SVG.

Devices and addresses follow from the network configuration and the leases: the picture shows a lab as it is meant to
be.
"""

import json
from collections.abc import Iterator
from ipaddress import ip_interface, ip_network
from typing import Final, NamedTuple

from weft.config.netconf import NetConf
from weft.desired.backends import ipip, udp
from weft.desired.backends.vxlan import VxlanOptions
from weft.desired.backends.wireguard import WireguardOptions
from weft.desired.tunnels.wireguard import DEVICE, DEVICE_V6
from weft.lab.inside import underlay
from weft.lab.network import understand
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
    """From the uplink by the back end's devices to the bridge and its pods. `state` is the daemon's."""

    name: str
    state: str
    subnets: tuple[str, ...]
    uplink: Device
    devices: tuple[Device, ...]
    bridge: Device
    pods: tuple[Pod, ...]


class Picture(Value):
    """`underlay` are the networks between the nodes, `store` is where leases are."""

    name: str
    backend: str
    families: tuple[Family, ...]
    underlay: tuple[str, ...]
    store: str
    store_state: str
    nodes: tuple[Node, ...]


def picture(report: LabReport) -> Picture:
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
    names, kind = _names(network)
    for name in dict.fromkeys(names.values()):
        bases = (ip_network(subnet) for subnet in node.subnets)
        addresses = tuple(str(base.network_address) for base in bases if names.get(base.version) == name)
        if addresses:
            yield Device(name=name, kind=kind, addresses=addresses)


def _names(network: NetConf) -> tuple[dict[int, str], str]:
    """The device's name for each family, and what it does; empty if there is none."""
    if isinstance(network.options, VxlanOptions):
        vni = network.options.vni
        return {4: f"flannel.{vni}", 6: f"flannel-v6.{vni}"}, f"VXLAN {vni}"
    if isinstance(network.options, WireguardOptions):
        separate = network.options.mode == "separate"
        return {4: DEVICE, 6: DEVICE_V6 if separate else DEVICE}, "WireGuard"
    if network.backend == "udp":
        return {4: udp.DEVICE, 6: udp.DEVICE}, "UDP"
    return ({4: ipip.DEVICE}, "IP in IP") if network.backend == "ipip" else ({}, "")


def tree(picture: Picture) -> str:
    """Each line hangs on what is above it."""
    lines = [f"{head(picture)}\n", f"underlay {', '.join(picture.underlay)}\n"]
    for number, node in enumerate(picture.nodes, 1):
        last = number == len(picture.nodes)
        lines.append(f"{'└─' if last else '├─'} {node.name}, {node.state}\n")
        lines += (f"{'   ' if last else '│  '}{line}\n" for line in _node_lines(node))
    return "".join(lines)


def head(picture: Picture) -> str:
    families = " and ".join(f"IPv{family}" for family in picture.families)
    return f"lab {picture.name}: {picture.backend}, {families}; store {picture.store}, {picture.store_state}"


def _node_lines(node: Node) -> Iterator[str]:
    levels = [level for level in ((node.uplink,), node.devices, (node.bridge,)) if level]
    for depth, level in enumerate(levels):
        yield f"{'   ' * depth}└─ {', '.join(map(_words, level))}"
    for number, pod in enumerate(node.pods, 1):
        branch = "└─" if number == len(node.pods) else "├─"
        yield f"{'   ' * len(levels)}{branch} {pod.name}  {', '.join(pod.addresses)}"


def _words(device: Device) -> str:
    return f"{device.name} ({device.kind})  {', '.join(device.addresses)}"


class _Cluster(NamedTuple):
    """A node in a graph language. A box has a name, words, and whether it is a pod."""

    name: str
    label: str
    boxes: list[tuple[str, tuple[str, ...], bool]]
    edges: list[tuple[str, str]]


def _clusters(picture: Picture) -> Iterator[_Cluster]:
    for number, node in enumerate(picture.nodes, 1):
        links = (node.uplink, *node.devices, node.bridge)
        uplink, *devices, bridge = (f"n{number}d{place}" for place in range(len(links)))
        pods = [f"n{number}p{place}" for place in range(len(node.pods))]
        boxes = [
            (name, (f"{link.name}, {link.kind}", *link.addresses), False)
            for name, link in zip((uplink, *devices, bridge), links, strict=True)
        ]
        boxes += [(name, (pod.name, *pod.addresses), True) for name, pod in zip(pods, node.pods, strict=True)]
        edges = [edge for device in devices for edge in ((uplink, device), (device, bridge))] or [(uplink, bridge)]
        edges += ((bridge, pod) for pod in pods)
        yield _Cluster(f"n{number}", f"{node.name}, {node.state}", boxes, edges)


def mermaid(picture: Picture) -> str:
    """A flowchart, which GitHub and GitLab draw within Markdown."""
    lines = ["flowchart TB"]
    lines.append(f"  underlay{_box('underlay', *picture.underlay)}")
    lines.append(f"  store{_box('store, ' + picture.store_state, picture.store, pod=True)}")
    lines.append("  store --- underlay")
    for cluster in _clusters(picture):
        lines.append(f"  subgraph {cluster.name}{_box(cluster.label)}")
        lines += (f"    {name}{_box(*words, pod=pod)}" for name, words, pod in cluster.boxes)
        lines += (f"    {one} --- {other}" for one, other in cluster.edges)
        lines += ["  end", f"  underlay --- {cluster.boxes[0][0]}"]
    return "\n".join(lines) + "\n"


def _box(*words: str, pod: bool = False) -> str:
    text = "<br/>".join(words).replace('"', "#quot;")
    return f'("{text}")' if pod else f'["{text}"]'


def dot(picture: Picture) -> str:
    """For Graphviz, as in `weft lab graph -o dot | dot -Tsvg`."""
    lines = [
        f"graph {_quoted(picture.name)} {{",
        '  node [shape=box, fontname="sans-serif", fontsize=11]; edge [color="#5b6b82"]',
        f"  underlay [label={_quoted('underlay', *picture.underlay)}]",
        f"  store [label={_quoted('store, ' + picture.store_state, picture.store)}, shape=cylinder]",
        "  store -- underlay",
    ]
    for cluster in _clusters(picture):
        lines.append(f"  subgraph cluster_{cluster.name} {{")
        lines.append(f"    label={_quoted(cluster.label)}; style=rounded")
        lines += (
            f"    {name} [label={_quoted(*words)}{', style=rounded' if pod else ''}]"
            for name, words, pod in cluster.boxes
        )
        lines += (f"    {one} -- {other}" for one, other in cluster.edges)
        lines += ["  }", f"  underlay -- {cluster.boxes[0][0]}"]
    return "\n".join((*lines, "}")) + "\n"


def _quoted(*words: str) -> str:
    return json.dumps("\n".join(words), ensure_ascii=False)
