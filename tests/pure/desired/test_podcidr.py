"""Which of a node's podCIDRs serve, and why there is none."""

from ipaddress import IPv4Network, IPv6Network

import pytest

from tests.support.store import netconf
from weft.desired.podcidr import Census, usable
from weft.model.errors import Unavailable

V4, V6 = IPv4Network("10.3.1.0/24"), IPv6Network("fc00:0:0:1::/64")


def why(v4=None, v6=None, *, census=None, dual=False):
    """The problems of a node of the network 10.3.0.0/16, and fc00::/48 with it where it is dual."""
    with pytest.raises(Unavailable) as raised:
        usable("n1", (v4, v6), netconf(v6=dual), census)
    assert {problem.code for problem in raised.value.problems} == {"LEASE-002"}
    return raised.value.problems


def test_the_families_that_are_on_are_taken():
    assert usable("n1", (V4, V6), netconf(), None) == (V4, None)
    assert usable("n1", (V4, V6), netconf(v6=True), None) == (V4, V6)
    assert usable("n1", (V4, V6), netconf(network=None, v6=True), None) == (None, V6)


@pytest.mark.spec("flannel.md 11.6/containment")
@pytest.mark.parametrize(
    "outer, inner, contained",
    [
        ("10.244.0.0/16", "10.244.0.0/16", True),
        ("10.244.0.0/16", "10.244.0.0/24", True),
        ("10.244.0.0/16", "10.244.255.0/24", True),
        ("10.244.0.0/16", "10.244.0.0/15", False),
        ("10.244.0.0/16", "192.168.0.0/24", False),
    ],
)
def test_a_podcidr_must_lie_in_the_network(outer, inner, contained):
    network = netconf(network=outer, first="10.244.1.0", last="10.244.2.0")
    subnets = IPv4Network(inner), None
    if contained:
        assert usable("n1", subnets, network, None) == subnets
    else:
        with pytest.raises(Unavailable, match=f"node n1: podCIDR {inner}, which lies outside of Network {outer}"):
            usable("n1", subnets, network, None)


@pytest.mark.spec("flannel.md 11.6/containment")
@pytest.mark.parametrize(
    "inner, contained",
    [
        ("fc00::/48", True),
        ("fc00::/64", True),
        ("fc00:0:0:ffff::/64", True),
        ("fc00::/47", False),
        ("fe02::/32", False),
    ],
)
def test_likewise_for_ipv6(inner, contained):
    network = netconf(network=None, v6=True)
    subnets = None, IPv6Network(inner)
    if contained:
        assert usable("n1", subnets, network, None) == subnets
    else:
        with pytest.raises(Unavailable, match="outside of IPv6Network fc00::/48"):
            usable("n1", subnets, network, None)


def test_both_families_problems_are_said_together():
    first, second = why(IPv4Network("10.4.1.0/24"), None, dual=True)
    assert "outside of Network" in first.seen
    assert second.seen == "no IPv6 podCIDR"


def test_no_node_has_a_podcidr_so_the_controller_manager_gives_none():
    [problem] = why(census=Census(nodes=3, given=0))
    assert problem.seen == "no IPv4 podCIDR, and neither has any other of 3 nodes"
    assert "--allocate-node-cidrs=true --cluster-cidr=10.3.0.0/16" in problem.hint


def test_all_subnets_of_the_network_are_other_nodes():
    [problem] = why(census=Census(nodes=300, given=256, length=24))
    assert problem.seen == "no IPv4 podCIDR, and 256 nodes have all of 10.3.0.0/16"
    assert "larger --cluster-cidr" in problem.hint
    [problem] = why(census=Census(nodes=300, given=255, length=24))
    assert "have all" not in problem.seen


@pytest.mark.parametrize("length", [24, None])
def test_this_node_alone_has_none_so_it_is_new(length):
    [problem] = why(census=Census(nodes=3, given=2, length=length))
    assert problem.seen == "no IPv4 podCIDR, while 2 of 3 nodes have one"
    assert "CIDRNotAvailable" in problem.hint


@pytest.mark.parametrize("census", [None, Census(nodes=0, given=0)])
def test_nothing_is_known_of_other_nodes(census):
    [problem] = why(census=census)
    assert problem.seen == "no IPv4 podCIDR"
    assert "--allocate-node-cidrs=true" in problem.hint
