"""What `nft -n list table` prints becomes a rule set, and a rule set becomes one transaction."""

import pytest

from tests.support.firewall import wanted
from weft.kernel.netfilter.nft import make, parse, refill, remove

LISTED = """\
table ip flannel-ipv4 {
	comment "weft: rules for flannel-ipv4"
	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority 0; policy accept;
		ip saddr 10.42.0.0/16 accept
		ip daddr 10.42.0.0/16 accept
	}

	chain postrtg {
		comment "chain to manage traffic masquerading by flannel"
		type nat hook postrouting priority 100; policy accept;
		meta mark & 0x00004000 == 0x00004000 return
		ip saddr 10.42.1.0/24 ip daddr 10.42.0.0/16 return
		ip saddr 10.42.0.0/16 ip daddr 10.42.1.0/24 return
		ip saddr != 10.42.0.0/16 ip daddr 10.42.1.0/24 return
		ip saddr 10.42.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
		ip saddr != 10.42.0.0/16 ip daddr 10.42.0.0/16 masquerade fully-random
	}
}
"""


def test_a_listing_is_read_as_what_was_wanted_in_whatever_order_the_chains_come():
    assert parse(LISTED, 4) == wanted("nft", 4)


@pytest.mark.parametrize(
    "old, new",
    [
        ("priority 100", "priority 101"),
        ("policy accept", "policy drop"),
        ("\t\tip daddr 10.42.0.0/16 accept\n", ""),
        ("ip daddr 10.42.0.0/16 accept", "ip daddr 10.42.0.0/16 counter packets 0 bytes 0 accept"),
        (
            "\n\tchain postrtg",
            "\n\tset mine {\n\t\ttype ipv4_addr\n\t\telements = { 1.2.3.4,\n\t\t1.2.3.5 }\n\t}\n\n\tchain postrtg",
        ),
        ("\n\tchain postrtg", "\n\tchain mine {\n\t}\n\n\tchain postrtg"),
    ],
    ids=["priority", "policy", "rule gone", "rule changed", "set of someone's", "chain of someone's"],
)
def test_every_difference_shows(old, new):
    assert old in LISTED
    assert parse(LISTED.replace(old, new), 4) != wanted("nft", 4)


def test_an_empty_table_is_an_empty_rule_set():
    """Upstream makes one for a family that is off; it is found, and goes."""
    assert parse('table ip6 flannel-ipv6 {\n\tcomment "rules for flannel-ipv6"\n}\n', 6).chains == ()


FORWARD_ALONE = """\
add table ip6 flannel-ipv6 { comment "weft: rules for flannel-ipv6"; }
add chain ip6 flannel-ipv6 forward { type filter hook forward priority 0; policy accept; \
comment "chain to accept flannel traffic"; }
add rule ip6 flannel-ipv6 forward ip6 saddr fd00:10:244::/56 accept
add rule ip6 flannel-ipv6 forward ip6 daddr fd00:10:244::/56 accept
"""


@pytest.mark.spec("flannel.md §8.5/one-transaction", "flannel.md §8.5/tables")
def test_a_transaction_makes_the_table_with_its_chains_and_rules():
    assert make(wanted("nft", 6, ip_masq=False), replace=False) == FORWARD_ALONE


def test_what_cannot_change_in_place_is_made_anew_in_the_same_transaction():
    removal = "add table ip6 flannel-ipv6\ndelete table ip6 flannel-ipv6\n"
    assert make(wanted("nft", 6, ip_masq=False), replace=True) == removal + FORWARD_ALONE


@pytest.mark.spec("flannel.md §8.5/one-transaction", "flannel.md §8.3/1-recycle")
def test_only_chains_that_differ_are_emptied_and_filled():
    have, want = wanted("nft", 4), wanted("nft", 4, random_fully=False)
    lines = refill(want, have).splitlines()
    assert lines[0] == "flush chain ip flannel-ipv4 postrtg"
    assert lines[1:] == [f"add rule ip flannel-ipv4 postrtg {rule}" for rule in want.chains[0].rules]
    assert refill(want, want) == ""


@pytest.mark.spec("flannel.md §8.5/clean-up")
def test_removal_succeeds_on_anything():
    assert remove(4) == "add table ip flannel-ipv4\ndelete table ip flannel-ipv4\n"
