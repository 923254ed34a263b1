"""What can this kernel do? Asked of the kernel itself, without leaving anything behind."""

import errno
from collections.abc import Iterable

from weft.kernel.rtnetlink import link
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl


def link_kinds(rtnl: Rtnl, kinds: Iterable[str]) -> frozenset[str]:
    """Those of `kinds` (`vxlan`, `wireguard`, `ipip`) that this kernel can make, after loading its modules.

    Asks for a link with an impossible name and MAC: an unknown kind is refused as such, any other for what is wrong
    with it. A tun device is not made through rtnetlink and counts as unknown. Needs CAP_NET_ADMIN.
    """
    return frozenset(kind for kind in kinds if _knows(rtnl, kind))


def _knows(rtnl: Rtnl, kind: str) -> bool:
    refused = rtnl.batch([link.impossible(kind)])
    if not refused:
        raise NetlinkError(errno.EEXIST, f"the kernel made a link of kind {kind} that cannot be")
    return refused[0].errno != errno.EOPNOTSUPP
