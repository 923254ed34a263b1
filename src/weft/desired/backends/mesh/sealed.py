"""What a mesh has of WireGuard: one device for both families, and each peer that has it, too, is in it.

A peer's own address for asking is always at the peer itself. Its blocks are at the next hop of its way, whichever kind
of way that is: WireGuard takes a packet only from whom it would send the answer to, and the other end may use another
kind than we do.
"""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Final

from weft.config.blocks import asked_at
from weft.config.flagvalues import MESH_PORT
from weft.desired.inputs import Device, Inputs
from weft.desired.tunnels.wireguard import (
    DEVICE,
    Peer,
    Server,
    WireguardDevice,
    WireguardLink,
    WireguardPeer,
    WireguardRoute,
    WireguardTun,
)
from weft.model.kernel.objects import Address, Object, Route
from weft.model.lease import Lease, Way
from weft.model.net import Ip, Net
from weft.model.value import Secret, Value

OVERHEAD: Final = 80  # outer IPv6 40, UDP 8, WireGuard's header and tag 32
_KEEPALIVE: Final = 25  # seconds; NATs forget UDP after 30 s or more (RFC 4787 §4.3 asks for 2 minutes)


class Keys(Value):
    """The key by which the mesh knows this node, the one of the ring, and whether a process serves the device."""

    private: Secret
    psk: Secret
    in_process: bool = False


class Prepared(Value):
    """Whether the mesh has a password; `keys` are None where nothing serves WireGuard."""

    password: bool = False
    keys: Keys | None = None


def prepared(inputs: Inputs) -> Prepared:
    return inputs.prepared if isinstance(inputs.prepared, Prepared) else Prepared()


def devices(inputs: Inputs, *, vital: bool) -> Iterator[Device]:
    if keys := prepared(inputs).keys:
        yield Device(DEVICE, _kind(keys), frozenset(inputs.netconf.families), vital)


def shared(inputs: Inputs, mtu: int) -> Iterator[Object]:
    """The device, and the addresses at which this node is asked by it."""
    keys, own = prepared(inputs).keys, _own(inputs)
    if keys is None or not own:
        return
    yield _kind(keys)(name=DEVICE, mtu=mtu)
    yield WireguardDevice(dev=DEVICE, private=keys.private, port=MESH_PORT)
    if keys.in_process:
        yield Server(dev=DEVICE)
    for subnet in own:
        yield _address(asked_at(inputs.netconf, subnet, "direct"))


def bases(inputs: Inputs) -> Iterator[Object]:
    """Where there is no vxlan, the source of what the node itself sends to pods is at this device."""
    return (_address(subnet.network_address) for subnet in _own(inputs))


def peer(inputs: Inputs, lease: Lease) -> Iterator[Object]:
    keys, way = prepared(inputs).keys, lease.way
    if keys is None or way is None or way.tunnel is None:
        return
    key, endpoint, keepalive = way.tunnel.key, way.tunnel.endpoint, _KEEPALIVE * way.tunnel.keepalive
    yield WireguardPeer(dev=DEVICE, peer=Peer(key=key, endpoint=endpoint, psk=keys.psk, keepalive=keepalive))
    for subnet, own in _pairs(inputs, lease):
        asked, source = (asked_at(inputs.netconf, each, "direct") for each in (subnet, own))
        yield WireguardRoute(dev=DEVICE, net=ip_network(asked), peer=key)
        yield Route(dst=ip_network(asked), dev=DEVICE, source=source)


def blocks(inputs: Inputs, lease: Lease) -> Iterator[Object]:
    """Who may send what comes from the peer's pods, and by a way of this kind gets what is for them."""
    if prepared(inputs).keys is not None and lease.way is not None and (hop := lease.way.hop_key):
        yield from (WireguardRoute(dev=DEVICE, net=subnet, peer=hop) for subnet, _ in _pairs(inputs, lease))


def route(inputs: Inputs, way: Way, subnet: Net, source: Ip) -> Route | None:
    if prepared(inputs).keys is None or not way.hop_key:
        return None
    return Route(dst=subnet, dev=DEVICE, source=source, mtu=way.mtu)


def _own(inputs: Inputs) -> list[Net]:
    return [subnet for subnet in (inputs.v4, inputs.v6) if subnet is not None]


def _pairs(inputs: Inputs, lease: Lease) -> Iterator[tuple[Net, Net]]:
    """A subnet of the peer's, and ours of the same family."""
    owned = {subnet.version: subnet for subnet in _own(inputs)}
    return ((subnet, owned[subnet.version]) for subnet in lease.subnets if subnet.version in owned)


def _kind(keys: Keys) -> type[WireguardTun] | type[WireguardLink]:
    return WireguardTun if keys.in_process else WireguardLink


def _address(ip: Ip) -> Address:
    return Address(dev=DEVICE, ip=ip, prefixlen=ip.max_prefixlen)
