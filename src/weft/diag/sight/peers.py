"""A node's peers as its sight has them: by its daemon's word, or without it by the routes that name them. Pure."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from weft.diag.sight.node import Sight
from weft.model.net import Ip, Net, within
from weft.model.node.nodestate import NodeState
from weft.model.value import Value

_VIA: Final = "via "  # begins the way by a relay, whose id follows (`weft.model.lease.Way`)


class Peer(Value):
    """`way` is in the daemon's words, of a mesh alone (`PeerState.way`). `hop` is the node that packets go to first."""

    subnet: Net
    inner: Ip | None
    public: Ip | None
    hop: Ip | None
    way: str = ""


def peers(sight: Sight) -> list[Peer]:
    """They are those that weftd serves; without it, the routes into the pod network name them."""
    return _by_routes(sight) if sight.daemon is None else _by_daemon(sight, sight.daemon)


def _by_daemon(sight: Sight, state: NodeState) -> list[Peer]:
    inside = bool(sight.devices)
    found = []
    known = {peer.id: [ip_address(address) for address in peer.public] for peer in state.peers}
    for peer in state.peers:
        relay = peer.way.removeprefix(_VIA).split()[0] if peer.way.startswith(_VIA) else peer.id
        for subnet in map(ip_network, peer.subnets):
            inner = subnet.network_address if inside else None
            public, hop = (_best(known.get(each, []), subnet.version) for each in (peer.id, relay))
            found.append(Peer(subnet=subnet, inner=inner, public=public, hop=hop, way=peer.way))
    return found


def _best(addresses: Sequence[Ip], version: int) -> Ip | None:
    return next((each for each in addresses if each.version == version), next(iter(addresses), None))


def _by_routes(sight: Sight) -> list[Peer]:
    """A route's gateway is the peer's device in the overlay (flannel.md §6.2), or its public IP where it has none."""
    devices = {link.index for link in sight.devices}
    ipip = {link.index for link in sight.devices if link.kind == "ipip"}
    remotes = {entry.mac: entry.remote for entry in sight.fdb if entry.index in devices}
    macs = {(each.index, each.ip): each.mac for each in sight.neighbours}
    found = []
    for route in sight.routes:
        if route.via is None or not _is_peers(route.dst, sight):
            continue
        inside = route.index in devices
        mac = macs.get((route.index, route.via))
        plain = not inside or route.index in ipip  # their gateway is the node's public IP (flannel.md §6.3, 6.4)
        public = route.via if plain else None if mac is None else remotes.get(mac)
        inner = None if not inside else route.dst.network_address if plain else route.via
        found.append(Peer(subnet=route.dst, inner=inner, public=public, hop=public))
    return found


def _is_peers(net: Net, sight: Sight) -> bool:
    """A single address is no lease's: in a mesh it is that at which a peer's path is asked."""
    return (
        net.prefixlen < net.max_prefixlen
        and within_any(net, sight.networks_of_pods)
        and net not in (*sight.subnets, *sight.networks_of_pods)
    )


def within_any(net: Net, networks: tuple[Net, ...]) -> bool:
    return any(within(net, each) for each in networks)


def overlap(net: Net, other: Net) -> bool:
    return within(net, other) or within(other, net)
