"""What each kind of object says of itself: in one line, with a code, and of the link it sits on."""

from ipaddress import ip_address, ip_network

import pytest

from tests.support import builders
from weft.model.kernel.links import Link, NodeLink
from weft.model.kernel.objects import Address, Chain, FdbEntry, Neighbour, Ownership, Route, RuleSet, Sysctl
from weft.model.net import Mac
from weft.model.value import replace

MAC = Mac.parse("0e:42:00:00:00:01")
NET = ip_network("10.5.2.0/24")
LINK = builders.vtep(MAC)


@pytest.mark.parametrize(
    "thing, text",
    [
        (
            LINK,
            (
                "link flannel.1 vxlan id 1 local 172.31.0.11 dev eth0 dstport 8472"
                " address 0e:42:00:00:00:01 mtu 1450 learning"
            ),
        ),
        (
            Address(dev="flannel.1", ip=ip_address("10.5.1.0"), prefixlen=32),
            "address 10.5.1.0/32 dev flannel.1",
        ),
        (
            Route(dst=NET, via=ip_address("10.5.2.0"), dev="flannel.1", onlink=True),
            "route 10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink",
        ),
        (Route(dst=NET, dev="eth0", table=100), "route 10.5.2.0/24 dev eth0 table 100"),
        (
            Route(dst=NET, dev="eth0", source=ip_address("10.5.1.0"), mtu=1400),
            "route 10.5.2.0/24 dev eth0 src 10.5.1.0 mtu 1400",
        ),
        (Route(dst=NET), "route 10.5.2.0/24 without a way out"),
        (Route(dst=NET, blackhole=True, priority=7), "route blackhole 10.5.2.0/24 metric 7"),
        (
            Neighbour(dev="flannel.1", ip=ip_address("10.5.2.0"), mac=MAC),
            "neighbour 10.5.2.0 lladdr 0e:42:00:00:00:01 dev flannel.1",
        ),
        (
            FdbEntry(dev="flannel.1", mac=MAC, remote=ip_address("172.31.0.12")),
            "fdb 0e:42:00:00:00:01 dev flannel.1 dst 172.31.0.12",
        ),
        (
            Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value="0"),
            "sysctl net/ipv6/conf/flannel.1/accept_ra=0",
        ),
        (
            RuleSet(kind="nft", family=4, chains=(Chain(name="postrtg", rules=("a", "b")),)),
            "ruleset nft IPv4: postrtg (2)",
        ),
        (RuleSet(kind="iptables", family=6), "ruleset iptables IPv6: none"),
        (NodeLink(name="cni0"), "link cni0 up"),
        (NodeLink(name="cni0", up=False), "link cni0 down"),
    ],
)
def test_an_object_in_one_line(thing, text):
    assert str(thing) == text


@pytest.mark.parametrize(
    "thing, code, code_if_gone, link",
    [
        (LINK, "VTEP-003", "VTEP-004", None),
        (Address(dev="flannel.1", ip=ip_address("10.5.1.0"), prefixlen=32), "VTEP-001", "VTEP-001", "flannel.1"),
        (Neighbour(dev="flannel.1", ip=ip_address("10.5.2.0"), mac=MAC), "FDB-001", "FDB-001", "flannel.1"),
        (FdbEntry(dev="flannel.1", mac=MAC, remote=ip_address("1.2.3.4")), "FDB-001", "FDB-001", "flannel.1"),
        (Route(dst=NET, dev="eth0"), "ROUTE-001", "ROUTE-001", "eth0"),
        (Route(dst=NET, blackhole=True), "ROUTE-001", "ROUTE-001", None),
        (Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value="0"), "VTEP-003", "VTEP-003", "flannel.1"),
        (Sysctl(name="net/ipv4/ip_forward", value="1"), "KERN-002", "KERN-002", None),
        (Sysctl(name="net/bridge/bridge-nf-call-iptables", value="1"), "POL-002", "POL-002", None),
        (Sysctl(name="net/ipv6/conf/all/forwarding", value="1"), "KERN-002", "KERN-002", None),
        (NodeLink(name="cni0"), "BRIDGE-006", "BRIDGE-006", None),
        (RuleSet(kind="nft", family=4), "NFT-002", "NFT-002", None),
    ],
    ids=str,
)
def test_the_codes_of_repairs_and_the_link_that_takes_it_along(thing, code, code_if_gone, link):
    codes = thing.code_of_repair(gone=False), thing.code_of_repair(gone=True)
    assert (*codes, thing.link) == (code, code_if_gone, link)


def test_the_kernel_changes_some_of_a_vteps_settings_in_place():
    for changes in ({"mtu": 1400}, {"mac": Mac(bytes(6))}, {"learning": False}, {"parent_name": "eth1"}):
        assert LINK.changes_in_place(replace(LINK, **changes))
    for changes in ({"vni": 2}, {"port": 1}, {"gbp": True}, {"local": ip_address("1.2.3.4")}, {"parent": 3}):
        assert not LINK.changes_in_place(replace(LINK, **changes))


def test_a_link_of_one_kind_becomes_none_of_another_in_place():
    other = Link(name=LINK.name, mtu=1450)
    assert not LINK.changes_in_place(other)
    assert not other.changes_in_place(LINK)
    assert other.changes_in_place(Link(name=LINK.name, mtu=1400))


@pytest.mark.parametrize("mtu, gone", [(0, False), (1, True), (1279, True), (1280, False)])
def test_a_link_that_is_too_small_for_ipv6_has_lost_its_settings(mtu, gone):
    assert replace(LINK, mtu=mtu).took_others_along() is gone
    assert not NodeLink(name="cni0").took_others_along()


def test_a_setting_of_another_link_is_another_daemons():
    ownership = Ownership(devices=frozenset({"flannel.1"}), networks=())
    assert Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value="0").is_within(ownership)
    assert Sysctl(name="net/ipv4/ip_forward", value="1").is_within(ownership)
    assert not Sysctl(name="net/ipv6/conf/eth0/accept_ra", value="0").is_within(ownership)
    assert RuleSet(kind="nft", family=4).is_within(ownership)
