"""Which addresses living pods have, by the kernel: reservations on disk may be lost, and a pod lives on without."""

from weft.cni.sdk.host import RETIRED
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.net import Ip


def is_nobodys(rtnl: Rtnl, ip: Ip, alive: frozenset[Ip] | None = None) -> bool:
    """Tell whether it is proved that no pod of this host has an address, and that it is none of the host's own.

    `alive` is what `addresses` returns, where many are asked for.

    A pod is reached directly. Without a direct way there is none; a way over a bridge whose ports are pairs, or over a
    pair, leads to namespaces that can be looked into. What lies behind other devices cannot be seen.
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
    """Return the addresses in all namespaces that a pair of this one leads to.

    It takes a dump for each, 0.1 ms. A pair that is about to be deleted leads nowhere any more.
    """
    found: set[Ip] = set()
    links = rtnl.links()
    for netns in {link.peer_netns for link in links if link.kind == "veth" and link.alias != RETIRED}:
        if netns >= 0:
            try:
                found.update(address.ip for address in rtnl.addresses(netns=netns))
            except NetlinkError:  # the namespace has gone meanwhile
                continue
    return frozenset(ip for ip in found if not (ip.is_loopback or ip.is_link_local))
