"""Values for tests: inputs and leases of a cluster whose node n has 192.168.0.n and subnet 10.5.n.0/24."""

from base64 import b64encode
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

from weft.config.netconf import NetConf, Pool
from weft.desired.backends import BACKENDS
from weft.desired.backends.extension import ExtensionOptions
from weft.desired.backends.ipip import IpipOptions
from weft.desired.backends.ipsec import IpsecOptions
from weft.desired.backends.mesh import MeshOptions
from weft.desired.backends.udp import UdpOptions
from weft.desired.backends.vxlan import VxlanOptions
from weft.desired.backends.wireguard import WireguardOptions
from weft.desired.inputs import Backend, Facts, Inputs, Uplink
from weft.desired.node import Wanted, shared
from weft.desired.tunnels.vxlan import VxlanLink
from weft.model.kernel.objects import Objects
from weft.model.lease import Lease
from weft.model.net import Mac
from weft.model.value import Value, replace

OPTIONS = {
    "vxlan": VxlanOptions,
    "ipip": IpipOptions,
    "udp": UdpOptions,
    "extension": ExtensionOptions,
    "wireguard": WireguardOptions,
    "ipsec": IpsecOptions,
    "mesh": MeshOptions,
}
NETWORK_V4 = IPv4Network("10.5.0.0/16")
NETWORK_V6 = IPv6Network("fc00::/48")


def key(number: int) -> str:
    """A key of WireGuard's."""
    return b64encode(bytes([number] * 32)).decode()


def mac(node: int, family: int = 4) -> Mac:
    return Mac(bytes([2, 0, 0, family, node >> 8, node & 255]))


def subnet_v4(node: int) -> IPv4Network:
    return IPv4Network((int(NETWORK_V4.network_address) + (node << 8), 24))


def subnet_v6(node: int) -> IPv6Network:
    return IPv6Network((int(NETWORK_V6.network_address) + (node << 64), 64))


def public_v4(node: int) -> IPv4Address:
    return IPv4Address("192.168.0.0") + node


def public_v6(node: int) -> IPv6Address:
    return IPv6Address("fd00::") + node


def netconf(*, family: str = "4", backend: str = "vxlan", **options: Any) -> NetConf:
    """A configuration for `family` 4, 6 or 46."""
    v4 = Pool(
        network=NETWORK_V4, subnet_len=24, first=subnet_v4(1).network_address, last=subnet_v4(255).network_address
    )
    v6 = Pool(
        network=NETWORK_V6, subnet_len=64, first=subnet_v6(1).network_address, last=subnet_v6(65535).network_address
    )
    return NetConf(
        v4=v4 if "4" in family else None,
        v6=v6 if "6" in family else None,
        nftables=False,
        backend=backend,
        options=OPTIONS.get(backend, Value)(**options),
    )


def inputs(
    node: int = 1, *, family: str = "4", backend: str = "vxlan", uplink_mtu: int = 1500, **options: Any
) -> Inputs:
    """What node `node` decides from; its uplink reaches 192.168.0.0/24 and fd00::/64 without a gateway."""
    v4, v6 = "4" in family, "6" in family
    uplink = Uplink(
        name="eth0", index=2, mtu=uplink_mtu, v4=public_v4(node) if v4 else None, v6=public_v6(node) if v6 else None
    )
    facts = Facts(
        uplink=uplink,
        public_v4=uplink.v4,
        public_v6=uplink.v6,
        onlink=(IPv4Network("192.168.0.0/24"), IPv6Network("fd00::/64")),
    )
    return Inputs(
        netconf=netconf(family=family, backend=backend, **options),
        backend=BACKENDS[backend],
        facts=facts,
        mac_v4=mac(node, 4),
        mac_v6=mac(node, 6),
        v4=subnet_v4(node) if v4 else None,
        v6=subnet_v6(node) if v6 else None,
    )


def lease(node: int, backend: Backend, /, *, family: str = "4", **changes: Any) -> Lease:
    """The lease that node `node` publishes under `backend`; `changes` replace fields of the attributes."""
    [name] = (name for name, known in BACKENDS.items() if known is backend)
    own = inputs(node, family=family, backend=name)
    attrs = replace(backend.advertise(own), **changes)
    return Lease(id=f"10.5.{node}.0-24", v4=own.v4, v6=own.v6, attrs=attrs, created=node)


def wanted(own: Inputs, leases: list[Lease]) -> Objects:
    """Everything a node wants: its own part and each peer's."""
    index = Wanted()
    index.set("", shared(own))
    for each in leases:
        index.set(each.id, own.backend.peer(own, each))
    return index.objects


def vtep(mac: Mac) -> VxlanLink:
    """A VTEP on eth0 that learns."""
    return VxlanLink(
        name="flannel.1",
        vni=1,
        port=8472,
        local=IPv4Address("172.31.0.11"),
        parent=2,
        parent_name="eth0",
        mac=mac,
        mtu=1450,
        learning=True,
    )
