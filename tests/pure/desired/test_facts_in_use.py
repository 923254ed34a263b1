"""An uplink that is in use, and what it reaches without a gateway."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.desired.machines import NODE, address, chosen, gateway, link, route
from tests.support.builders import netconf
from weft.config.flags import parse_flags
from weft.desired.facts import ailing, onlink_prefixes, overlaps, select
from weft.desired.inputs import Facts, Uplink
from weft.model.errors import ConfigError
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import NextHop, RouteInfo
from weft.model.value import replace


@pytest.mark.spec("flannel.md §6.2/DirectRouting")
def test_what_the_uplink_reaches_without_a_gateway():
    assert chosen("--iface=eth1", v6=True).onlink == (ip_network("192.168.56.0/24"), ip_network("fd00:3::/64"))
    assert chosen().onlink == (ip_network("10.0.2.0/24"),)


@pytest.mark.parametrize(
    "routes, onlink",
    [
        ([route("10.0.0.0/24", index=2, **gateway("10.0.9.1"))], []),
        ([route("10.0.0.0/24", hops=(NextHop(index=2), NextHop(index=2)))], []),
        ([route("10.0.0.0/24", kind=6)], []),
        ([route("10.0.0.0/24", index=2, table=7)], []),
        ([route("10.0.0.0/24", index=2, priority=9), route("10.0.0.0/24", index=3, priority=1)], []),
        ([route("10.0.0.0/24", index=2, priority=1), route("10.0.0.0/24", index=3, priority=9)], ["10.0.0.0/24"]),
        ([route("10.0.0.0/24", index=2), route("10.0.0.128/25", index=3)], ["10.0.0.0/25"]),
        (
            [route("10.0.0.0/24", index=2), route("10.0.0.128/25", index=3), route("10.0.0.192/26", index=2)],
            ["10.0.0.0/25", "10.0.0.192/26"],
        ),
        ([route("10.0.0.0/24", index=2), route("10.0.0.0/25", index=2)], ["10.0.0.0/24", "10.0.0.0/25"]),
        ([route("10.0.0.0/24", index=2), route("default", index=2, **gateway("10.0.0.1"))], ["10.0.0.0/24"]),
    ],
)
def test_on_link_prefixes(routes, onlink):
    found = onlink_prefixes(Snapshot(routes=tuple(routes)), 2)
    assert found == tuple(IPv4Network(text) for text in onlink)


SMALL_NETS = st.builds(
    lambda number, size: IPv4Network((number << 24, size), strict=False), st.integers(0, 255), st.integers(0, 8)
)


ROUTES = st.lists(
    st.builds(
        lambda dst, index, via, priority: RouteInfo(
            dst=dst, index=index, via=IPv4Address(1) if via else None, priority=priority
        ),
        SMALL_NETS,
        st.integers(1, 2),
        st.booleans(),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(ROUTES)
def test_membership_is_what_the_kernel_would_look_up(routes):
    prefixes = onlink_prefixes(Snapshot(routes=tuple(routes)), 2)
    for number in range(256):
        target = IPv4Address(number << 24)
        fitting = [each for each in routes if target in each.dst]
        best = min(fitting, key=lambda each: (-each.dst.prefixlen, each.priority), default=None)
        assert any(target in net for net in prefixes) == (best is not None and best.index == 2 and best.via is None)


def test_pod_subnets_on_the_nodes_own_network_are_a_problem():
    node = Snapshot(
        links=(link(2, "a"),),
        addresses=(address(2, "10.5.9.1/24"),),
        routes=(route("10.5.9.0/24", index=2), route("default", index=2)),
    )
    facts = chosen("--iface=a", snapshot=node)
    [problem] = overlaps(netconf(), facts)
    assert (problem.code, problem.where) == ("ADDR-001", "net-conf: Network")
    assert "10.5.9.0/24" in problem.seen


@pytest.mark.parametrize("onlink", ["10.5.0.0/24", "10.6.0.0/16", "0.0.0.0/0"])
def test_nodes_beside_the_subnets_or_in_the_one_that_is_skipped_are_none(onlink):
    node = Snapshot(links=(link(2, "a"),), addresses=(address(2, "10.5.0.1/24"),), routes=(route(onlink, index=2),))
    assert overlaps(netconf(family="46"), chosen("--iface=a", snapshot=node)) == ()


IN_USE = Uplink(name="eth1", index=3, mtu=9000, v4=IPv4Address("192.168.56.11"), v6=IPv6Address("fd00:3::11"))


def kept(*flags: str, snapshot: Snapshot) -> tuple[Facts, str]:
    return select(parse_flags(flags, {}), snapshot, v4=True, v6=False, in_use=replace(IN_USE, v6=None))


def with_eth1(**changes) -> Snapshot:
    return replace(NODE, links=tuple(replace(info, **changes) if info.index == 3 else info for info in NODE.links))


def without_address(text: str) -> Snapshot:
    return replace(NODE, addresses=tuple(info for info in NODE.addresses if info.ip != ip_address(text)))


def test_an_uplink_that_was_renamed_stays_and_the_log_says_what_was_asked_for():
    facts, why = kept("--iface=eth1", snapshot=with_eth1(name="wan1"))
    assert (facts.uplink.name, facts.uplink.index, facts.uplink.v4) == ("wan1", 3, IN_USE.v4)
    assert "by the uplink in use; not: --iface=eth1: no interface has this name" in why


def test_what_was_asked_for_comes_before_the_uplink_in_use():
    assert kept("--iface=eth0", snapshot=NODE)[0].uplink.name == "eth0"
    assert kept(snapshot=NODE)[0].uplink.name == "eth0", "where the default route leads"


def test_an_uplink_stays_when_the_default_route_goes():
    assert kept(snapshot=replace(NODE, routes=()))[0].uplink.name == "eth1"


@pytest.mark.parametrize(
    "snapshot, seen",
    [
        (without_address("192.168.56.11"), "eth1 has lost 192.168.56.11"),
        (replace(NODE, links=NODE.links[:2]), "eth1 is gone"),
    ],
)
def test_an_uplink_in_use_that_is_of_no_use_is_refused(snapshot, seen):
    with pytest.raises(ConfigError) as caught:
        kept("--iface=nope", snapshot=snapshot)
    assert [problem.where for problem in caught.value.problems] == ["--iface=nope", "the uplink in use"]
    assert caught.value.problems[-1].seen == seen


@pytest.mark.parametrize(
    "snapshot, seen",
    [
        (replace(NODE, links=NODE.links[:2]), "it is gone"),
        (with_eth1(up=False), "it is down"),
        (with_eth1(operstate=2), "it has no carrier"),
        (with_eth1(operstate=3), "it has no carrier"),
        (without_address("192.168.56.11"), "it has lost 192.168.56.11"),
        (without_address("fd00:3::11"), "it has lost fd00:3::11"),
    ],
)
def test_what_ails_an_uplink_is_named(snapshot, seen):
    problem = ailing(IN_USE, snapshot)
    assert problem is not None
    assert (problem.code, problem.where, problem.seen) == ("IFACE-002", "uplink eth1", seen)


@pytest.mark.parametrize("operstate", [0, 5, 6])
def test_an_uplink_that_carries_packets_is_well(operstate):
    assert ailing(IN_USE, with_eth1(operstate=operstate)) is None
    assert ailing(IN_USE, with_eth1(name="wan1")) is None
