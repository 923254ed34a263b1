"""Names of sets, and the elements in them, as nf_tables has them."""

from typing import Final

from weft.model.kernel.nftset import Element, field
from weft.model.kernel.policytable import INET, PolicyElement, PolicySet, checksum, short
from weft.model.net import Ip, Net
from weft.model.policy import (
    EVERYTHING,
    NAME_LABEL,
    ClusterPolicy,
    Direction,
    PodPeer,
    Policy,
    Protocol,
    Requirement,
    Selector,
)
from weft.model.value import replace

# A port by its name, in the pods that have one so named.
PortName = tuple[str, Protocol]

ADDRESS: Final = {4: "ipv4_addr", 6: "ipv6_addr"}
MAP: Final[dict[Direction, str]] = {"egress": "out", "ingress": "in"}
# The set of answers that belong to connections that were cut.
CUT: Final = "cut"
# `namespaceSelector: {}` alone. The pod network says which addresses these are, so that nobody has to know the pods.
ALL_PODS: Final = PodPeer(namespaces=EVERYTHING)

_NUMBER: Final[dict[Protocol, int]] = {"tcp": 6, "udp": 17, "sctp": 132}
PROTOCOL_NAMES: Final = {number: name for name, number in _NUMBER.items()}
_IFNAME: Final = 16
_WORD: Final = 4  # bytes, of what a field has at least
# Of an element's comment, which has 127 bytes: a UID, a blank and a pod.
_UID: Final = 36
_POD: Final = 90


def in_namespace(namespace: str, peer: PodPeer) -> PodPeer:
    """The peer of a policy of this namespace, so that it means the same everywhere."""
    if peer.namespaces is not None:
        return peer
    return replace(peer, namespaces=Selector((Requirement(NAME_LABEL, "In", (namespace,)),)))


def subject_of(policy: Policy | ClusterPolicy) -> PodPeer:
    """The pods that it selects."""
    if isinstance(policy, ClusterPolicy):
        return policy.subject
    return in_namespace(policy.namespace, PodPeer(pods=policy.pods))


def peers_set(peer: PodPeer, family: int) -> PolicySet:
    return PolicySet(table=INET, name=f"peers{family}-{checksum(repr(peer))}", spec=f"type {ADDRESS[family]};")


def ports_set(port: PortName, family: int) -> PolicySet:
    spec = f"type {ADDRESS[family]} . inet_proto . inet_service;"
    return PolicySet(table=INET, name=f"ports{family}-{port[0]}-{port[1]}", spec=spec)


def port_element(port: PortName, ip: Ip, number: int) -> PolicyElement:
    key = field(ip.packed) + field(bytes([_NUMBER[port[1]]])) + field(number.to_bytes(2, "big"))
    return PolicyElement(table=INET, set=ports_set(port, ip.version).name, element=key)


def cut_element(source: bytes, target: bytes, protocol: int, ports: tuple[int, int]) -> Element:
    """The answers of a connection: its own ends and ports, the other way round."""
    fields = (target, source, bytes([protocol]), *(port.to_bytes(2, "big") for port in reversed(ports)))
    family = 4 if len(source) == 4 else 6
    return Element(set=f"{CUT}{family}", key=b"".join(map(field, fields)))


def connection_of(key: bytes) -> tuple[bytes, bytes, int, int]:
    """The sender, the target, the protocol and the target's port of the connection whose answers are an element."""
    size = (len(key) - 3 * _WORD) // 2
    target, source, rest = key[:size], key[size : 2 * size], key[2 * size :]
    return source, target, rest[0], int.from_bytes(rest[_WORD : _WORD + 2], "big")


def interface(name: str) -> bytes:
    return name.encode().ljust(_IFNAME, b"\0")


def pod_said(pod: str) -> str:
    """A pod by its namespace and name, as its elements say it: of a long one, the end is a checksum."""
    return short(pod, _POD)


def comment(uid: str, pod: str) -> str:
    return f"{short(uid, _UID)} {pod_said(pod)}" if pod else "no pod of Kubernetes"


def first_two(net: Net, length: int) -> tuple[Ip, Ip, Ip]:
    """The bits behind a subnet's prefix, and in these a node's first two addresses: its device's and its bridge's."""
    host = type(net.network_address)((1 << net.max_prefixlen - length) - 1)
    zero = type(net.network_address)(0)
    return host, zero, zero + 1


def is_pods(ip: Ip, length: int) -> bool:
    """Tell whether an address of the pod network is none of a node's first two in its subnet."""
    return int(ip) % (1 << ip.max_prefixlen - length) > 1
