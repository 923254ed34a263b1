"""Which rule sets under our names nf_tables holds, by the kernel's own word (linux/netfilter/nf_tables.h).

For proof: what `nft` and `iptables` show cannot be seen where they are not installed. What is in the rule sets is
not looked at.
"""

import errno
from collections.abc import Iterator
from struct import Struct
from typing import Final

from weft.desired.firewall import FWD, POSTRTG
from weft.kernel.netfilter import iptables, nft
from weft.kernel.netfilter.monitor import NETLINK_NETFILTER
from weft.kernel.rtnetlink.attributes import parse
from weft.kernel.rtnetlink.netlink import NetlinkError, NetlinkSocket
from weft.model.objects import Key

IPTABLES_NFT: Final = f"{iptables.KIND}-nft"

_NFT_MSG_GETTABLE: Final = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES
_NFT_MSG_GETCHAIN: Final = 10 << 8 | 4
_NFTA_TABLE_NAME: Final = 1
_NFTA_CHAIN_TABLE: Final = 1
_NFTA_CHAIN_NAME: Final = 3
_HEAD: Final = Struct("=BBH")  # struct nfgenmsg: family, version, resource
_FAMILIES: Final = {2: 4, 10: 6}  # NFPROTO_IPV4, NFPROTO_IPV6

_TABLES: Final = {(family, name.split()[1]) for family, name in nft.TABLES.items()}
_CHAINS: Final = {("nat", POSTRTG), ("filter", FWD)}


def traces() -> frozenset[Key]:
    """The keys of rule sets of the kinds `nft` and `iptables-nft`, in the calling thread's namespace."""
    try:
        sock = NetlinkSocket.open(NETLINK_NETFILTER)
    except OSError:
        return frozenset()  # a kernel without nfnetlink has no nf_tables
    try:
        return frozenset(_traces(sock))
    except NetlinkError as error:
        if error.errno != errno.EINVAL:  # nfnetlink's answer for a subsystem that is not there
            raise
        return frozenset()
    finally:
        sock.close()


def _traces(sock: NetlinkSocket) -> Iterator[Key]:
    for body in sock.dump(_NFT_MSG_GETTABLE, _HEAD.pack(0, 0, 0)):
        family = _FAMILIES.get(body[0], 0)
        if (family, parse(body, _HEAD.size).text(_NFTA_TABLE_NAME)) in _TABLES:
            yield "ruleset", nft.KIND, family
    for body in sock.dump(_NFT_MSG_GETCHAIN, _HEAD.pack(0, 0, 0)):
        attributes = parse(body, _HEAD.size)
        family = _FAMILIES.get(body[0], 0)
        if family and (attributes.text(_NFTA_CHAIN_TABLE), attributes.text(_NFTA_CHAIN_NAME)) in _CHAINS:
            yield "ruleset", IPTABLES_NFT, family
