"""A table of nft as text and back. That nft takes and prints it so, the tests of what is built on it show."""

import pytest

from weft.model.kernel.nftset import Table
from weft.wire import nft
from weft.wire.nft import ListedChain

MINE = Table("inet", "mine")
LISTED = """table inet mine { # handle 1
	comment "of somebody"
	set pods { # handle 9
		type ipv4_addr
		elements = { 10.0.0.1,
				10.0.0.2 }
	}

	chain empty { # handle 2
	}

	chain forward { # handle 3
		comment "what is forwarded"
		type filter hook forward priority 0; policy accept;
		ip saddr @pods accept comment "# handle 7" # handle 11
		type ipv4_addr # handle 12
	}
}
"""


def test_each_chain_has_its_hook_its_comment_and_its_rules_in_order():
    assert nft.parse(LISTED) == {
        "set pods": ListedChain(hook="type ipv4_addr", rules=(("elements = { 10.0.0.1,", ""), ("10.0.0.2 }", ""))),
        "empty": ListedChain(),
        "forward": ListedChain(
            hook="type filter hook forward priority 0; policy accept;",
            comment="what is forwarded",
            rules=(('ip saddr @pods accept comment "# handle 7"', "11"), ("type ipv4_addr", "12")),
        ),
    }
    assert nft.parse("") == {}


@pytest.mark.parametrize("chain, rules", [("forward", 2), ("empty", 0), ("none", 0)])
def test_the_rules_of_a_chain(chain, rules):
    assert len(nft.rules_of(nft.parse(LISTED), chain)) == rules


def test_lines_of_a_change():
    have = nft.parse(LISTED)
    assert nft.deletions(have, MINE, "forward", lambda rule: "@pods" in rule) == [
        "delete rule inet mine forward handle 11"
    ]
    assert nft.deletions(have, MINE, "none", lambda _: True) == []
    assert nft.payload(nft.refill(MINE, "forward", ["accept"])) == (
        "flush chain inet mine forward\nadd rule inet mine forward accept\n"
    )
