"""WireGuard's devices as generic netlink has them: bytes to values and back (linux/wireguard.h). Pure.

Readers raise `Malformed`.
"""

import socket
from base64 import b64encode
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_network
from struct import Struct
from typing import Final

from weft.desired.tunnels.wireguard import Change, Device, LivePeer, Peer, key_bytes
from weft.kernel.genetlink import HEADER
from weft.kernel.rtnetlink.attributes import (
    AF,
    Attributes,
    Malformed,
    attribute,
    nest,
    parse,
    parse_list,
    text,
    u8,
    u16,
    u32,
)
from weft.model.net import Endpoint, Net
from weft.model.value import Secret

FAMILY: Final = "wireguard"

_VERSION: Final = 1
_GET_DEVICE: Final = 0
_SET_DEVICE: Final = 1

# WGDEVICE_A_*
_IFNAME: Final = 2
_PRIVATE_KEY: Final = 3
_LISTEN_PORT: Final = 6
_PEERS: Final = 8
# WGPEER_A_*
_PUBLIC_KEY: Final = 1
_PRESHARED_KEY: Final = 2
_FLAGS: Final = 3
_ENDPOINT: Final = 4
_KEEPALIVE: Final = 5
_LAST_HANDSHAKE: Final = 6
_RX_BYTES: Final = 7
_TX_BYTES: Final = 8
_ALLOWED_IPS: Final = 9
_REMOVE_ME: Final = 1  # WGPEER_F_*
_REPLACE_ALLOWED_IPS: Final = 2
_UPDATE_ONLY: Final = 4
# WGALLOWEDIP_A_*
_FAMILY: Final = 1
_ADDRESS: Final = 2
_LENGTH: Final = 3

_NO_KEY: Final = bytes(32)
_IN4: Final = Struct("=H2s4s8x")  # struct sockaddr_in (linux/in.h)
_IN6: Final = Struct("=H2sI16sI")  # struct sockaddr_in6 (linux/in6.h)
_SECONDS: Final = Struct("=qq")  # struct __kernel_timespec


def ask_device(name: str) -> bytes:
    return HEADER.pack(_GET_DEVICE, _VERSION) + text(_IFNAME, name)


def device_in(bodies: Iterable[bytes]) -> Device:
    """A peer's addresses may go on in the next part."""
    private, port = b"", 0
    peers: dict[bytes, list[Attributes]] = {}
    for body in bodies:
        found = parse(body, HEADER.size)
        private = found.get(_PRIVATE_KEY, private)
        port = found.number(_LISTEN_PORT) or port
        for _, each in parse_list(found.get(_PEERS, b"")):
            peer = parse(each)
            peers.setdefault(peer.get(_PUBLIC_KEY, b""), []).append(peer)
    return Device(
        private=None if private in (b"", _NO_KEY) else Secret(_base64(private)),
        port=port,
        peers=tuple(_peer_in(key, parts) for key, parts in peers.items()),
    )


def set_device(name: str, *, private: Secret, port: int) -> bytes:
    body = attribute(_PRIVATE_KEY, key_bytes(private.reveal())) + u16(_LISTEN_PORT, port)
    return HEADER.pack(_SET_DEVICE, _VERSION) + text(_IFNAME, name) + body


def set_peers(name: str, changes: Mapping[str, Change]) -> bytes:
    """Change peers by their keys. No other is touched."""
    inner = (nest(0, _peer(key, change)) for key, change in changes.items())
    return HEADER.pack(_SET_DEVICE, _VERSION) + text(_IFNAME, name) + nest(_PEERS, *inner)


def _peer(key: str, change: Change) -> bytes:
    body, peer = attribute(_PUBLIC_KEY, key_bytes(key)), change.peer
    if change.gone:
        return body + u32(_FLAGS, _REMOVE_ME)
    body += u32(_FLAGS, (_REPLACE_ALLOWED_IPS if change.alone else 0) | (_UPDATE_ONLY if peer is None else 0))
    if peer is not None:
        psk = _NO_KEY if peer.psk is None else key_bytes(peer.psk.reveal())
        body += attribute(_PRESHARED_KEY, psk) + u16(_KEEPALIVE, peer.keepalive)
        if peer.endpoint is not None:
            body += attribute(_ENDPOINT, _endpoint(peer.endpoint))
    return body + (nest(_ALLOWED_IPS, *(nest(0, _allowed(net)) for net in change.networks)) if change.networks else b"")


def _allowed(net: Net) -> bytes:
    return u16(_FAMILY, AF[net.version]) + attribute(_ADDRESS, net.network_address.packed) + u8(_LENGTH, net.prefixlen)


def _endpoint(endpoint: Endpoint) -> bytes:
    port = endpoint.port.to_bytes(2, "big")
    if endpoint.ip.version == 4:
        return _IN4.pack(socket.AF_INET, port, endpoint.ip.packed)
    return _IN6.pack(socket.AF_INET6, port, 0, endpoint.ip.packed, 0)


def _peer_in(key: bytes, parts: list[Attributes]) -> LivePeer:
    first = parts[0]
    psk = first.get(_PRESHARED_KEY, _NO_KEY)
    peer = Peer(
        key=_base64(key),
        endpoint=_endpoint_in(first.get(_ENDPOINT)),
        psk=None if psk == _NO_KEY else Secret(_base64(psk)),
        keepalive=first.number(_KEEPALIVE) or 0,
    )
    return LivePeer(
        peer=peer,
        networks=frozenset(_net(parse(each)) for part in parts for _, each in parse_list(part.get(_ALLOWED_IPS, b""))),
        handshake=_seconds(first.get(_LAST_HANDSHAKE, b"")),
        sent=first.number(_TX_BYTES) or 0,
        received=first.number(_RX_BYTES) or 0,
    )


def _endpoint_in(value: bytes | None) -> Endpoint | None:
    if value is None:
        return None
    if len(value) == _IN4.size:
        _, port, packed = _IN4.unpack(value)
        return Endpoint(IPv4Address(packed), int.from_bytes(port, "big"))
    if len(value) == _IN6.size:
        _, port, _, packed, _ = _IN6.unpack(value)
        return Endpoint(IPv6Address(packed), int.from_bytes(port, "big"))
    raise Malformed(f"an endpoint of {len(value)} bytes")


def _net(found: Attributes) -> Net:
    ip, length = found.ip(_ADDRESS), found.number(_LENGTH)
    if ip is None or length is None or length > ip.max_prefixlen:
        raise Malformed("an allowed address that cannot be read")
    return ip_network((ip, length), strict=False)


def _seconds(value: bytes) -> int:
    return int(_SECONDS.unpack(value)[0]) if len(value) == _SECONDS.size else 0


def _base64(key: bytes) -> str:
    return b64encode(key).decode()
