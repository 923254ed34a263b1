"""The network below the pod network: a bridge in the lab's own namespace, and one link to each node.

The bridge stands for the switch of a data centre. It has an address, where the store listens.
"""

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from typing import Final

from weft.kernel.rtnetlink import neigh
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.spec import SERVICES, Family
from weft.model.net import Mac, Net

SWITCH: Final = "underlay"
UPLINK: Final = "eth0"
_V4: Final = IPv4Interface("172.31.0.1/16")
_V6: Final = IPv6Interface("fd31::1/64")
_MOST_LEARNED: Final = 20  # nodes of a lab that find each other by ARP
_BY_ADMINISTRATOR: Final = 4  # RTPROT_STATIC (linux/rtnetlink.h): not the daemon's own mark
_BEFORE_NODES: Final = 10  # node 1 is 172.31.0.11 and fd31::11: the last digits tell the node


def address(family: Family, index: int = 0) -> IPv4Interface | IPv6Interface:
    """Return the underlay address of node `index`, or with 0 that of the lab itself, where the store listens."""
    base: IPv4Interface | IPv6Interface = _V4 if family == 4 else _V6
    if index == 0:
        return base
    offset = _BEFORE_NODES + index
    number = offset if family == 4 else int(str(offset), 16)
    return type(base)((base.network[number], base.network.prefixlen))


def host(families: Sequence[Family]) -> str:
    """Return the lab's own address as a URL has it."""
    ip = address(families[0]).ip
    return f"[{ip}]" if ip.version == 6 else str(ip)


def port(node: int) -> str:
    """Return the name of the switch's port that node number `node` is plugged into."""
    return f"port{node}"


def make_switch(rtnl: Rtnl, families: Sequence[Family]) -> None:
    """Build the switch in the lab's namespace, of which `rtnl` is a socket."""
    _bring_up(rtnl, "lo")
    index = rtnl.add_bridge(SWITCH, up=True).index
    _address(rtnl, index, families, 0)


def plug_in(rtnl: Rtnl, node: int, *, netns: int) -> None:
    """Join node number `node`, whose network namespace is open as `netns`, to the switch of the lab of `rtnl`."""
    switch = rtnl.link(SWITCH)
    assert switch is not None  # noqa: S101 - make_switch has run
    end = rtnl.add_veth(port(node), peer=UPLINK, peer_mac=mac(node), peer_netns_fd=netns, up=True)
    rtnl.set_link(end.index, master=switch.index)


def settle_node(rtnl: Rtnl, node: int, families: Sequence[Family]) -> None:
    """Give a node, of which `rtnl` is a socket, its addresses."""
    _bring_up(rtnl, "lo")
    _address(rtnl, _bring_up(rtnl, UPLINK), families, node)


def introduce(rtnl: Rtnl, node: int, families: Sequence[Family], *, nodes: int) -> None:
    """Tell a node, of which `rtnl` is a socket, of all others where there are many; `nodes` is how many there are.

    The kernel keeps the neighbours of all namespaces in one table, of 1,024 entries unless it was enlarged
    (net.ipv4.neigh.default.gc_thresh3): 40 nodes that know each other fill it, and packets are lost. Entries that are
    permanent do not count (net/core/neighbour.c, neigh_alloc), so larger labs know their neighbours beforehand.
    """
    if nodes <= _MOST_LEARNED:
        return
    uplink = rtnl.index_of(UPLINK)
    assert uplink is not None  # noqa: S101 - plug_in has made it
    others = [other for other in range(1, nodes + 1) if other != node]
    rtnl.batch(
        [
            neigh.add_neighbour(uplink, address(family, other).ip, mac(other), protocol=_BY_ADMINISTRATOR)
            for other in others
            for family in families
        ]
    )


def unplug(rtnl: Rtnl, node: int) -> None:
    """Take node number `node` off the switch of the lab of `rtnl`: its link is no more."""
    index = rtnl.index_of(port(node))
    if index is not None:
        rtnl.delete_link(index)


def lead_out(rtnl: Rtnl, families: Sequence[Family]) -> None:
    """Give a node, of which `rtnl` is a socket, a default route: addresses of Services need one to be sent at all."""
    uplink = rtnl.link(UPLINK)
    assert uplink is not None  # noqa: S101 - plug_in has made it
    for family in families:
        everything = ip_network("0.0.0.0/0" if family == 4 else "::/0")
        rtnl.add_route(everything, via=address(family).ip, index=uplink.index, protocol=_BY_ADMINISTRATOR)


def lead_to_services(rtnl: Rtnl, families: Sequence[Family], *, wanted: bool) -> None:
    """Give a node, of which `rtnl` is a socket, a route to the addresses of Services, or take it away.

    Nothing has them. But the kernel asks for a route before its rules change a packet's destination.
    """
    uplink = rtnl.link(UPLINK)
    assert uplink is not None  # noqa: S101 - plug_in has made it
    for family in families:
        network, via = ip_network(SERVICES[family]), address(family).ip
        if wanted:
            rtnl.add_route(network, via=via, index=uplink.index, protocol=_BY_ADMINISTRATOR)
        else:
            with suppress(NetlinkError):  # it went with the link
                rtnl.delete_route(network, via=via, index=uplink.index, protocol=_BY_ADMINISTRATOR)


def lead_to(rtnl: Rtnl, subnet: Net, node: int) -> None:
    """Give the lab, of which `rtnl` is a socket, a route to a node's pods: an API server passes requests on to them."""
    switch = rtnl.link(SWITCH)
    assert switch is not None  # noqa: S101 - make_switch has run
    via = address(4 if subnet.version == 4 else 6, node).ip
    rtnl.add_route(subnet, via=via, index=switch.index, protocol=_BY_ADMINISTRATOR)


def mac(node: int) -> Mac:
    """Return the MAC of a node's uplink: its IPv4 underlay address behind 02:00, whatever the families."""
    return Mac(b"\x02\x00" + address(4, node).ip.packed)


def _bring_up(rtnl: Rtnl, name: str) -> int:
    link = rtnl.link(name)
    assert link is not None, name  # noqa: S101 - the kernel or plug_in has made it
    rtnl.set_link(link.index, up=True)
    return link.index


def _address(rtnl: Rtnl, index: int, families: Sequence[Family], node: int) -> None:
    for family in families:
        own = address(family, node)
        rtnl.add_address(index, own.ip, own.network.prefixlen, nodad=True)
