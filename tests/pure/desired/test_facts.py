"""Which interface and addresses are chosen, and what is said about it: snapshots go in, no kernel is asked."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import netconf
from weft.config.flags import parse_flags
from weft.daemon import phases
from weft.desired.facts import ailing, overlaps, select
from weft.desired.inputs import Facts, Uplink
from weft.desired.onlink import onlink_prefixes
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import AddressInfo, LinkInfo, NextHop, RouteInfo
from weft.model.net import Addresses
from weft.model.value import replace


def link(index: int, name: str, **more) -> LinkInfo:
    return LinkInfo(**{"index": index, "name": name, "mtu": 1500, "up": True, **more})


def address(index: int, text: str, **more) -> AddressInfo:
    ip, _, length = text.partition("/")
    parsed = ip_address(ip)
    return AddressInfo(index=index, ip=parsed, prefixlen=int(length or parsed.max_prefixlen), **more)


def route(dst: str, **more) -> RouteInfo:
    return RouteInfo(dst=ip_network({"default": "0.0.0.0/0", "default6": "::/0"}.get(dst, dst)), **more)


def gateway(text: str) -> dict:
    return {"via": ip_address(text)}


DUMMY = (
    "1.10.100.1/24",
    "192.168.200.128/24",
    "172.16.30.18/24",
    "172.16.31.200/24",
    "172.16.32.100/24",
    "2001:db8::1/64",
    "fe80::9/64",
)
VECTORS = Snapshot(
    links=(link(1, "lo", loopback=True, mtu=65536), link(2, "dummy0")),
    addresses=(
        address(1, "127.0.0.1/8"),
        address(1, "::1/128"),
        *(address(2, text) for text in DUMMY),
    ),
)
# A node as people have them: a NAT interface with the default route, the one that nodes share, docker's, a VPN.
NODE = Snapshot(
    links=(
        link(1, "lo", loopback=True, mtu=65536),
        link(2, "eth0"),
        link(3, "eth1", mtu=9000),
        link(4, "docker0", kind="bridge"),
        link(5, "flannel.1", kind="vxlan", alias="weft:vtep"),
    ),
    addresses=(
        address(1, "127.0.0.1/8"),
        address(2, "10.0.2.15/24"),
        address(2, "fd00:2::15/64"),
        address(3, "192.168.56.11/24"),
        address(3, "fd00:3::11/64"),
        address(4, "172.17.0.1/16"),
        address(5, "10.244.1.0/32"),
    ),
    routes=(
        route("default", index=2, **gateway("10.0.2.2")),
        route("10.0.2.0/24", index=2, scope=253),
        route("192.168.56.0/24", index=3, scope=253),
        route("172.17.0.0/16", index=4, scope=253),
        route("default6", index=2, priority=1024, **gateway("fe80::1")),
        route("fd00:3::/64", index=3, priority=256),
    ),
)


def chosen(*flags: str, snapshot: Snapshot = NODE, v4=True, v6=False, reach=None) -> Facts:
    return select(parse_flags(flags, {}), snapshot, v4=v4, v6=v6, reach=reach)[0]


def explained(*flags: str, snapshot: Snapshot = NODE, v4=True, v6=False, reach=None) -> str:
    return select(parse_flags(flags, {}), snapshot, v4=v4, v6=v6, reach=reach)[1]


def refused(*flags: str, snapshot: Snapshot = NODE, v4=True, v6=False, reach=None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        select(parse_flags(flags, {}), snapshot, v4=v4, v6=v6, reach=reach)
    assert all(problem.code == "IFACE-001" for problem in caught.value.problems)
    return list(caught.value.problems)


# --- The vectors of 11.9 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags, families, name, v4, v6, public",
    [
        pytest.param(*row[1:], marks=pytest.mark.spec(f"flannel.md 11.9/{row[0]}"))
        for row in [
            ("regex-address", [r"--iface-regex=192\.168\.200\.\d+"], "4", "dummy0", "192.168.200.128", None, None),
            ("regex-name", [r"--iface-regex=dummy\d+"], "4", "dummy0", "1.10.100.1", None, None),
            ("name", ["--iface=dummy0"], "4", "dummy0", "1.10.100.1", None, None),
            ("address", ["--iface=172.16.30.18"], "4", "dummy0", "172.16.30.18", None, None),
            ("address-dual", ["--iface=172.16.30.18"], "46", "dummy0", "172.16.30.18", "2001:db8::1", None),
            (
                "regex-public-ip",
                [r"--iface-regex=172\.16\.30\.\d+", "--public-ip=172.16.31.200"],
                "4",
                "dummy0",
                "172.16.30.18",
                None,
                "172.16.31.200",
            ),
        ]
    ],
)
def test_vectors(flags, families, name, *, v4, v6, public):
    facts = chosen(*flags, snapshot=VECTORS, v4="4" in families, v6="6" in families)
    assert (facts.uplink.name, facts.uplink.v4) == (name, IPv4Address(v4))
    assert facts.uplink.v6 == (IPv6Address(v6) if v6 else None)
    assert facts.public_v4 == IPv4Address(public or v4)
    assert facts.public_v6 == facts.uplink.v6


@pytest.mark.spec("flannel.md 11.9/can-reach", "flannel.md §7.2/can-reach")
def test_can_reach_gives_the_routes_interface_and_source():
    reach = route("172.16.32.254/32", index=2, src=IPv4Address("172.16.32.100"), **gateway("172.16.32.100"))
    facts = chosen("--iface-can-reach=172.16.32.254", snapshot=VECTORS, reach=reach)
    assert (facts.uplink.name, facts.uplink.v4) == ("dummy0", IPv4Address("172.16.32.100"))


# --- Which look-ups ------------------------------------------------------------------------------------------


@pytest.mark.spec("flannel.md §7.1/no-flags", "flannel.md §7.2/empty")
def test_without_flags_the_default_route_decides():
    facts = chosen()
    assert (facts.uplink.name, facts.uplink.index, facts.uplink.mtu) == ("eth0", 2, 1500)
    assert facts.public_v4 == IPv4Address("10.0.2.15")
    assert chosen(v4=False, v6=True).uplink.v6 == IPv6Address("fd00:2::15")
    assert chosen("--iface=").uplink.name == "eth0"


@pytest.mark.spec("flannel.md §7.1/no-flags")
def test_a_public_address_alone_looks_for_the_interface_that_has_it():
    assert chosen("--public-ip=192.168.56.11").uplink.name == "eth1"
    assert chosen("--public-ipv6=fd00:3::11", v4=False, v6=True).uplink.name == "eth1"
    [problem] = refused("--public-ip=203.0.113.7")
    assert (problem.where, problem.seen) == ("--public-ip=203.0.113.7", "no interface has the address 203.0.113.7")


@pytest.mark.spec("flannel.md §7.1/order", "flannel.md §1.5/10-interface")
def test_an_address_that_an_operator_set_in_the_store_is_named_by_its_place_and_not_by_a_flag():
    where = ("annotation p/node-public-ip of node n1", "annotation p/node-public-ipv6 of node n1")
    told = Addresses(IPv4Address("203.0.113.77"), None, where)
    options = phases.with_addresses(parse_flags([], {}), told)
    with pytest.raises(ConfigError) as failure:
        select(options, NODE, v4=True, v6=False)
    [problem] = failure.value.problems
    assert problem.where == "annotation p/node-public-ip of node n1=203.0.113.77"
    assert problem.hint.startswith("Correct the annotation p/node-public-ip of node n1, or name the interface with")
    assert "--public-ip" not in str(problem)


def test_an_empty_pattern_is_the_default_route_as_upstream():
    assert chosen("--iface-regex=") == chosen()


def test_names_come_before_patterns_and_patterns_before_can_reach():
    reach = route("10.0.2.0/24", index=2, src=IPv4Address("10.0.2.15"))
    flags = ["--iface=nope", "--iface-regex=nope", "--iface-can-reach=10.0.2.9"]
    assert chosen(*flags, reach=reach).uplink.name == "eth0"
    assert chosen(*flags, "--iface-regex=docker").uplink.name == "docker0"
    assert chosen(*flags, "--iface-regex=docker", "--iface=eth1").uplink.name == "eth1"
    assert [(problem.where, problem.seen) for problem in refused(*flags)] == [
        ("--iface=nope", "no interface has this name"),
        ("--iface-regex=nope", "neither an address nor a name matches"),
        ("--iface-can-reach=10.0.2.9", "the kernel has no route there"),
    ]


@pytest.mark.spec("flannel.md §7.2/regex-nothing")
def test_a_failure_lists_interfaces_and_addresses_without_our_own():
    hint = refused("--iface=eth9")[-1].hint
    for part in ("lo 127.0.0.1/8", "eth0 10.0.2.15/24 fd00:2::15/64", "eth1 192.168.56.11/24", "docker0", "--iface"):
        assert part in hint
    assert "flannel.1" not in hint


# --- One look-up ---------------------------------------------------------------------------------------------


@pytest.mark.spec("flannel.md §7.2/name")
def test_an_interface_by_name_in_each_family():
    assert chosen("--iface=eth1").uplink.v4 == IPv4Address("192.168.56.11")
    only6 = chosen("--iface=eth1", v4=False, v6=True)
    assert (only6.uplink.v4, only6.uplink.v6) == (None, IPv6Address("fd00:3::11"))
    dual = chosen("--iface=eth1", v6=True)
    assert (dual.uplink.v4, dual.uplink.v6) == (IPv4Address("192.168.56.11"), IPv6Address("fd00:3::11"))
    assert refused("--iface=flannel.1")[0].seen == "this interface is weft's own"


@pytest.mark.spec("flannel.md §7.2/name-is-ip")
def test_an_address_in_place_of_a_name():
    assert chosen("--iface=192.168.56.11").uplink.name == "eth1"
    only6 = chosen("--iface=fd00:3::11", v4=False, v6=True)
    assert (only6.uplink.name, only6.uplink.v6) == ("eth1", IPv6Address("fd00:3::11"))


@pytest.mark.spec("flannel.md §7.2/name-is-ip")
def test_in_dual_stack_the_public_ipv6_address_must_be_of_the_same_interface():
    more = Snapshot(links=NODE.links, routes=NODE.routes, addresses=(*NODE.addresses, address(3, "fd00:3::22/64")))
    facts = chosen("--iface=192.168.56.11", "--public-ipv6=fd00:3::22", snapshot=more, v6=True)
    assert facts.uplink.v6 == facts.public_v6 == IPv6Address("fd00:3::22")
    assert "but --public-ipv6" in refused("--iface=192.168.56.11", "--public-ipv6=fd00:2::15", v6=True)[0].seen
    assert "no interface" in refused("--iface=192.168.56.11", "--public-ipv6=fd00:9::9", v6=True)[0].seen


@pytest.mark.spec("flannel.md §7.2/dual-v6-literal")
def test_in_dual_stack_an_ipv6_address_works_with_and_without_a_public_one():
    for flags in ([], ["--public-ipv6=fd00:3::11"], ["--public-ipv6=2001:db8::9"]):
        facts = chosen("--iface=fd00:3::11", *flags, v6=True)
        assert (facts.uplink.name, facts.uplink.v4) == ("eth1", IPv4Address("192.168.56.11"))
        assert facts.uplink.v6 == IPv6Address("fd00:3::11")
    assert facts.public_v6 == IPv6Address("2001:db8::9")
    assert "belongs to eth1" in refused("--iface=fd00:3::11", "--public-ipv6=fd00:2::15", v6=True)[0].seen


@pytest.mark.spec("flannel.md §7.2/owning")
def test_an_address_is_owned_whatever_its_prefix_length_and_state():
    snapshot = Snapshot(links=(link(2, "a"),), addresses=(address(2, "10.0.0.1/32", deprecated=True),))
    assert chosen("--iface=10.0.0.1", snapshot=snapshot).uplink.v4 == IPv4Address("10.0.0.1")


@pytest.mark.spec("flannel.md §7.2/regex-address")
def test_a_pattern_takes_the_first_interface_in_the_kernels_order():
    assert chosen("--iface-regex=1[97]2").uplink.name == "eth1"
    shuffled = Snapshot(links=NODE.links[::-1], addresses=NODE.addresses, routes=NODE.routes)
    assert chosen("--iface-regex=1[97]2", snapshot=shuffled).uplink.name == "eth1"
    assert chosen("--iface-regex=^fd00:3", v4=False, v6=True).uplink.name == "eth1"


@pytest.mark.spec("flannel.md §7.2/regex-address")
def test_a_pattern_finds_neither_loopback_nor_our_own_devices():
    assert refused("--iface-regex=^(127|10.244)")[0].seen == "neither an address nor a name matches"


@pytest.mark.spec("flannel.md §7.2/dual-regex-reset")
def test_in_dual_stack_a_match_in_one_family_leaks_nowhere():
    # eth0 matches in IPv4 alone; eth1 in both: it must come with its own addresses.
    facts = chosen("--iface-regex=^(10.0.2.15|192.168.56.11|fd00:3::11)$", v6=True)
    assert (facts.uplink.name, facts.uplink.v4) == ("eth1", IPv4Address("192.168.56.11"))
    # Nothing matches in both families; by name it is eth1, with its own address and not eth0's.
    facts = chosen("--iface-regex=^(10.0.2.15|eth1)$", v6=True)
    assert (facts.uplink.name, facts.uplink.v4) == ("eth1", IPv4Address("192.168.56.11"))
    assert "in both families" in refused("--iface-regex=^10.0.2.15$", v6=True)[0].seen


@pytest.mark.spec("flannel.md §7.2/regex-name")
def test_a_pattern_that_matches_no_address_is_tried_on_names_unanchored():
    assert chosen("--iface-regex=th1").uplink.name == "eth1"
    assert chosen("--iface-regex=(?i)ETH").uplink.name == "eth0"


@pytest.mark.spec("flannel.md §7.2/regex-nothing")
def test_a_pattern_that_matches_nothing_is_an_error():
    assert "eth0 10.0.2.15/24" in refused("--iface-regex=^wlan")[0].hint


@pytest.mark.spec("flannel.md §7.2/can-reach")
@pytest.mark.parametrize(
    "reach, seen",
    [
        (None, "the kernel has no route there"),
        (route("10.9.9.9/32", kind=7), "the kernel has no route there"),
        (route("10.9.9.9/32", kind=2, index=1), "an address of this node itself"),
        (route("10.9.9.9/32", index=77), "no interface"),
        (route("10.9.9.9/32", index=5), "flannel.1, which is weft's own"),
    ],
)
def test_a_target_that_cannot_be_reached_is_an_error(reach, seen):
    assert seen in refused("--iface-can-reach=10.9.9.9", reach=reach)[0].seen


@pytest.mark.spec("flannel.md §7.2/can-reach")
def test_the_family_that_the_target_does_not_settle_is_chosen_by_preference():
    reach = route("fd00:3::/64", index=3, src=IPv6Address("fd00:3::11"))
    facts = chosen("--iface-can-reach=fd00:3::99", v6=True, reach=reach)
    assert (facts.uplink.v4, facts.uplink.v6) == (IPv4Address("192.168.56.11"), IPv6Address("fd00:3::11"))
    assert chosen("--iface-can-reach=fd00:3::99", reach=reach).uplink.v6 is None


@pytest.mark.spec("flannel.md §7.2/empty")
def test_in_dual_stack_both_default_routes_must_agree():
    assert chosen(v6=True).uplink.name == "eth0"
    other = Snapshot(
        links=NODE.links,
        addresses=NODE.addresses,
        routes=(*NODE.routes[:4], route("default6", index=3, **gateway("fe80::1"))),
    )
    assert refused(snapshot=other, v6=True)[0].seen == "the default routes differ: eth0 for IPv4, eth1 for IPv6"
    none = Snapshot(links=NODE.links, addresses=NODE.addresses, routes=NODE.routes[:4])
    assert refused(snapshot=none, v6=True)[0].seen == "there is no IPv6 default route"


@pytest.mark.spec("flannel.md §7.2/default-route")
@pytest.mark.parametrize(
    "routes, name",
    [
        ([route("default", index=2, priority=200), route("default", index=3, priority=100)], "eth1"),
        ([route("default", index=3), route("default", index=2, priority=100)], "eth1"),
        ([route("default", index=3), route("default", index=2)], "eth1"),
        ([route("default", hops=(NextHop(index=3), NextHop(index=2, weight=5)))], "eth0"),
        ([route("default", hops=(NextHop(index=3), NextHop(index=2)))], "eth1"),
        ([route("default", kind=7, priority=1), route("default", index=3, priority=5)], "eth1"),
        ([route("default", index=2, table=100), route("default", index=3)], "eth1"),
        ([route("default", index=5), route("default", index=3, priority=5)], "eth1"),
        ([route("0.0.0.0/1", index=2), route("default", index=3)], "eth1"),
    ],
)
def test_the_kernels_own_choice_of_default_route(routes, name):
    assert (
        chosen(snapshot=Snapshot(links=NODE.links, addresses=NODE.addresses, routes=tuple(routes))).uplink.name == name
    )


@pytest.mark.spec("flannel.md §7.2/default-route")
def test_no_default_route_is_an_error():
    [problem] = refused(snapshot=Snapshot(links=NODE.links, addresses=NODE.addresses))
    assert (problem.where, problem.seen) == ("default route", "there is no IPv4 default route")


# --- Addresses and the result --------------------------------------------------------------------------------


@pytest.mark.spec("flannel.md §7.3/preference")
@pytest.mark.parametrize(
    "addresses, best",
    [
        (["fe80::1", "2001:db8::1"], "2001:db8::1"),
        (["fe80::1"], "fe80::1"),
        ([("2001:db8::1", {"permanent": False}), "2001:db8::2"], "2001:db8::2"),
        ([("2001:db8::1", {"temporary": True}), "2001:db8::2"], "2001:db8::2"),
        ([("2001:db8::1", {"temporary": True}), ("2001:db8::2", {"permanent": False})], "2001:db8::1"),
        (["fe80::1", ("2001:db8::1", {"permanent": False, "temporary": True})], "2001:db8::1"),
        ([("2001:db8::1", {"deprecated": True}), "fe80::1"], "fe80::1"),
        ([("2001:db8::1", {"dad_failed": True}), "fe80::1"], "fe80::1"),
        (["2001:db8::2", "2001:db8::1"], "2001:db8::2"),
        (["169.254.0.9", "10.0.0.1"], "10.0.0.1"),
        (["10.0.0.2", "10.0.0.1"], "10.0.0.2"),
        (["127.0.0.2", "224.0.0.1", ("10.0.0.1", {"deprecated": True})], None),
        (["::1", "ff02::1"], None),
        ([], None),
    ],
)
def test_the_best_address_of_an_interface(addresses, best):
    pairs = [each if isinstance(each, tuple) else (each, {}) for each in addresses]
    snapshot = Snapshot(links=(link(2, "a"),), addresses=tuple(address(2, text, **more) for text, more in pairs))
    v6 = any(":" in text for text, _ in pairs)
    if best is None:
        assert "no usable IPv" in refused("--iface=a", snapshot=snapshot, v4=not v6, v6=v6)[0].seen
    else:
        uplink = chosen("--iface=a", snapshot=snapshot, v4=not v6, v6=v6).uplink
        assert (uplink.v6 if v6 else uplink.v4) == ip_address(best)


@pytest.mark.spec("flannel.md §7.4/mtu-0")
def test_an_interface_with_mtu_0_is_an_error():
    snapshot = Snapshot(links=(link(2, "a", mtu=0),), addresses=(address(2, "10.0.0.1/24"),))
    assert refused("--iface=a", snapshot=snapshot)[0].seen == "a has MTU 0"


@pytest.mark.spec("flannel.md §7.4/external")
def test_what_peers_are_told():
    flags = ("--iface=eth1", "--public-ip=203.0.113.7", "--public-ipv6=2001:db8::7")
    facts = chosen(*flags, v6=True)
    assert (facts.public_v4, facts.public_v6) == (IPv4Address("203.0.113.7"), IPv6Address("2001:db8::7"))
    assert (facts.uplink.v4, facts.uplink.v6) == (IPv4Address("192.168.56.11"), IPv6Address("fd00:3::11"))
    assert (chosen(*flags).public_v6, chosen(*flags, v4=False, v6=True).public_v4) == (None, None)
    plain = chosen("--iface=eth1", v6=True)
    assert (plain.public_v4, plain.public_v6) == (plain.uplink.v4, plain.uplink.v6)


@pytest.mark.spec("flannel.md §7.4/changes-tracked")
def test_another_snapshot_gives_another_answer():
    moved = Snapshot(links=NODE.links, addresses=(address(3, "192.168.56.99/24"),), routes=NODE.routes)
    assert chosen("--iface=eth1").public_v4 == IPv4Address("192.168.56.11")
    assert chosen("--iface=eth1", snapshot=moved).public_v4 == IPv4Address("192.168.56.99")


# --- The line for people -------------------------------------------------------------------------------------


def test_one_line_says_what_was_chosen_and_why_not_the_others():
    line = explained("--iface=wg0", "--iface=eth1", "--public-ip=203.0.113.7")
    assert line == (
        "uplink eth1 (index 3, MTU 9000) with 192.168.56.11, by --iface=eth1; peers are told 203.0.113.7;"
        " not: --iface=wg0: no interface has this name; lo 127.0.0.1/8 (no usable IPv4 address);"
        " eth0 10.0.2.15/24 fd00:2::15/64, docker0 172.17.0.1/16 (not the one named);"
        " flannel.1 10.244.1.0/32 (made by weft)"
    )
    for flags, reason in (
        ([], "higher metric"),
        (["--iface-regex=^eth"], "no match"),
        (["--public-ip=10.0.2.15"], "does not"),
    ):
        assert reason in explained(*flags)


def test_the_line_stays_short_on_a_node_with_many_pods():
    pods = tuple(link(10 + n, f"veth{n}") for n in range(1000))
    line = explained(snapshot=Snapshot(links=(*NODE.links, *pods), addresses=NODE.addresses, routes=NODE.routes))
    assert "and 993 more (no usable IPv4 address)" in line
    assert len(line) < 500
    assert "\n" not in line


def test_alone_on_a_node_there_is_nothing_to_explain():
    snapshot = Snapshot(links=(link(2, "a"),), addresses=(address(2, "10.0.0.1/24"),))
    assert explained("--iface=a", snapshot=snapshot) == "uplink a (index 2, MTU 1500) with 10.0.0.1, by --iface=a"


# --- On-link prefixes ----------------------------------------------------------------------------------------


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


# --- Pods where the nodes are --------------------------------------------------------------------------------


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


# --- An uplink in use ----------------------------------------------------------------------------------------

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
