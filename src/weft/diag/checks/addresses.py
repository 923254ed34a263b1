"""Ranges and routes that stand in the pod network's way, and addresses that run out."""

from collections.abc import Iterator
from ipaddress import ip_network
from itertools import product
from typing import Final

from weft.diag.finding import Finding, check, finding
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import overlap, within_any
from weft.diag.sight.routing import UNICAST, removing
from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.reported import RouteInfo
from weft.model.net import within
from weft.model.text import counted

_NEARLY: Final = 0.9  # of a subnet's addresses
_NEARLY_ALL: Final = 0.8  # of a network's subnets
_SPARE: Final = 3  # the subnet's own address, the bridge's, and the last one
_BEING_MADE: Final = 10  # pods at a time: their addresses are given before their links are there


@check("overlaps", "no other route leads into the pod network", "routes")
def _overlaps(sight: Sight) -> Iterator[Finding]:
    own = {link.index for link in (*sight.devices, *sight.bridges)} | _at_home(sight)
    for route in sight.routes:
        # A default route, in one piece or two, is wider than any network.
        if route.protocol == PROTOCOL or route.index in own or route.dst.prefixlen <= 1 or route.kind != UNICAST:
            continue
        for network in sight.networks_of_pods:
            if overlap(route.dst, network) and not (_serves_a_peer(route, sight) or _serves_a_pod(route, sight)):
                yield _overlap(sight, route, str(network))


def _at_home(sight: Sight) -> set[int]:
    """The links that have addresses of this node's subnet: pods' bridges, whatever names them."""
    return {a.index for a in sight.addresses if any(a.ip in subnet for subnet in sight.subnets)}


def _serves_a_peer(route: RouteInfo, sight: Sight) -> bool:
    """True of a route as flanneld makes one for a peer: by a gateway to a subnet that is not this node's."""
    inside = within_any(route.dst, sight.networks_of_pods)
    return inside and route.via is not None and not within_any(route.dst, sight.subnets)


def _serves_a_pod(route: RouteInfo, sight: Sight) -> bool:
    link = sight.link(route.index)
    return route.dst.prefixlen == route.dst.max_prefixlen and link is not None and link.kind == "veth"


def _overlap(sight: Sight, route: RouteInfo, network: str) -> Finding:
    link = sight.link(route.index)
    out = f" through {link.name}" if link is not None else ""
    where = f"route {route.dst}{out}"
    if any(within(route.dst, subnet) for subnet in sight.subnets):
        command = removing(sight, route)
        seen = "packets for this node's own pods leave the node through it"
        hint = f"Find what made it (protocol {route.protocol}); to remove it: {command}"
        return finding("ROUTE-002", where, seen, hint)
    seen = f"it overlaps the pod network {network}"
    hint = "Give the network behind this route another range, or choose another Network for the cluster"
    # Peers' routes are longer than a wider one: that has what no peer has.
    wider = all(route.dst.prefixlen < each.prefixlen for each in sight.networks_of_pods)
    return finding("ADDR-001", where, seen, hint, weight="warning" if wider else "fault")


@check("leaks", "each reserved address has a pod", "reserved", "networks", "links")
def _leaks(sight: Sight) -> Iterator[Finding]:
    """Addresses that are reserved without a pod, as each reboot without DEL leaves them."""
    for reserved in sight.reserved:
        network = next((each for each in sight.networks if each.name == reserved.network), None)
        if network is None or not network.bridges:
            continue
        bridges = {bridge.index for bridge in sight.bridges if bridge.name in network.bridges}
        pods = sum(link.master in bridges for link in sight.links)
        given = max(reserved.given_v4, reserved.given_v6)
        if given > 2 * pods and given - pods >= _BEING_MADE:
            seen = f"{given} of its addresses are reserved here, for {counted(pods, 'pod')}"
            hint = (
                "'weft ipam gc' frees those that are proved to be leaked. Of addresses that another program reserved,"
                f" each has a file in /var/lib/cni/networks/{reserved.network} with the container's id: remove the"
                " files whose container is gone"
            )
            yield finding("IPAM-001", f"network {reserved.network}", seen, hint, weight="warning")


@check("room", "this node has addresses left", "reserved", "networks")
def _room(sight: Sight) -> Iterator[Finding]:
    flannels = {network.name for network in sight.networks if "flannel" in network.plugins}
    for reserved in sight.reserved:
        for subnet in sight.subnets:
            room = subnet.num_addresses - _SPARE
            given = reserved.given_v4 if subnet.version == 4 else reserved.given_v6
            if reserved.network in flannels and given >= room * _NEARLY:
                seen = f"{given} of {room} addresses are in use"
                hint = (
                    "'weft ipam list --leaked' shows those without a pod, 'weft ipam gc' frees them;"
                    " else run fewer pods here, or give nodes larger subnets"
                )
                yield finding(
                    "IPAM-002", f"subnet {subnet}", seen, hint, weight="fault" if given >= room else "warning"
                )


@check("subnets", "the network has subnets left for more nodes", "daemon")
def _subnets_left(sight: Sight) -> Iterator[Finding]:
    """Few subnets are left, if all have this one's size: SubnetMin and SubnetMax are not known."""
    state = sight.daemon
    if state is None:
        return
    for network, subnet in product(sight.networks_of_pods, sight.subnets):
        if subnet.version != network.version:
            continue
        room = 1 << (subnet.prefixlen - network.prefixlen)
        given = {str(subnet)}.union(*(each.subnets for each in state.peers), *(each.subnets for each in state.refused))
        used = sum(ip_network(text).version == network.version for text in given)
        if used >= room * _NEARLY_ALL:
            seen = f"{used} of {room} subnets of size /{subnet.prefixlen} are taken"
            hint = (
                "When all are taken, a new node gets none. Delete leases of nodes that are gone, or widen the network"
            )
            yield finding("LEASE-003", f"network {network}", seen, hint, weight="warning")


CHECKS: Final = (_overlaps, _subnets_left, _leaks, _room)
