"""What a capture is asked for: on which links of which nodes and pods, and which packets. Pure."""

from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address
from typing import Final

from weft.lab.commands.packets.levels import Level
from weft.model.net import Net
from weft.model.value import Value

PROTOCOLS: Final = ("arp", "icmp", "tcp", "udp", "vxlan", "esp", "wireguard")
_NAMES: Final = {"icmp": ("ICMP", "ICMPv6"), "esp": ("ESP",), "wireguard": ("WireGuard",)}


def places(words: Iterable[str], *, names: Collection[str], nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the places and links that words mean, "" for all links: a word that names no place is a link.

    It is one of the places before it, back to an earlier link, or of all nodes. So `node1 node2 eth0` are two links,
    `eth0` is one of each node, and no word at all means everything of all nodes.
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
    """Which packets are wanted: those of which one level, in a tunnel or outside of it, is as each field says.

    Each of `ends` is a set of networks of which one holds a sender or a receiver; two mean what passes between them.
    """

    ends: tuple[tuple[Net, ...], ...] = ()
    port: int | None = None
    protocol: str | None = None

    def wants(self, levels: Iterable[Level]) -> bool:
        """Tell whether a packet is wanted."""
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
