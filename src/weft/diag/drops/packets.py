"""What a dropped packet was: its addresses, inside what carries it between nodes, too. Pure."""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

from weft.diag.reasons import has_arrived
from weft.diag.rules.matching import Packet
from weft.model.kernel.dropped import Drop
from weft.model.value import Value

_ETHERNET: Final = 14  # bytes of a frame's header
_VERSIONS: Final = {0x0800: 4, 0x86DD: 6}  # linux/if_ether.h
_HEADERS: Final = {4: 20, 6: 40}  # bytes; IPv6's without extensions, IPv4's tells its own
_PROTOCOLS: Final = {1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp"}
_PORTS: Final = ("tcp", "udp", "sctp")
_CARRIED: Final = {4: 4, 41: 6}  # protocols that are a packet themselves, and of which version
_NEIGHBOURS: Final = range(133, 138)  # types of ICMPv6 that are neighbour discovery's (RFC 4861 §4)
_VXLAN: Final = 16  # bytes of UDP's header and of VXLAN's


class Found(Value):
    """A packet, and what carried it if something did."""

    packet: Packet
    carrier: Packet | None = None


def found_in(drop: Drop, ports: Collection[int]) -> Found | None:
    """The innermost packet that can be read; None for what is none of IP, or is neighbour discovery or multicast.

    `ports` are those of VXLAN devices. The kernel takes some of what it is done with for dropped: neighbour discovery
    before Linux 6.4, copies of what goes to many, and answers to pings that have arrived.
    """
    if has_arrived(drop):
        return None
    version = _VERSIONS.get(drop.protocol)
    plain = drop.frame[12:14] != drop.protocol.to_bytes(2, "big")  # a link without headers of its own, as a tunnel
    return None if version is None else _read(drop.frame if plain else drop.frame[_ETHERNET:], version, ports)


def _read(data: bytes, version: int, ports: Collection[int]) -> Found | None:
    if len(data) < _HEADERS[version] or data[0] >> 4 != version:
        return None
    start, middle, end = (12, 16, 20) if version == 4 else (8, 24, 40)
    number, body = data[9 if version == 4 else 6], data[(data[0] & 0xF) * 4 if version == 4 else end :]
    source, target = ip_address(data[start:middle]), ip_address(data[middle:end])
    protocol = _PROTOCOLS.get(number, str(number))
    discovers = protocol == "ipv6-icmp" and body[:1] and body[0] in _NEIGHBOURS
    if target.is_multicast or target.is_link_local or discovers:
        return None
    own, to = (int.from_bytes(body[at : at + 2], "big") if protocol in _PORTS else 0 for at in (0, 2))
    packet = Packet(source=source, target=target, protocol=protocol, source_port=own, target_port=to)
    inner = None
    if number in _CARRIED:
        inner = _read(body, _CARRIED[number], ports)
    elif protocol == "udp" and to in ports:
        frame = body[_VXLAN:]
        kind = _VERSIONS.get(int.from_bytes(frame[12:14], "big"))
        inner = None if kind is None else _read(frame[_ETHERNET:], kind, ports)
    return Found(packet=packet) if inner is None else Found(packet=inner.packet, carrier=packet)
