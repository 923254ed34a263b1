"""Takes a captured frame apart, layer by layer, for people: Ethernet, IP, UDP, VXLAN and the frame inside.

All tunnels of weft's back ends are known; what is encrypted stays so. What it does not know ends the list with the
number of bytes left. It never fails on a short or odd frame.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal

from weft.model.net import Mac
from weft.model.value import Value

# What a datagram to a UDP port carries; IP is a packet without a frame, as with back end udp.
Tunnels = Mapping[int, Literal["VXLAN", "IP", "WireGuard"]]

VXLAN_PORT: Final = 8472  # the kernel's own; IANA's is 4789

# The ports that weft's back ends use unless they are told otherwise.
USUAL: Final[Tunnels] = {VXLAN_PORT: "VXLAN", 8285: "IP", 51820: "WireGuard", 51821: "WireGuard"}

_ETHERTYPES: Final = {0x0800: "IPv4", 0x0806: "ARP", 0x86DD: "IPv6"}
_PROTOCOLS: Final = {1: "ICMP", 4: "IPv4", 6: "TCP", 17: "UDP", 41: "IPv6", 50: "ESP", 58: "ICMPv6"}
_ECHO: Final = ((1, 8), (1, 0), (58, 128), (58, 129))
_ICMP: Final = {
    (1, 8): "echo request",
    (1, 0): "echo reply",
    (58, 128): "echo request",
    (58, 129): "echo reply",
    (58, 135): "neighbour solicitation",
    (58, 136): "neighbour advertisement",
}
# The WireGuard paper, 5.4: the first byte of a message.
_WIREGUARD: Final = {1: "handshake initiation", 2: "handshake response", 3: "cookie reply", 4: "encrypted packet"}


class Layer(Value):
    """One protocol's part of a frame: `text` says what is in its header, `fields` holds it by name."""

    name: str
    text: str
    fields: dict[str, str | int]


_Parser = Callable[[bytes, Tunnels], Iterator[Layer]]


def layers_of(frame: bytes, *, ethernet: bool = True, tunnels: Tunnels = USUAL) -> list[Layer]:
    """Return the layers of an Ethernet frame, or of an IP packet without one, the outermost first."""
    return list((_ethernet if ethernet else _ip_alone)(frame, tunnels))


def _ethernet(data: bytes, tunnels: Tunnels) -> Iterator[Layer]:
    if len(data) < 14:
        yield _rest(data)
        return
    target, source, kind = Mac(data[:6]), Mac(data[6:12]), int.from_bytes(data[12:14], "big")
    carried = _ETHERTYPES.get(kind, f"type {kind:#06x}")
    yield Layer(
        name="Ethernet",
        text=f"{source} -> {target}, carries {carried}",
        fields={"source": str(source), "target": str(target), "type": kind},
    )
    yield from {0x0800: _ipv4, 0x0806: _arp, 0x86DD: _ipv6}.get(kind, _unknown)(data[14:], tunnels)


def _arp(data: bytes, _: Tunnels) -> Iterator[Layer]:
    if len(data) < 28:
        yield _rest(data)
        return
    operation, asker, asked = int.from_bytes(data[6:8], "big"), IPv4Address(data[14:18]), IPv4Address(data[24:28])
    text = f"who has {asked}? tell {asker}" if operation == 1 else f"{asker} is at {Mac(data[8:14])}"
    yield Layer(name="ARP", text=text, fields={"operation": operation, "source": str(asker), "target": str(asked)})


def _ipv4(data: bytes, tunnels: Tunnels) -> Iterator[Layer]:
    if len(data) < 20:
        yield _rest(data)
        return
    header, length, ttl, protocol = (data[0] & 0xF) * 4, int.from_bytes(data[2:4], "big"), data[8], data[9]
    source, target = str(IPv4Address(data[12:16])), str(IPv4Address(data[16:20]))
    yield _ip("IPv4", source, target, protocol=protocol, ttl=ttl, length=length)
    parser = _unknown if int.from_bytes(data[6:8], "big") & 0x1FFF else _transport(protocol)  # the rest of a datagram
    yield from parser(data[header:length], tunnels)


def _ipv6(data: bytes, tunnels: Tunnels) -> Iterator[Layer]:
    if len(data) < 40:
        yield _rest(data)
        return
    length, protocol, ttl = int.from_bytes(data[4:6], "big"), data[6], data[7]
    source, target = str(IPv6Address(data[8:24])), str(IPv6Address(data[24:40]))
    yield _ip("IPv6", source, target, protocol=protocol, ttl=ttl, length=length + 40)
    yield from _transport(protocol)(data[40 : 40 + length], tunnels)


def _ip_alone(data: bytes, tunnels: Tunnels) -> Iterator[Layer]:
    """A packet whose version alone says what it is."""
    version = data[0] >> 4 if data else 0
    yield from {4: _ipv4, 6: _ipv6}.get(version, _unknown)(data, tunnels)


def _ip(name: str, source: str, target: str, *, protocol: int, ttl: int, length: int) -> Layer:
    carried = _PROTOCOLS.get(protocol, f"protocol {protocol}")
    return Layer(
        name=name,
        text=f"{source} -> {target}, TTL {ttl}, {length} bytes, carries {carried}",
        fields={"source": source, "target": target, "protocol": protocol, "ttl": ttl, "length": length},
    )


def _transport(protocol: int) -> _Parser:
    parsers: dict[int, _Parser] = {1: _icmp, 4: _ipv4, 6: _tcp, 17: _udp, 41: _ipv6, 50: _esp, 58: _icmp6}
    return parsers.get(protocol, _unknown)


def _udp(data: bytes, tunnels: Tunnels) -> Iterator[Layer]:
    if len(data) < 8:
        yield _rest(data)
        return
    source, target, length = struct.unpack_from("!HHH", data)
    yield Layer(
        name="UDP",
        text=f"port {source} -> {target}, {length} bytes",
        fields={"source": source, "target": target, "length": length},
    )
    carried = tunnels.get(target)
    parsers: dict[str | None, _Parser] = {"VXLAN": _vxlan, "IP": _ip_alone, "WireGuard": _wireguard}
    yield from parsers.get(carried, _unknown)(data[8:], tunnels)


def _vxlan(data: bytes, tunnels: Tunnels) -> Iterator[Layer]:
    """RFC 7348 §5: flags with the I bit, three bytes reserved, the network's number, one byte reserved."""
    if len(data) < 8 or not data[0] & 0x08:
        yield _rest(data)
        return
    vni = int.from_bytes(data[4:7], "big")
    yield Layer(name="VXLAN", text=f"VNI {vni}, a whole frame follows", fields={"vni": vni})
    yield from _ethernet(data[8:], tunnels)


def _wireguard(data: bytes, _: Tunnels) -> Iterator[Layer]:
    kind = _WIREGUARD.get(data[0]) if len(data) >= 4 and data[1:4] == bytes(3) else None
    yield Layer(name="WireGuard", text=kind, fields={"type": data[0]}) if kind else _rest(data)


def _esp(data: bytes, _: Tunnels) -> Iterator[Layer]:
    """RFC 4303 §2: the security association's number and the packet's; all else is encrypted."""
    if len(data) < 8:
        yield _rest(data)
        return
    spi, sequence = struct.unpack_from("!II", data)
    yield Layer(name="ESP", text=f"SPI {spi:#010x}, sequence {sequence}", fields={"spi": spi, "sequence": sequence})


def _tcp(data: bytes, _: Tunnels) -> Iterator[Layer]:
    if len(data) < 20:
        yield _rest(data)
        return
    source, target, sequence = struct.unpack_from("!HHI", data)
    names = [name for bit, name in enumerate(("FIN", "SYN", "RST", "PSH", "ACK", "URG")) if data[13] >> bit & 1]
    flags = " ".join(names)
    text = f"port {source} -> {target}, {flags}, sequence {sequence}"
    fields = {"source": source, "target": target, "sequence": sequence, "flags": flags}
    yield Layer(name="TCP", text=text, fields=fields)


def _icmp(data: bytes, _: Tunnels) -> Iterator[Layer]:
    yield from _control("ICMP", 1, data)


def _icmp6(data: bytes, _: Tunnels) -> Iterator[Layer]:
    yield from _control("ICMPv6", 58, data)


def _control(name: str, protocol: int, data: bytes) -> Iterator[Layer]:
    if len(data) < 8:
        yield _rest(data)
        return
    kind, code = data[0], data[1]
    text = _ICMP.get((protocol, kind), f"type {kind}, code {code}")
    echo = {"sequence": int.from_bytes(data[6:8], "big")} if (protocol, kind) in _ECHO else {}
    yield Layer(name=name, text=text, fields={"type": kind, "code": code, **echo})


def _unknown(data: bytes, _: Tunnels) -> Iterator[Layer]:
    if data:
        yield _rest(data)


def _rest(data: bytes) -> Layer:
    return Layer(name="data", text=f"{len(data)} bytes", fields={"length": len(data)})
