"""A captured packet on one line: who speaks to whom, in a tunnel and inside it. Pure.

A level is what one network header says, with what it carries: a packet in a tunnel has two.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from weft.model.value import Value
from weft.wire.packet import Layer

_NETWORK: Final = ("IPv4", "IPv6", "ARP")
_IN_UDP: Final = ("VXLAN", "WireGuard")
_IPIP: Final = (4, 41)  # IP's numbers for IPv4 and IPv6 inside


class Level(Value):
    """One header's part. `names` are its layers; `hosts` and `ports` its ends, the sender first, where it has them."""

    names: tuple[str, ...]
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    text: str


def levels(layers: Sequence[Layer]) -> list[Level]:
    """Return the levels of a packet, the outermost first. A frame without IP or ARP is one level."""
    parts: list[list[Layer]] = []
    for layer in layers:
        if layer.name in (*_NETWORK, "Ethernet") or not parts:
            parts.append([])
        parts[-1].append(layer)
    # The frame around a packet says nothing that the packet's line must tell.
    return [_level(part) for part in parts if part[0].name != "Ethernet" or len(part) > 1]


def line(found: Iterable[Level]) -> str:
    """Return a packet's levels on one line, the outermost first."""
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
        text = f"{_ends(hosts, shown)} {', '.join(_words(head, rest))}"
    else:
        text = ", ".join(f"{layer.name} {layer.text}" for layer in part)
    return Level(names=names, hosts=hosts, ports=ports, text=text)


def _ends(hosts: tuple[str, ...], ports: tuple[int, ...]) -> str:
    if not ports:
        return " > ".join(hosts)
    brackets = [f"[{host}]" if ":" in host else host for host in hosts]
    return " > ".join(f"{host}:{port}" for host, port in zip(brackets, ports, strict=True))


def _words(head: Layer, rest: Sequence[Layer]) -> Iterator[str]:
    """What an IP header carries, in words; an inner packet is the next level's."""
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
