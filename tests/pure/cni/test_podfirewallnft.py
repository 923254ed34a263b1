"""firewall's own table: frame and elements. That nft takes them, tests/kernel/test_cni_firewall.py shows."""

from ipaddress import ip_address

from weft.cni.plugins.firewall import nft
from weft.model.kernel.nftset import Element


def test_each_address_is_an_element_once():
    four, six = ip_address("10.0.0.2"), ip_address("fd00::2")
    assert nft.elements([four, six, four], "owner") == (
        Element(set="pods4", key=four.packed, comment="owner"),
        Element(set="pods6", key=six.packed, comment="owner"),
    )


def test_bridges():
    guard, within = nft.guard_element("cni0"), nft.within_element("cni0")
    assert (guard.set, len(guard.key)) == ("bridges", 16)
    assert (within.set, len(within.key)) == ("within", 32)
    assert nft.bridge_of(guard) == nft.bridge_of(within) == "cni0"


def test_the_frame_has_every_rule_that_is_looked_for():
    assert nft.frame({"pods4"}) == []
    lines = nft.frame(())
    assert lines[0].startswith("create table inet weft-firewall ")
    for rule in nft.RULES:
        assert f'add rule inet weft-firewall {rule.chain} {rule.text} comment "{rule.comment}"' in lines
