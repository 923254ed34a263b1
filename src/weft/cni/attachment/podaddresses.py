"""Which addresses living pods have, by the kernel: a reservation on disk may be lost, and its pod lives on."""

from weft.cni.host.host import RETIRED
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.net import Ip


def is_nobodys(rtnl: Rtnl, ip: Ip, alive: frozenset[Ip] | None = None) -> bool:
    """True only if it is proved that neither this host nor any of its pods has the address.

    `alive` is what `addresses` returns. Pods are reached directly, over a pair or a bridge whose ports are pairs: they
    lead to namespaces that can be looked into. What lies behind other devices cannot be seen.
    """
    if ip in (addresses(rtnl) if alive is None else alive) or any(own.ip == ip for own in rtnl.addresses()):
        return False
    try:
        way = rtnl.route_to(ip)
    except NetlinkError:
        return True
    if way.via is not None:
        return True
    link = rtnl.link(way.index)
    if link is None:
        return True
    ports = [port for port in rtnl.links() if port.master == link.index] if link.kind == "bridge" else [link]
    return all(port.kind == "veth" and port.peer_netns >= 0 for port in ports)


def addresses(rtnl: Rtnl) -> frozenset[Ip]:
    """Return the addresses in all namespaces that a pair of this one leads to; a dump of each takes 0.1 ms."""
    found: set[Ip] = set()
    links = rtnl.links()
    for netns in {link.peer_netns for link in links if link.kind == "veth" and link.alias != RETIRED}:
        if netns >= 0:
            try:
                found.update(address.ip for address in rtnl.addresses(netns=netns))
            except NetlinkError:  # the namespace has gone meanwhile
                continue
    return frozenset(ip for ip in found if not (ip.is_loopback or ip.is_link_local))
