"""Which table an address gets, and which routes."""

from ipaddress import ip_address, ip_interface, ip_network

from weft.cni.plugins.sbr import conf as sbr
from weft.cni.plugins.sbr.conf import SbrConf, Source
from weft.model.attachment import Interface, IpConfig, Result
from weft.model.kernel.reported import NextHop, RouteInfo, RuleInfo

V4 = IpConfig(address=ip_interface("10.0.0.2/24"), gateway=ip_address("10.0.0.1"))
V6 = IpConfig(address=ip_interface("fd00::2/64"))
MAIN = RuleInfo(family=4, priority=32766, table=254)


def route(dst, **more):
    hops = tuple(NextHop(index=2, via=ip_address(via)) for via in more.pop("hops", ()))
    return RouteInfo(dst=ip_network(dst), hops=hops, **{key: ip_address(value) for key, value in more.items()})


def test_whose_addresses():
    def ip(interface):
        return IpConfig(address=ip_interface("10.0.0.2/24"), interface=interface)

    result = Result(
        interfaces=(Interface(name="veth0"), Interface(name="net1")), ips=tuple(map(ip, (0, 1, 2, -1, None)))
    )
    assert [one.interface for one in sbr.addresses_of(result, "net1")] == [1, 2, -1, None]


def test_each_address_has_a_table_that_nobody_uses():
    rules = [RuleInfo(family=4, priority=0, table=255), MAIN, RuleInfo(family=4, priority=32765, table=100)]
    found = sbr.plan([V4, V6, V4], SbrConf(), routes=(), rules=rules, used={102, 254})
    assert found == (
        Source(address=V4.address, table=101, priority=32764, gateway=V4.gateway),
        Source(address=V6.address, table=103, priority=32765),
        Source(address=V4.address, table=104, priority=32763, gateway=V4.gateway),
    )


def test_a_table_of_the_operators_gets_no_routes():
    [source] = sbr.plan([V4], SbrConf(table=7), routes=[route("1.2.3.0/24")], rules=[MAIN], used=set())
    assert source == Source(address=V4.address, table=7, priority=32765)


def test_gateways_of_the_operators_count_more():
    conf = SbrConf(gateways=(ip_address("10.0.0.9"), ip_address("fd00::9")))
    found = sbr.plan([V4, V6], conf, routes=(), rules=(), used=set())
    assert [source.gateway for source in found] == [ip_address("10.0.0.9"), ip_address("fd00::9")]


def test_which_routes_an_address_may_take():
    routes = [
        route("1.0.0.0/8"),
        route("2.0.0.0/8", via="10.0.0.9"),
        route("3.0.0.0/8", via="10.9.0.9"),
        route("10.0.0.0/24", src="10.0.0.2"),
        route("10.9.0.0/24", src="10.9.0.2"),
        route("fd00::/64"),
        route("4.0.0.0/8", hops=("10.9.0.9", "10.0.0.9")),
        route("5.0.0.0/8", hops=("10.9.0.9",)),
    ]
    found = sbr.plan([V4, V6], SbrConf(), routes=routes, rules=[MAIN], used=set())
    assert [source.routes for source in found] == [(0, 1, 3, 6), (5,)]
    assert [sbr.is_subnet(one, V4.address) for one in routes[2:5]] == [False, True, False]
    assert not sbr.is_subnet(route("10.0.0.0/24", via="10.0.0.1"), V4.address)
    assert not sbr.is_subnet(route("10.0.0.0/24", hops=("10.0.0.1",)), V4.address)


def test_rules_by_source():
    def rule(src):
        return RuleInfo(family=4, priority=9, src=ip_network(src) if src else None)

    rules = [rule(src) for src in (None, "10.0.0.2/32", "10.0.0.2/31", "10.0.0.3/32", "fd00::2/128")]
    found = sbr.rules_of(rules, [ip_address("10.0.0.2"), ip_address("fd00::2")])
    assert found == [rules[1], rules[4]]
