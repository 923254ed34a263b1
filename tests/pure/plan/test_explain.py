"""Steps as text, and why they are to be done."""

from ipaddress import ip_address, ip_network

import pytest

from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.tunnels.wireguard import WireguardDevice
from weft.model.kernel.links import Link, NodeLink
from weft.model.kernel.objects import Address, Chain, Route, RuleSet, Sysctl
from weft.model.net import Mac
from weft.model.value import Secret, replace
from weft.plan.diff import Delete, Put
from weft.plan.explain import explain, reason, was_and_now

MAC = Mac.parse("0e:42:00:00:00:01")
NET = ip_network("10.5.2.0/24")
LINK = builders.vtep(MAC)


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
        (
            Put(Sysctl(name="net/ipv4/conf/flannel.1/rp_filter", value="2")),
            "peers of a mesh may send by this machine to others",
        ),
        (
            Put(Sysctl(name="net/ipv4/ip_forward", value="1")),
            "pods here, or peers of a mesh, need this machine to forward",
        ),
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


SECRET = WireguardDevice(dev="flannel-wg", private=Secret("one"), port=51820)


@pytest.mark.parametrize(
    "wanted, found, was, now",
    [
        (ROUTE, None, "gone", ""),
        (ROUTE, ELSEWHERE, "via 172.31.0.13", "via 172.31.0.12"),
        (LINK, replace(LINK, mtu=1400, parent_name="eth9"), "mtu 1400", f"mtu {LINK.mtu}"),
        (
            Sysctl(name="net/ipv4/ip_forward", value="1"),
            Sysctl(name="net/ipv4/ip_forward", value="0"),
            "value 0",
            "value 1",
        ),
        (LINK, Link(name=LINK.name, mtu=9), "link flannel.1 of another kind mtu 9", str(LINK)),
        (
            RuleSet(kind="nft", family=4, chains=(Chain(name="a", rules=("x", "y")),)),
            RuleSet(kind="nft", family=4, chains=(Chain(name="a", rules=("x",)),)),
            "ruleset nft IPv4: a (1)",
            "ruleset nft IPv4: a (2)",
        ),
        (SECRET, replace(SECRET, private=Secret("two")), "changed", ""),
    ],
)
def test_what_a_repair_found_and_what_that_is_again(wanted, found, was, now):
    assert was_and_now(wanted, found) == (was, now)
