"""The network below the pod network: a bridge in the lab's own namespace, and a link to each node.

The bridge is the switch of a data centre, and the store listens at its address. A lab with several segments has a
bridge for each, and the lab's namespace routes between them, but for those that are behind a NAT (`nat`).
"""

import array
import errno
import fcntl
import socket
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from typing import Final

from weft.kernel import sysctl
from weft.kernel.rtnetlink import neigh, route
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.spec import SERVICES, Node, switch
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.marks import FORWARDING
from weft.model.kernel.objects import Sysctl
from weft.model.net import Family, Ip, Mac, Net, family_of, with_port

UPLINK: Final = "eth0"
_BEYOND: Final = 32  # segment 1 is 172.31.0.0/16 and fd31::/64, segment 2 is 172.30.0.0/16 and fd30::/64
_MOST_LEARNED: Final = 20  # nodes of a lab that find each other by ARP
_BY_ADMINISTRATOR: Final = 4  # RTPROT_STATIC (linux/rtnetlink.h): not the daemon's own mark
# A router asks for no neighbour while its own link-local address is being tried, for a second. And it tells no node of
# a shorter way, which the node would keep in mind.
_ROUTER: Final = {"net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/all/accept_dad": "0"} | {
    f"net/ipv4/conf/{which}/send_redirects": "0" for which in ("all", "default")
}
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STXCSUM: Final = 0x17  # struct ethtool_value: the command, and 0 or 1
_BEFORE_NODES: Final = 10  # node 1 is 172.31.0.11 and fd31::11: the last digits tell the node
_OUTER_PORTS: Final = 40_000


def address(family: Family, index: int = 0, segment: int = 1) -> IPv4Interface | IPv6Interface:
    """Of node `index` of a segment, or with 0 of the lab: in the first segment the store, in others the router."""
    base: IPv4Interface | IPv6Interface
    if family == 4:
        base = IPv4Interface(f"172.{_BEYOND - segment}.0.1/16")
    else:
        base = IPv6Interface(f"fd{_BEYOND - segment}::1/64")
    if index == 0:
        return base
    offset = _BEFORE_NODES + index
    number = offset if family == 4 else int(str(offset), 16)
    return type(base)((base.network[number], base.network.prefixlen))


def beyond(family: Family, segment: int) -> IPv4Interface | IPv6Interface:
    """Of the router with NAT that a segment is behind, in the first segment: 172.31.0.2 and fd31::2 of segment 2."""
    base = address(family)
    return type(base)((base.network[segment], base.network.prefixlen))


def address_of(node: Node, family: Family) -> Ip:
    return address(family, node.index, node.segment).ip


def endpoint(families: Sequence[Family], port: int) -> str:
    """A port of the lab itself, in a URL."""
    return with_port(address(families[0]).ip, port)


def outer_port(node: Node) -> int:
    """Where its WireGuard is seen behind a NAT that keeps ports: not the port that it has itself."""
    return _OUTER_PORTS + node.index


def port(node: int) -> str:
    return f"port{node}"


def make_switches(rtnl: Rtnl, families: Sequence[Family], segments: Sequence[int], behind: Collection[int]) -> None:
    """A switch for each segment in the lab's namespace, which routes between those that are not `behind` a NAT."""
    bring_up(rtnl, "lo")
    if len(segments) > 1:
        route_between(families)
    for segment in segments:
        # One that has no MAC of its own gets another with each node that comes: others would keep the former for long.
        index = rtnl.add_bridge(switch(segment), mac=_mac(0, segment), up=True).index
        if segment not in behind:
            add_addresses(rtnl, index, [address(family, segment=segment) for family in families])


def route_between(families: Sequence[Family]) -> None:
    """Let the namespace of this thread, which has no links yet, pass packets on."""
    _set({FORWARDING[family]: "1" for family in families} | _ROUTER)


def lead_behind(rtnl: Rtnl, families: Sequence[Family], segment: int) -> None:
    """A route to a segment behind a NAT, by which its router sees what it has to drop; `rtnl` is the lab's."""
    bridge = rtnl.index_of(switch(1))
    assert bridge is not None  # noqa: S101 - make_switches has run
    for family in families:
        there, via = address(family, segment=segment).network, beyond(family, segment).ip
        rtnl.request(route.add_route(there, via=via, index=bridge, protocol=_BY_ADMINISTRATOR))


def plug_in(rtnl: Rtnl, node: Node, *, netns: int) -> None:
    """The node's network namespace is open as `netns`; `rtnl` is the lab's."""
    bridge = rtnl.index_of(switch(node.segment))
    assert bridge is not None  # noqa: S101 - make_switches has run
    end = rtnl.add_veth(port(node.index), peer=UPLINK, peer_mac=mac(node), peer_netns_fd=netns, up=True)
    rtnl.set_link(end.index, master=bridge)


def settle_node(rtnl: Rtnl, node: Node, families: Sequence[Family], segments: Iterable[int]) -> None:
    """Its addresses, and the way to other segments; `rtnl` is the node's."""
    bring_up(rtnl, "lo")
    uplink = bring_up(rtnl, UPLINK)
    add_addresses(rtnl, uplink, [address(family, node.index, node.segment) for family in families])
    for other in set(segments) - {node.segment}:
        for family in families:
            via, there = address(family, segment=node.segment).ip, address(family, segment=other).network
            rtnl.request(route.add_route(there, via=via, index=uplink, protocol=_BY_ADMINISTRATOR))


def introduce(rtnl: Rtnl, node: Node, families: Sequence[Family], nodes: Iterable[Node]) -> None:
    """Tell a node of all others in its segment, if there are many; `rtnl` is the node's.

    The kernel keeps the neighbours of all namespaces in one table, of 1,024 entries by default
    (net.ipv4.neigh.default.gc_thresh3): 40 nodes that know each other fill it, and packets are lost. Permanent entries
    do not count (net/core/neighbour.c, neigh_alloc).
    """
    others = [other for other in nodes if other.segment == node.segment and other.index != node.index]
    if len(others) < _MOST_LEARNED:
        return
    uplink = rtnl.index_of(UPLINK)
    assert uplink is not None  # noqa: S101 - plug_in has made it
    rtnl.batch(
        [
            neigh.add_neighbour(uplink, address_of(other, family), mac(other), protocol=_BY_ADMINISTRATOR)
            for other in others
            for family in families
        ]
    )


def finish_checksums(link: str) -> None:
    """Write checksums before packets leave by a link, as a cable needs it. `OSError`.

    Nothing writes those of a packet between namespaces. A NAT that translates the outer addresses of a VXLAN datagram
    then spoils its outer checksum: it takes it for unfinished (net/netfilter/nf_nat_proto.c;
    Documentation/networking/checksum-offloads.rst, LCO).
    """
    value = array.array("I", (_ETHTOOL_STXCSUM, 0))
    place, _ = value.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP8x", link.encode(), place))


def unplug(rtnl: Rtnl, node: int) -> None:
    """`rtnl` is the lab's."""
    index = rtnl.index_of(port(node))
    if index is not None:
        rtnl.delete_link(index)


def lead_out(rtnl: Rtnl, families: Sequence[Family], uplink: str = UPLINK) -> None:
    """A default route by the lab: packets to Services need one to be sent at all."""
    index = rtnl.index_of(uplink)
    assert index is not None  # noqa: S101 - plug_in has made it
    for family in families:
        everything = ip_network("0.0.0.0/0" if family == 4 else "::/0")
        rtnl.request(route.add_route(everything, via=address(family).ip, index=index, protocol=_BY_ADMINISTRATOR))


def lead_to_services(rtnl: Rtnl, node: Node, families: Sequence[Family], *, wanted: bool) -> None:
    """A route of a node to the addresses of Services, or none.

    The kernel asks for a route before its rules change a packet's destination.
    """
    uplink = rtnl.link(UPLINK)
    assert uplink is not None  # noqa: S101 - plug_in has made it
    for family in families:
        network, via = ip_network(SERVICES[family]), address(family, segment=node.segment).ip
        if wanted:
            rtnl.request(route.add_route(network, via=via, index=uplink.index, protocol=_BY_ADMINISTRATOR))
        else:
            with suppress(NetlinkError):  # it went with the link
                rtnl.request(route.delete_route(network, via=via, index=uplink.index, protocol=_BY_ADMINISTRATOR))


def lead_to(rtnl: Rtnl, subnet: Net, node: Node) -> None:
    """A route of the lab to a node's pods: an API server passes requests on to them."""
    bridge = rtnl.index_of(switch(node.segment))
    assert bridge is not None  # noqa: S101 - make_switches has run
    via = address_of(node, family_of(subnet))
    rtnl.request(route.add_route(subnet, via=via, index=bridge, protocol=_BY_ADMINISTRATOR))


def mac(node: Node) -> Mac:
    """Its IPv4 underlay address behind 02:00, whatever the families."""
    return _mac(node.index, node.segment)


def _mac(index: int, segment: int) -> Mac:
    return Mac(b"\x02\x00" + address(4, index, segment).ip.packed)


def _set(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        refused = sysctl.write(Sysctl(name=name, value=value))
        if refused is not None and refused.errno != errno.ENOENT:  # a kernel without IPv6
            raise Unavailable(Problem("HOST-002", "the router of the lab", refused.message))


def bring_up(rtnl: Rtnl, name: str) -> int:
    link = rtnl.link(name)
    assert link is not None, name  # noqa: S101 - the kernel or plug_in has made it
    rtnl.set_link(link.index, up=True)
    return link.index


def add_addresses(rtnl: Rtnl, index: int, addresses: Iterable[IPv4Interface | IPv6Interface]) -> None:
    for own in addresses:
        rtnl.add_address(index, own.ip, own.network.prefixlen)
