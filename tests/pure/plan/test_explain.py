"""Steps as text: for each kind of object one line, in the words of the tools that would do it."""

from ipaddress import ip_address, ip_network

import pytest

from tests.support import builders
from weft.desired.backends import vxlan
from weft.model.net import Mac
from weft.model.objects import (
    Address,
    Chain,
    FdbEntry,
    Neighbour,
    NodeLink,
    Route,
    RuleSet,
    Sysctl,
    VxlanLink,
)
from weft.plan.diff import Delete, Put
from weft.plan.explain import describe, explain, reason

MAC = Mac.parse("0e:42:00:00:00:01")
NET = ip_network("10.5.2.0/24")
LINK = VxlanLink(
    name="flannel.1",
    vni=1,
    port=8472,
    local=ip_address("172.31.0.11"),
    parent=2,
    parent_name="eth0",
    mac=MAC,
    mtu=1450,
    learning=True,
)


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
    assert describe(thing) == text


ROUTE = Route(dst=NET, via=ip_address("172.31.0.12"), dev="eth0")
ELSEWHERE = Route(dst=NET, via=ip_address("172.31.0.13"), dev="eth0")


@pytest.mark.parametrize(
    "step, present, text",
    [
        (Put(ROUTE), None, "+ route 10.5.2.0/24 via 172.31.0.12 dev eth0"),
        (Put(ROUTE), ROUTE, "+ route 10.5.2.0/24 via 172.31.0.12 dev eth0"),
        (
            Put(ROUTE),
            ELSEWHERE,
            "~ route 10.5.2.0/24 via 172.31.0.12 dev eth0 (now: route 10.5.2.0/24 via 172.31.0.13 dev eth0)",
        ),
        (Delete(ROUTE), ROUTE, "- route 10.5.2.0/24 via 172.31.0.12 dev eth0"),
    ],
)
def test_a_step_says_what_is_there_now(step, present, text):
    assert explain(step, present) == text


LEASE = builders.lease(2, vxlan)
CHAINS = {
    "nat": Chain(name="FLANNEL-POSTRTG", rules=(), table="nat"),
    "filter": Chain(name="FLANNEL-FWD", rules=(), table="filter"),
    "nft": Chain(name="postrtg", rules=(), hook="type nat hook postrouting priority srcnat"),
    "forward": Chain(name="forward", rules=(), hook="type filter hook forward priority 0"),
}
BACKEND = "the configuration's Backend, with our lease and uplink"
ADDRESS = Address(dev="flannel.1", ip=ip_address("10.5.1.0"), prefixlen=32)
RULES = RuleSet(kind="iptables", family=4, chains=(CHAINS["nat"], CHAINS["filter"]))


@pytest.mark.parametrize(
    "step, why",
    [
        (Put(ROUTE), f"lease 10.5.2.0-24 of node {builders.public_v4(2)}"),
        (Put(LINK), BACKEND),
        (Put(ADDRESS), BACKEND),
        (Put(Route(dst=NET, blackhole=True, priority=7)), "--ip-blackhole-route"),
        (Put(RULES), "--ip-masq, --iptables-forward-rules"),
        (Put(RuleSet(kind="nft", family=4, chains=(CHAINS["nft"],))), "--ip-masq"),
        (Put(RuleSet(kind="nft", family=4, chains=(CHAINS["forward"],))), "--iptables-forward-rules"),
        (Put(Sysctl(name="net/ipv4/ip_forward", value="1")), "pods here need this machine to forward"),
        (
            Put(Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value="0")),
            "a VTEP takes no addresses from router advertisements",
        ),
        (Put(NodeLink(name="cni0")), "pods here hang on it"),
        (Delete(ROUTE), "no lease that is served asks for it"),
        (
            Delete(Route(dst=ip_network("10.5.3.0/24"), dev="eth0")),
            f"lease 10.5.3.0-24 of node {builders.public_v4(3)} is ignored",
        ),
        (Delete(LINK), "the configuration's Backend and our lease do not ask for it"),
        (Delete(Sysctl(name="net/ipv4/ip_forward", value="1")), "no setting asks for it"),
        (Delete(RULES), "none of --ip-masq, --iptables-forward-rules and EnableNFTables asks for it"),
    ],
)
def test_a_step_says_why(step, why):
    assert reason(step, served={ROUTE.key: LEASE}, refused=[builders.lease(3, vxlan)]) == why
