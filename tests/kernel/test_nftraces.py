"""Which rule sets under our names the kernel itself tells of: ours alone, whatever else has such a name."""

import pytest

from tests.support.netns import Netns
from weft.kernel.netfilter.firewall import traces

NFT = {4: ("ruleset", "nft", 4), 6: ("ruleset", "nft", 6)}
IPTABLES = {4: ("ruleset", "iptables-nft", 4), 6: ("ruleset", "iptables-nft", 6)}


@pytest.mark.parametrize(
    "command, found",
    [
        ("nft add table ip flannel-ipv4", {NFT[4]}),
        ("nft add table ip6 flannel-ipv6", {NFT[6]}),
        ("iptables-nft -t nat -N FLANNEL-POSTRTG", {IPTABLES[4]}),
        ("iptables-nft -N FLANNEL-FWD", {IPTABLES[4]}),
        ("ip6tables-nft -t nat -N FLANNEL-POSTRTG", {IPTABLES[6]}),
        ("ip6tables-nft -N FLANNEL-FWD", {IPTABLES[6]}),
        ("nft add table ip flannel-ipv4; ip6tables-nft -N FLANNEL-FWD", {NFT[4], IPTABLES[6]}),
        ("nft add table ip6 flannel-ipv4; nft add table ip flannel-ipv6; nft add table inet flannel-ipv4", set()),
        ("iptables-nft -N FLANNEL-POSTRTG; iptables-nft -t nat -N FLANNEL-FWD; iptables-nft -N FLANNEL", set()),
        ("nft add table inet filter; nft add chain inet filter FLANNEL-FWD", set()),
        ("nft add table bridge nat; nft add chain bridge nat FLANNEL-POSTRTG", set()),
    ],
)
def test_only_rule_sets_under_our_names(netns: Netns, command: str, found: set[object]):
    assert netns.call(traces) == frozenset()
    netns.run(command)
    assert netns.call(traces) == found
