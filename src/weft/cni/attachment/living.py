"""Which addresses living pods have, by the kernel: reservations on disk may be lost, and a pod lives on without."""

from weft.cni.sdk.host import RETIRED
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.net import Ip


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
