"""Which rule sets under our names nf_tables holds, as the kernel says.

This proves that nothing is left where `nft` and `iptables` are not installed. The rules themselves are not read.
"""

from contextlib import closing
from typing import Final

from weft.desired.firewall import FWD, POSTRTG
from weft.kernel.netfilter import iptables, nft
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.kernel.nftset import Table
from weft.model.kernel.objects import Key

IPTABLES_NFT: Final = f"{iptables.KIND}-nft"

_CHAINS: Final = {"nat": POSTRTG, "filter": FWD}


def traces() -> frozenset[Key]:
    """Keys of the kinds `nft` and `iptables-nft`, in the calling thread's namespace."""
    try:
        nf = NfSocket.open()
    except OSError:
        return frozenset()  # a kernel without nfnetlink has no nf_tables
    found: set[Key] = set()
    with closing(nf):
        for family, ours in nft.TABLES.items():
            if nf.has_table(ours):
                found.add(("ruleset", nft.KIND, family))
            if any(nf.has_chain(Table(ours.family, name), chain) for name, chain in _CHAINS.items()):
                found.add(("ruleset", IPTABLES_NFT, family))
    return frozenset(found)
