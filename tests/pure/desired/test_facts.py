"""Which interface and addresses are chosen, and what is said about it: snapshots go in, no kernel is asked."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from tests.pure.desired.machines import NODE, address, chosen, gateway, link, route
from weft.config.flags import parse_flags
from weft.daemon import phases
from weft.desired.facts import select
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import NextHop
from weft.model.net import Addresses

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


def explained(*flags: str, snapshot: Snapshot = NODE, v4=True, v6=False, reach=None) -> str:
    return select(parse_flags(flags, {}), snapshot, v4=v4, v6=v6, reach=reach)[1]


def refused(*flags: str, snapshot: Snapshot = NODE, v4=True, v6=False, reach=None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        select(parse_flags(flags, {}), snapshot, v4=v4, v6=v6, reach=reach)
    assert all(problem.code == "IFACE-001" for problem in caught.value.problems)
    return list(caught.value.problems)


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
