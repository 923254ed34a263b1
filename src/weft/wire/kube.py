"""Nodes of Kubernetes as leases, and leases as annotations, as flannel has them (flannel.md §5.4).

Only what is used of the API's objects is decoded: a Node takes 10 KB and more. Annotations are data from strangers.
Readers of the API's answers raise `NotTheApiError`.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network
from typing import Any, Final, TypeVar

import msgspec

from weft.model.cluster import Malformed
from weft.model.errors import PeerError, Problem
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net, Subnets, is_reachable
from weft.model.value import Value, field
from weft.wire.kubelist import Kind, decode
from weft.wire.leasedata import decode_attrs, decode_json, encode_json, shown, unusable

# What names end in; a prefix stands before each.
MANAGED: Final = "kube-subnet-manager"
BACKEND: Final = "backend-type"
DATA: Final = "backend-data"
DATA_V6: Final = "backend-v6-data"
POLICY: Final = "network-policy"  # ours: upstream has none
PUBLIC: Final = "public-ip"
PUBLIC_V6: Final = "public-ipv6"
OVERWRITE: Final = "public-ip-overwrite"
OVERWRITE_V6: Final = "public-ipv6-overwrite"
NODE: Final = "node-public-ip"
NODE_V6: Final = "node-public-ipv6"

EVENTS_OF_NODES: Final = "default"  # the namespace of Events of what is in none

_IpT = TypeVar("_IpT", IPv4Address, IPv6Address)


class Meta(Value):
    name: str = ""
    uid: str = ""
    version: str = field(name="resourceVersion", default="")
    created: datetime | None = field(name="creationTimestamp", default=None)
    annotations: dict[str, str] | None = None


class Spec(Value):
    cidr: str = field(name="podCIDR", default="")
    cidrs: list[str] | None = field(name="podCIDRs", default=None)


class NodeObject(Value):
    metadata: Meta
    spec: Spec = field(default_factory=Spec)


class PodSpec(Value):
    node: str = field(name="nodeName", default="")


class PodObject(Value):
    spec: PodSpec = field(default_factory=PodSpec)


class CountMeta(Value):
    more: int = field(name="remainingItemCount", default=0)


class CountObject(Value):
    metadata: CountMeta = field(default_factory=CountMeta)
    items: list[msgspec.Raw] | None = None


class Node(Value, gc=False):
    """What is used of a Node."""

    name: str
    uid: str
    version: str  # resourceVersion
    created: int  # Unix seconds
    annotations: Mapping[str, str]  # those with our prefix, without it
    cidrs: tuple[str, ...]

    @property
    def is_managed(self) -> bool:
        """Nodes without flannel's mark have no lease."""
        return self.annotations.get(MANAGED) == "true"


def nodes(prefix: str) -> Kind[Node]:
    """How nodes are read; `prefix` begins the names of our annotations."""
    return Kind(NodeObject, partial(_node, prefix=prefix))


def read_count(body: bytes) -> int:
    """The length of the whole list, from its first page."""
    found = decode(_COUNT, body)
    return len(found.items or ()) + found.metadata.more


def read_pods_node(body: bytes) -> str:
    """Empty for a pod that is not on a node yet."""
    return decode(_POD, body).spec.node


def lease_of(node: Node) -> Lease | Malformed | None:
    """None for a node without a lease."""
    mark = node.annotations.get(MANAGED)
    if mark in (None, "", "false"):
        return None
    try:
        if not node.is_managed:
            raise unusable(node.name, f"{MANAGED} is {shown(mark)}", "true, or false")
        v4, v6 = subnets_of(node)
        attrs = attrs_of(node)
        public, public6 = attrs.public_ip, attrs.public_ipv6
        lease = Lease(
            id=node.name,
            v4=v4 if public is not None else None,
            v6=v6 if public6 is not None else None,
            attrs=attrs,
            created=node.created,
        )
        if not lease.subnets:
            raise unusable(node.name, "no family has both a podCIDR and a public IP")
    except PeerError as error:
        return Malformed(id=node.name, problem=error.problems[0], created=node.created)
    return lease


def subnets_of(node: Node) -> Subnets:
    """The podCIDR of each family; of several the last, as upstream. Raises `PeerError`."""
    if len(node.cidrs) > 2:
        raise unusable(node.name, f"podCIDRs {shown(', '.join(node.cidrs))}", "one, or one of each family")
    v4, v6 = None, None
    for text in node.cidrs:
        net = _net(node.name, text)
        if isinstance(net, IPv4Network):
            v4 = net
        else:
            v6 = net
    return v4, v6


def attrs_of(node: Node) -> LeaseAttrs:
    """Raises `PeerError`."""
    said = node.annotations
    fields: dict[str, Any] = {"BackendType": said.get(BACKEND), "NetworkPolicy": said.get(POLICY)}
    for name, key in ((PUBLIC, "PublicIP"), (PUBLIC_V6, "PublicIPv6")):
        if said.get(name):
            fields[key] = said[name]
    for name, key in ((DATA, "BackendData"), (DATA_V6, "BackendV6Data")):
        if said.get(name):
            fields[key] = decode_json(said[name], node.name)
    return decode_attrs(fields, node.name)


def annotations_for(attrs: LeaseAttrs, node: Node) -> dict[str, str | None]:
    """The changes of annotations that publish `attrs`; None removes one.

    An operator's address overwrites the published one alone (flannel.md §5.4). A malformed one leaves what is published
    (`wrong_overwrites`): peers may reach the node only there.
    """
    wanted: dict[str, str | None] = {MANAGED: "true", BACKEND: attrs.backend, POLICY: attrs.policies or None}
    families: tuple[tuple[str, str, str, Any, Ip | None], ...] = (
        (PUBLIC, DATA, OVERWRITE, attrs.data, attrs.public_ip),
        (PUBLIC_V6, DATA_V6, OVERWRITE_V6, attrs.data_v6, attrs.public_ipv6),
    )
    for public, data, overwrite, value, address in families:
        wanted[public] = None if address is None else _to_publish(node, public, overwrite, address)
        wanted[data] = None if address is None else encode_json(value)
    return {name: value for name, value in wanted.items() if node.annotations.get(name) != value}


def _to_publish(node: Node, public: str, overwrite: str, address: Ip) -> str:
    said = node.annotations.get(overwrite, "")
    for text in (said, node.annotations.get(public, "")) if said else ():
        if (found := _address(text)) is not None and found.version == address.version:
            return text
    return str(address)


def wrong_overwrites(node: Node, prefix: str) -> list[Problem]:
    found: list[Problem] = []
    for read in (
        lambda: address_in(node, OVERWRITE, IPv4Address, prefix),
        lambda: address_in(node, OVERWRITE_V6, IPv6Address, prefix),
    ):
        try:
            read()
        except PeerError as error:
            found += error.problems
    return found


def annotate(annotations: Mapping[str, str | None], prefix: str) -> bytes:
    """The patch of a node that sets annotations; None removes one."""
    named = {prefix + name: value for name, value in annotations.items()}
    return msgspec.json.encode({"metadata": {"annotations": named}})


def network_available(now: datetime) -> bytes:
    """The patch of a node's status that says that its network is there (flannel.md §5.8)."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "NetworkUnavailable",
        "status": "False",
        "reason": "FlannelIsUp",
        "message": "Flannel is running on this node",
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }
    return msgspec.json.encode({"status": {"conditions": [condition]}})


def event_of(node: str, now: datetime, *, kind: str, reason: str, message: str) -> bytes:
    """An Event that `kubectl describe node` shows: like kubelet's, it has the node's name as uid."""
    about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
    return event_about(about, EVENTS_OF_NODES, node, now, kind=kind, reason=reason, message=message)


def event_about(
    about: Mapping[str, str],
    namespace: str,
    node: str,
    now: datetime,
    *,
    kind: str,
    reason: str,
    message: str,
    name: str = "",
) -> bytes:
    """An Event of this node about an object. Without a name, the server completes one that is unique."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "metadata": {**({"name": name} if name else {"generateName": f"{about['name']}."}), "namespace": namespace},
        "involvedObject": about,
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": "weftd", "host": node},
        "reportingComponent": "weftd",
        "reportingInstance": node,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    return msgspec.json.encode(event)


def address_in(node: Node, name: str, family: type[_IpT], prefix: str) -> _IpT | None:
    """The address in an operator's annotation. Raises `PeerError`."""
    text = node.annotations.get(name, "")
    if not text:
        return None
    address = _address(text)
    if isinstance(address, family):
        return address
    expected = f"an IPv{6 if family is IPv6Address else 4} address that other nodes can reach"
    where = annotation_of(node.name, name, prefix)
    raise PeerError(Problem(code="CONF-002", where=where, seen=shown(text), expected=expected, hint="Correct it"))


def annotation_of(node: str, name: str, prefix: str) -> str:
    return f"annotation {prefix}{name} of node {node}"


def _address(text: str) -> Ip | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address if is_reachable(address) else None


def _node(found: NodeObject, prefix: str) -> Node:
    meta, spec = found.metadata, found.spec
    annotations = meta.annotations or {}
    return Node(
        name=meta.name,
        uid=meta.uid,
        version=meta.version,
        created=0 if meta.created is None else int(meta.created.timestamp()),
        annotations={name[len(prefix) :]: text for name, text in annotations.items() if name.startswith(prefix)},
        cidrs=tuple(spec.cidrs or ([spec.cidr] if spec.cidr else ())),
    )


def _net(name: str, text: str) -> Net:
    try:
        return ip_network(text, strict=False)  # as Go's ParseCIDR: the API takes host bits
    except ValueError:
        raise unusable(name, f"podCIDR {shown(text)}", "a subnet") from None


_COUNT: Final = msgspec.json.Decoder(CountObject)
_POD: Final = msgspec.json.Decoder(PodObject)
