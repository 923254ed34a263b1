"""Captured packets as lines: who speaks to whom, in a tunnel and inside it, and which are wanted. Pure.

A level is one network header with what it carries: a packet in a tunnel has two.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from weft.model.net import Net, with_port
from weft.model.value import Value
from weft.wire.packet import Layer

_NETWORK: Final = ("IPv4", "IPv6", "ARP")
_IN_UDP: Final = ("VXLAN", "WireGuard")
_IPIP: Final = (4, 41)  # IP's numbers for IPv4 and IPv6 inside
PROTOCOLS: Final = ("arp", "icmp", "tcp", "udp", "vxlan", "esp", "wireguard")
_NAMES: Final = {"icmp": ("ICMP", "ICMPv6"), "esp": ("ESP",), "wireguard": ("WireGuard",)}


class Level(Value):
    """`names` are its layers; `hosts` and `ports` its ends, the sender first."""

    names: tuple[str, ...]
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    text: str


def levels(layers: Sequence[Layer]) -> list[Level]:
    """The outermost first. A frame without IP or ARP is one level."""
    parts: list[list[Layer]] = []
    for layer in layers:
        if layer.name in (*_NETWORK, "Ethernet") or not parts:
            parts.append([])
        parts[-1].append(layer)
    # The frame around a packet says nothing that the packet's line must tell.
    return [_level(part) for part in parts if part[0].name != "Ethernet" or len(part) > 1]


def line(found: Iterable[Level]) -> str:
    return " | ".join(level.text for level in found)


def _level(part: Sequence[Layer]) -> Level:
    head, *rest = part
    names = tuple(layer.name for layer in part)
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    if head.name in _NETWORK:
        hosts = (str(head.fields["source"]), str(head.fields["target"]))
    if rest and rest[0].name in ("TCP", "UDP"):
        ports = (int(rest[0].fields["source"]), int(rest[0].fields["target"]))
    if head.name in ("IPv4", "IPv6"):
        shown = () if set(names) & set(_IN_UDP) else ports
        ends = " > ".join(map(with_port, hosts, shown or (0, 0)))
        text = f"{ends} {', '.join(_words(head, rest))}"
    else:
        text = ", ".join(f"{layer.name} {layer.text}" for layer in part)
    return Level(names=names, hosts=hosts, ports=ports, text=text)


def _words(head: Layer, rest: Sequence[Layer]) -> Iterator[str]:
    """What an IP header carries; an inner packet is the next level's."""
    if not rest or rest[0].name == "data":
        protocol = head.fields["protocol"]
        yield "IPIP" if protocol in _IPIP else f"protocol {protocol}"
    following = [layer.name for layer in rest[1:]]
    for layer in rest:
        if layer.name == "UDP" and following and following[0] in _IN_UDP:
            continue
        yield _word(layer)


def _word(layer: Layer) -> str:
    fields = layer.fields
    match layer.name:
        case "UDP":
            return "UDP"
        case "TCP":
            return f"TCP {fields['flags']}"
        case "VXLAN":
            return f"VXLAN {fields['vni']}"
        case "data":
            return layer.text
        case _:
            number = f" {fields['sequence']}" if layer.text.startswith("echo ") else ""
            return f"{layer.name} {layer.text}{number}"


def places(words: Iterable[str], *, names: Collection[str], nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Places with links, "" for all links: a word that names no place is a link.

    A link is one of the places before it, back to an earlier link, or of all nodes: `node1 node2 eth0` are two links,
    `eth0` is one of each node, and no words mean everything of all nodes.
    """
    found: list[tuple[str, str]] = []
    meant, linked = list(nodes), True
    for word in words:
        if word not in names:
            found += [(place, word) for place in meant]
            linked = True
            continue
        if linked:
            meant, linked = [], False
        meant.append(word)
    if not linked or not found:
        found += [(place, "") for place in meant]
    return list(dict.fromkeys(found))


class Filter(Value):
    """Packets of which one level, in a tunnel or outside, is as each field says.

    Each of `ends` is a set of networks that holds the sender or the receiver; two mean what passes between them.
    """

    ends: tuple[tuple[Net, ...], ...] = ()
    port: int | None = None
    protocol: str | None = None

    def wants(self, levels: Iterable[Level]) -> bool:
        return self == _ALL or any(self._fits(level) for level in levels)

    def _fits(self, level: Level) -> bool:
        if self.protocol is not None and not set(_NAMES.get(self.protocol, (self.protocol.upper(),))) & set(
            level.names
        ):
            return False
        if self.port is not None and self.port not in level.ports:
            return False
        hosts = [ip_address(host) for host in level.hosts]
        return all(any(host in network for network in end for host in hosts) for end in self.ends)


_ALL: Final = Filter()
