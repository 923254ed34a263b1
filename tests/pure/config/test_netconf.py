"""net-conf: which texts are configurations, what they mean, and what is said about the others."""

import json
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_json, mostly
from tests.pure.reach import reached, reaches
from weft.config.netconf import NetConf, Pool, parse_netconf
from weft.desired.backends import BACKENDS, hostgw
from weft.desired.backends.vxlan import VxlanOptions
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value

VXLAN = '"Backend": {"Type": "vxlan"}'
*_SOME, _LAST = BACKENDS
HERE = f"{', '.join(_SOME)} or {_LAST}"


def conf(members: str, backend: str = VXLAN, **how: bool) -> NetConf:
    return parse_netconf("{" + ", ".join(filter(None, (members, backend))) + "}", backends=BACKENDS, **how)


def problems(members: str, backend: str = VXLAN, **how: bool) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        conf(members, backend, **how)
    assert all(problem.code == "CONF-002" for problem in caught.value.problems)
    return list(caught.value.problems)


def vxlan(options: str) -> VxlanOptions:
    parsed = conf('"Network": "10.3.0.0/16"', f'"Backend": {{"Type": "vxlan", {options}}}').options
    assert isinstance(parsed, VxlanOptions)
    return parsed


def vector(name):
    return pytest.mark.spec(f"flannel.md 11.1/{name}")


def count(pool: Pool) -> int:
    return (int(pool.last) - int(pool.first)) // (1 << (pool.network.max_prefixlen - pool.subnet_len)) + 1


V4 = [
    ("10.3.0.0-16", '"network": "10.3.0.0/16"', 24, "10.3.1.0", "10.3.255.0", 255),
    ("10.0.0.0-8", '"Network": "10.0.0.0/8"', 24, "10.0.1.0", "10.255.255.0", 65535),
    ("192.168.0.0-22", '"Network": "192.168.0.0/22"', 24, "192.168.1.0", "192.168.3.0", 3),
    ("192.168.0.0-23", '"Network": "192.168.0.0/23"', 25, "192.168.0.128", "192.168.1.128", 3),
    ("192.168.0.0-24", '"Network": "192.168.0.0/24"', 26, "192.168.0.64", "192.168.0.192", 3),
    ("192.168.0.0-28", '"Network": "192.168.0.0/28"', 30, "192.168.0.4", "192.168.0.12", 3),
    (
        "len-20",
        '"Network": "10.0.0.0/8", "SubnetLen": 20, "SubnetMin": "10.10.0.0", "SubnetMax": "10.99.0.0"',
        20,
        "10.10.0.0",
        "10.99.0.0",
        1425,
    ),
    (
        "len-28",
        '"Network": "10.3.0.0/16", "SubnetMin": "10.3.5.0", "SubnetMax": "10.3.8.0", "SubnetLen": 28',
        28,
        "10.3.5.0",
        "10.3.8.0",
        49,
    ),
]


@pytest.mark.spec("flannel.md §2.3/subnetlen-derived", cases=("10.*", "192.*"))
@pytest.mark.spec("flannel.md §2.3/subnetmin", "flannel.md §2.3/subnetmax", cases=("10.3.0.0-16", "len-*"))
@pytest.mark.parametrize(
    "members, length, first, last, subnets", [pytest.param(*row[1:], marks=vector(row[0]), id=row[0]) for row in V4]
)
def test_ipv4_subnets(members, length, first, last, subnets):
    pool = conf(members).v4
    assert (pool.subnet_len, str(pool.first), str(pool.last), count(pool)) == (length, first, last, subnets)


V6 = [
    (
        "v6-48",
        '"enableIPv6": true, "ipv6Network": "fc00::/48", "enableIPv4": false',
        64,
        "fc00:0:0:1::",
        "fc00:0:0:ffff::",
        65535,
    ),
    (
        "v6-min-max-124",
        '"IPv6Network": "fc00::/48","IPv6SubnetLen":124,"IPv6SubnetMin":"fc00:0:0:1::","IPv6SubnetMax":"fc00:0:0:f::"',
        124,
        "fc00:0:0:1::",
        "fc00:0:0:f::",
        (14 << 60) + 1,
    ),
    ("v6-56", '"IPv6Network": "2001:cafe:42::/56"', 64, "2001:cafe:42:1::", "2001:cafe:42:ff::", 255),
    ("v6-62", '"IPv6Network": "fd00::/62"', 64, "fd00:0:0:1::", "fd00:0:0:3::", 3),
    ("v6-63", '"IPv6Network": "fd00::/63"', 65, "fd00::8000:0:0:0", "fd00:0:0:1:8000::", 3),
    ("v6-64", '"IPv6Network": "fd00::/64"', 66, "fd00::4000:0:0:0", "fd00::c000:0:0:0", 3),
    ("v6-124", '"IPv6Network": "fd00::/124"', 126, "fd00::4", "fd00::c", 3),
]


@pytest.mark.spec("flannel.md §2.3/v6")
@pytest.mark.parametrize(
    "members, length, first, last, subnets", [pytest.param(*row[1:], marks=vector(row[0])) for row in V6]
)
def test_ipv6_subnets(members, length, first, last, subnets):
    netconf = conf(members + ', "EnableIPv6": true, "EnableIPv4": false')
    assert netconf.v4 is None
    pool = netconf.v6
    assert (pool.subnet_len, pool.first, pool.last) == (length, IPv6Address(first), IPv6Address(last))
    assert count(pool) == subnets


@pytest.mark.spec("flannel.md §2.3/subnetlen-given")
@pytest.mark.parametrize(
    "members, where, words",
    [
        pytest.param('"Network": "192.168.0.0/29"', "Network", "too small", marks=vector("192.168.0.0-29")),
        pytest.param('"Network": "10.3.0.0/16", "SubnetLen": 31', "SubnetLen", "from 0 to 30", marks=vector("len-31")),
        pytest.param(
            '"Network": "10.3.0.0/16", "SubnetLen": 17', "SubnetLen", "at least four subnets", marks=vector("len-17")
        ),
        pytest.param(
            '"Network": "10.3.0.0/16", "SubnetMin": "10.4.0.0"',
            "SubnetMin",
            "inside Network 10.3.0.0/16",
            marks=vector("min-outside"),
        ),
        pytest.param(
            '"Network": "10.3.0.0/16", "SubnetMin": "10.3.1.5"',
            "SubnetMin",
            "10.3.1.5 is not on a SubnetLen boundary",
            marks=[vector("min-boundary"), pytest.mark.spec("flannel.md §2.3/alignment")],
        ),
        pytest.param(
            '"Network": "10.3.0.0/16", "SubnetMax": "10.3.9.1"',
            "SubnetMax",
            "10.3.9.1 is not on a SubnetLen boundary",
            marks=pytest.mark.spec("flannel.md §2.3/alignment"),
        ),
        pytest.param(
            '"Network": "10.3.0.0/16", "SubnetMax": "10.4.0.0"',
            "SubnetMax",
            "inside Network 10.3.0.0/16",
            marks=pytest.mark.spec("flannel.md §2.3/subnetmax"),
        ),
        ('"Network": "10.3.0.0/16", "SubnetMin": "10.3.9.0", "SubnetMax": "10.3.8.0"', "SubnetMin", "above SubnetMax"),
        ('"Network": "10.3.0.0/16", "SubnetMax": "10.3.0.0"', "SubnetMin", "10.3.1.0 is above SubnetMax 10.3.0.0"),
    ],
)
def test_impossible_ipv4_subnets(members, where, words):
    [problem] = problems(members)
    assert problem.where == f"net-conf: {where}"
    assert words in f"{problem.seen} {problem.expected}"


@pytest.mark.spec("flannel.md §2.3/v6")
@pytest.mark.parametrize(
    "members, where, words",
    [
        pytest.param('"IPv6Network": "fd00::/125"', "IPv6Network", "too small", marks=vector("v6-125")),
        ('"IPv6Network": "fd00::/48", "IPv6SubnetLen": 127', "IPv6SubnetLen", "from 0 to 126"),
        ('"IPv6Network": "fd00::/48", "IPv6SubnetLen": 49', "IPv6SubnetLen", "at least four subnets"),
        ('"IPv6Network": "fd00::/48", "IPv6SubnetMin": "fd01::"', "IPv6SubnetMin", "inside IPv6Network"),
        ('"IPv6Network": "fd00::/48", "IPv6SubnetMax": "fd01::"', "IPv6SubnetMax", "inside IPv6Network"),
        ('"IPv6Network": "fd00::/48", "IPv6SubnetMin": "fd00::1"', "IPv6SubnetMin", "not on a IPv6SubnetLen boundary"),
        ('"IPv6Network": "::/0"', "IPv6Network", "::/0"),
        ("", "IPv6Network", "missing"),
    ],
)
def test_impossible_ipv6_subnets(members, where, words):
    [problem] = problems(", ".join(filter(None, (members, '"EnableIPv4": false, "EnableIPv6": true'))))
    assert problem.where == f"net-conf: {where}"
    assert words in f"{problem.seen} {problem.expected}"


@pytest.mark.spec("flannel.md §2.3/network-missing")
@pytest.mark.spec("flannel.md §2.2/Network", cases="missing")
@pytest.mark.parametrize(
    "members, seen", [("", "missing"), ('"Network": "0.0.0.0/0"', "0.0.0.0/0")], ids=["missing", "all"]
)
def test_a_network_is_needed(members, seen):
    [problem] = problems(members)
    assert (problem.where, problem.seen) == ("net-conf: Network", seen)


@pytest.mark.parametrize("network", ["127.0.0.0/16", "0.0.0.0/1", "224.0.0.0/8", "fe80::/16", "ff00::/16"])
def test_pods_cannot_live_where_no_network_is(network):
    key = "IPv6Network" if ":" in network else "Network"
    [problem] = problems(f'"{key}": "{network}", "EnableIPv4": {json.dumps(key == "Network")}, "EnableIPv6": true'
                         if key == "IPv6Network" else f'"{key}": "{network}"')  # fmt: skip
    assert "overlaps" in problem.hint


@pytest.mark.spec("flannel.md §2.3/subnetmin", "flannel.md §2.3/subnetmax")
def test_an_address_of_zeros_counts_as_not_given():
    netconf = conf(
        '"Network": "10.3.0.0/16", "SubnetMin": "0.0.0.0", "SubnetMax": "0.0.0.0", "SubnetLen": 0,'
        ' "EnableIPv6": true, "IPv6Network": "fd00::/48", "IPv6SubnetMin": "::"'
    )
    assert (str(netconf.v4.first), str(netconf.v4.last)) == ("10.3.1.0", "10.3.255.0")
    assert str(netconf.v6.first) == "fd00:0:0:1::"


@pytest.mark.spec("flannel.md §2.1/case-insensitive")
def test_keys_match_whatever_their_case_and_the_last_wins():
    netconf = conf('"NETWORK": "10.1.0.0/16", "network": "10.2.0.0/16", "SUBNETLEN": 25, "subnetLen": 26')
    assert (str(netconf.v4.network), netconf.v4.subnet_len) == ("10.2.0.0/16", 26)


@pytest.mark.spec("flannel.md §2.1/case-insensitive")
def test_unknown_keys_are_ignored_with_a_warning():
    netconf = conf('"Network": "10.3.0.0/16", "Netwrok": 1, "x": {}', '"Backend": {"Type": "vxlan", "VNl": 7}')
    assert netconf.warnings == (
        "net-conf: Netwrok is no known key and is ignored. Did you mean Network?",
        "net-conf: x is no known key and is ignored.",
        "net-conf: Backend.VNl is no known key and is ignored. Did you mean Backend.VNI?",
    )


def test_a_refused_text_names_its_unknown_keys_too():
    found = problems('"Netwrk": "10.3.0.0/16"', '"Backend": {"Type": "host-gw", "Mtu": 1}')
    assert [(problem.where, problem.seen, problem.hint) for problem in found] == [
        ("net-conf: Network", "missing", ""),
        ("net-conf: Netwrk", "an unknown key", "Did you mean Network?"),
        ("net-conf: Backend.Mtu", "an unknown key", ""),
    ]


@pytest.mark.spec("flannel.md §2.1/case-insensitive", "flannel.md §2.1/null")
def test_null_keeps_what_was_there():
    netconf = conf(
        '"Network": "10.3.0.0/16", "EnableIPv4": null, "SubnetLen": 25, "subnetlen": null, "SubnetMin": null'
    )
    assert (netconf.v4.subnet_len, str(netconf.v4.first)) == (25, "10.3.0.128")


@pytest.mark.spec("flannel.md §2.1/null")
def test_null_at_the_top_is_an_empty_object():
    with pytest.raises(ConfigError) as caught:
        parse_netconf("null", backends=BACKENDS)
    assert [problem.where for problem in caught.value.problems] == ["net-conf: Network"]


@pytest.mark.spec("flannel.md §2.1/case-insensitive")
@pytest.mark.parametrize(
    "text, place, seen",
    [
        (
            '{"Network":\n "10.3.0.0/16",}',
            "line 2, column 1[56]",
            "property name|trailing comma",
        ),  # by Python's version
        ("", "line 1, column 1", "Expecting value"),
        ('{} {"a": 1}', "line 1, column 4", "more text after the end of the object"),
        ("{}\n\nx", "line 3, column 1", "more text after the end of the object"),
        ("{'Network': 1}", "line 1, column 2", "property name"),
    ],
)
def test_what_is_not_json_is_named_by_line_and_column(text, place, seen):
    with pytest.raises(ConfigError) as caught:
        parse_netconf(text, "etcd: /w/config", backends=BACKENDS)
    [problem] = caught.value.problems
    assert re.fullmatch(f"etcd: /w/config: {place}", problem.where)
    assert re.search(seen, problem.seen)


def test_what_stands_behind_the_object_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        parse_netconf('{} "PSK": "0123abcd"}', "net-conf", backends=BACKENDS)
    assert "0123abcd" not in str(caught.value.problems)


@pytest.mark.parametrize("text", ["[]", "7", '"x"', "true", "NaN", "1" * 5000, "[" * 100_000, '{"a":' * 100_000])
def test_what_is_not_one_object_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        parse_netconf(text, backends=BACKENDS)
    assert "JSON object" in caught.value.problems[0].expected


@pytest.mark.spec("flannel.md §2.1/integers")
@pytest.mark.spec("flannel.md §2.2/SubnetLen", cases="*-SubnetLen")
@pytest.mark.spec("flannel.md §2.2/IPv6SubnetLen", cases="*-IPv6SubnetLen")
@pytest.mark.parametrize("key", ["SubnetLen", "IPv6SubnetLen"])
@pytest.mark.parametrize("value", ["24.0", "24e0", '"24"', "-1", "true", "[24]", "1" * 100])
def test_a_length_is_a_json_integer_and_not_negative(key, value):
    [problem] = problems(f'"Network": "10.3.0.0/16", "{key}": {value}')
    assert problem.where == f"net-conf: {key}"
    assert problem.expected.startswith("a whole number from 0 to ")


@pytest.mark.spec("flannel.md §2.1/cidrs")
@pytest.mark.parametrize("text, network", [("10.5.3.1/16", "10.5.0.0/16"), ("10.5.3.0/24", "10.5.3.0/24")])
def test_host_bits_are_cleared(text, network):
    assert conf(f'"Network": "{text}"').v4.network == IPv4Network(network)
    assert conf('"Network": "10.1.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00::9/48"').v6.network == IPv6Network(
        "fd00::/48"
    )


@pytest.mark.spec("flannel.md §2.1/cidrs")
@pytest.mark.parametrize(
    "key, value",
    [
        ("Network", '"010.5.0.0/16"'),
        ("Network", '"10.5.0.0"'),
        ("Network", '"10.5.0.0/255.255.0.0"'),
        ("Network", '"10.5.0.0/33"'),
        ("Network", '"10.5.0.0/-1"'),
        ("Network", '"10.5.0.0/1٦"'),
        ("Network", '"fd00::/48"'),
        ("Network", '""'),
        ("Network", "10"),
        pytest.param("IPv6Network", '"10.5.0.0/16"', marks=pytest.mark.spec("flannel.md §2.2/IPv6Network")),
        ("IPv6Network", '"::ffff:10.5.0.0/112"'),
        ("IPv6Network", '"fe80::1%eth0/64"'),
        ("IPv6Network", '"fd00::/129"'),
        ("IPv6Network", '"fd00::"'),
    ],
)
def test_what_is_no_network_of_its_family_is_refused_even_where_the_family_is_off(key, value):
    other = '"EnableIPv6": true, "IPv6Network": "fd00::/48", "EnableIPv4": false' if key == "Network" else ""
    members = ", ".join(filter(None, (other or '"Network": "10.3.0.0/16"', f'"{key}": {value}')))
    [problem] = problems(members)
    assert problem.where == f"net-conf: {key}"
    assert "network such as" in problem.expected


@pytest.mark.spec("flannel.md §2.1/v6-in-subnet-min", cases="SubnetM*-fd00*")
@pytest.mark.spec("flannel.md §2.2/SubnetMin-SubnetMax", cases="SubnetM*")
@pytest.mark.spec("flannel.md §2.2/IPv6SubnetMin-IPv6SubnetMax", cases="IPv6*")
@pytest.mark.parametrize(
    "key, value",
    [
        ("SubnetMin", "fd00::1"),
        ("SubnetMax", "fd00::1"),
        ("SubnetMin", "x"),
        ("IPv6SubnetMin", "10.3.1.0"),
        ("IPv6SubnetMax", "::ffff:10.3.1.0"),
        ("IPv6SubnetMax", "fe80::1%eth0"),
    ],
)
def test_a_bound_is_an_address_of_its_family(key, value):
    [problem] = problems(f'"Network": "10.3.0.0/16", "{key}": "{value}"')
    assert problem.where == f"net-conf: {key}"
    assert problem.expected.endswith("address")


@pytest.mark.spec(
    "flannel.md §2.2/families",
    "flannel.md §2.2/EnableIPv4",
    "flannel.md §2.2/EnableIPv6",
    "flannel.md §1.5/7-no-family",
)
def test_families():
    both = '"Network": "10.3.0.0/16", "IPv6Network": "fd00::/48"'
    assert (conf(both).v4 is None, conf(both).v6 is None) == (False, True)
    dual = conf(both + ', "EnableIPv6": true')
    assert (dual.v4.network, dual.v6.network) == (IPv4Network("10.3.0.0/16"), IPv6Network("fd00::/48"))
    only6 = conf(both + ', "EnableIPv6": true, "EnableIPv4": false')
    assert (only6.v4 is None, only6.v6 is None) == (True, False)
    [problem] = problems(both + ', "EnableIPv4": false')
    assert problem.where == "net-conf: EnableIPv4"
    [problem] = problems(both + ', "EnableIPv6": "yes"')
    assert problem.expected == "true or false"


@pytest.mark.spec("flannel.md §2.2/EnableNFTables")
def test_the_kind_of_firewall():
    assert not conf('"Network": "10.3.0.0/16"').nftables
    assert conf('"Network": "10.3.0.0/16", "enablenftables": true').nftables


@pytest.mark.spec("flannel.md §2.3/network-missing")
def test_kubernetes_gives_out_subnets_so_bounds_are_not_checked():
    netconf = conf('"Network": "10.3.0.0/29", "SubnetLen": 31, "SubnetMin": "10.4.0.1"', etcd=False)
    assert netconf.v4 == Pool(
        network=IPv4Network("10.3.0.0/29"), subnet_len=32, first=IPv4Address("10.3.0.0"), last=IPv4Address("10.3.0.7")
    )
    assert problems("", etcd=False)[0].seen == "missing"


# --- The back end --------------------------------------------------------------------------------------------


@pytest.mark.spec("flannel.md 11.1/backend-absent", "flannel.md §2.2/backend-type")
def test_no_backend_means_udp_and_is_said():
    netconf = conf('"Network": "10.3.0.0/16"', "")
    assert netconf.backend == "udp"
    [warning] = netconf.warnings
    assert "Backend is missing, which means udp" in warning
    assert "vxlan" in warning


@pytest.mark.spec("flannel.md §2.2/backend-type")
@pytest.mark.spec("flannel.md 11.1/backend-empty", cases=("{}-*", "null-*"))
@pytest.mark.spec("flannel.md §1.5/11-backend", cases="*vxlna*")
@pytest.mark.parametrize(
    "backend, seen",
    [
        ("{}", 'unknown backend ""'),
        ("null", 'unknown backend ""'),
        ('{"Type": null}', 'unknown backend ""'),
        ('{"Type": "vxlna"}', 'unknown backend "vxlna"'),
        ('{"Type": ""}', 'unknown backend ""'),
    ],
)
def test_an_unknown_or_missing_type_is_refused(backend, seen):
    [problem] = problems('"Network": "10.3.0.0/16"', f'"Backend": {backend}')
    assert (problem.where, problem.expected) == ("net-conf: Backend.Type", HERE)
    assert problem.seen == seen
    assert problem.hint == ("Did you mean vxlan?" if "vxlna" in backend else "")


def test_a_mesh_has_a_back_end_of_its_own_and_no_other_store_has_that():
    network, mesh = '"Network": "10.3.0.0/16"', '"Backend": {"Type": "Mesh"}'
    assert conf(network, mesh, mesh=True).backend == conf(network, mesh).backend == "mesh"
    assert conf(network, mesh=False).backend == "vxlan"
    [problem] = problems(network, mesh=True)
    assert (problem.where, problem.seen, problem.expected) == ("net-conf: Backend.Type", "vxlan", "mesh")
    [problem] = problems(network, "", mesh=True)
    assert (problem.seen, problem.expected) == ("udp", "mesh")
    [problem] = problems(network, mesh, mesh=False)
    assert problem.seen == "mesh, and the store is no mesh"
    assert "--mesh" in problem.hint


@pytest.mark.spec("flannel.md 11.1/backend-wrong-types")
@pytest.mark.spec("flannel.md §2.2/Backend", cases="*-Backend")
@pytest.mark.spec("flannel.md §2.1/integers", cases="*-Backend.VNI")
@pytest.mark.parametrize(
    "backend, where",
    [
        ("[]", "Backend"),
        ('"vxlan"', "Backend"),
        ('{"Type": 1}', "Backend.Type"),
        ('{"Type": "vxlan", "VNI": "3"}', "Backend.VNI"),
        ('{"Type": "vxlan", "VNI": 1.0}', "Backend.VNI"),
        ('{"Type": "vxlan", "VNI": true}', "Backend.VNI"),
        ('{"Type": "vxlan", "GBP": 1}', "Backend.GBP"),
    ],
)
def test_wrong_types_in_the_backend_are_refused(backend, where):
    [problem] = problems('"Network": "10.3.0.0/16"', f'"Backend": {backend}')
    assert problem.where == f"net-conf: {where}"


@pytest.mark.spec("flannel.md 11.1/backend-upper-case", "flannel.md §2.2/backend-type")
def test_the_type_is_lower_cased():
    assert conf('"Network": "10.3.0.0/16"', '"Backend": {"Type": "VXLAN"}').backend == "vxlan"
    netconf = conf('"Network": "10.3.0.0/16"', '"backend": {"type": "Host-GW"}')
    assert (netconf.backend, netconf.options) == ("host-gw", Value())


def test_options_of_vxlan_have_defaults():
    defaults = VxlanOptions(vni=1, port=0, mtu=0, gbp=False, learning=False, direct_routing=False)
    assert conf('"Network": "10.3.0.0/16"').options == defaults


@pytest.mark.spec(
    "flannel.md 11.1/backend-key-case", "flannel.md 11.1/backend-duplicate", "flannel.md 11.1/backend-vni-null"
)
def test_the_backends_keys_follow_the_same_rules():
    assert vxlan('"Vni": 3, "PORT": 9, "directrouting": true') == VxlanOptions(vni=3, port=9, direct_routing=True)
    assert vxlan('"vni": 2, "VNI": 5').vni == 5
    assert vxlan('"VNI": null').vni == 1


@pytest.mark.spec("flannel.md §6.2/Learning")
def test_learning_is_off_unless_asked_for():
    assert not vxlan('"VNI": 1').learning
    assert vxlan('"learning": true').learning


@pytest.mark.spec("flannel.md 11.1/backend-duplicate")
def test_a_second_backend_replaces_the_first_as_a_whole():
    netconf = conf('"Network": "10.3.0.0/16", "backend": {"Type": "vxlan", "VNI": 7}')
    assert netconf.options == VxlanOptions()


@pytest.mark.spec("flannel.md 11.1/backend-fuzz-seeds")
@pytest.mark.spec("flannel.md §6.2/MTU", "flannel.md §6.2/GBP", cases="*MTU*")
@pytest.mark.parametrize("options", ['"Mac": "00:11:22:33:44:55"', '"MTU":1400,"GBP":true,"DirectRouting":true'])
def test_fuzz_seeds(options):
    parsed = vxlan(options)
    assert (parsed.mtu, parsed.gbp, parsed.direct_routing) in ((0, False, False), (1400, True, True))
    for backend in ("", "{}", f"{{{options}}}"):
        with pytest.raises(ConfigError):
            parse_netconf(backend, backends=BACKENDS)


@pytest.mark.spec("flannel.md §6.2/option-ranges")
@pytest.mark.parametrize(
    "options, where, family, fine",
    [
        ('"VNI": 16777216', "VNI", "4", False),
        ('"VNI": -1', "VNI", "4", False),
        ('"VNI": 0', "VNI", "4", True),
        ('"VNI": 9999999', "VNI", "4", True),
        ('"VNI": 10000000', "VNI", "4", False),
        ('"VNI": 9999', "VNI", "46", True),
        ('"VNI": 10000', "VNI", "46", False),
        ('"VNI": 10000', "VNI", "6", False),
        ('"Port": 65535', "Port", "4", True),
        ('"Port": 65536', "Port", "4", False),
        ('"Port": -1', "Port", "4", False),
        ('"MTU": 0', "MTU", "4", True),
        ('"MTU": 118', "MTU", "4", True),
        ('"MTU": 117', "MTU", "4", False),
        ('"MTU": 1350', "MTU", "46", True),
        ('"MTU": 1349', "MTU", "46", False),
        ('"MTU": 65536', "MTU", "4", False),
    ],
)
def test_ranges_of_vxlan_options(options, where, family, fine):
    members = (
        f'"Network": "10.3.0.0/16", "IPv6Network": "fd00::/48",'
        f' "EnableIPv4": {json.dumps("4" in family)}, "EnableIPv6": {json.dumps("6" in family)}'
    )
    backend = f'"Backend": {{"Type": "vxlan", {options}}}'
    if fine:
        assert conf(members, backend).backend == "vxlan"
    else:
        [problem] = problems(members, backend)
        assert problem.where == f"net-conf: Backend.{where}"


@pytest.mark.spec("flannel.md §6.2/MacPrefix-Name")
def test_options_of_windows_are_accepted_and_warned_about():
    netconf = conf('"Network": "10.3.0.0/16"', '"Backend": {"Type": "vxlan", "MacPrefix": "0E-2A", "Name": "n"}')
    assert [warning.split()[0] for warning in netconf.warnings] == ["Backend.MacPrefix", "Backend.Name"]


def test_every_problem_of_a_text_is_listed_at_once():
    found = problems(
        '"Network": "10.3.0.0/16", "SubnetLen": "24", "SubnetMin": "10.4.0.0", "EnableIPv6": true,'
        ' "IPv6Network": "10.0.0.0/8", "EnableNFTables": 1',
        '"Backend": {"Type": "vxlan", "VNI": "3", "Port": 70000}',
    )
    assert [problem.where.removeprefix("net-conf: ") for problem in found] == [
        "EnableNFTables",
        "SubnetLen",
        "SubnetMin",
        "IPv6Network",
        "Backend.VNI",
        "Backend.Port",
    ]


def test_a_hostile_value_reaches_no_terminal():
    [problem] = problems('"Network": "\\u001b[2J\\ud800' + "x" * 500 + '"')
    assert problem.seen.isascii() is False  # the ellipsis
    assert problem.seen[:-1].isprintable()
    assert len(problem.seen) <= 60
    str(problem).encode()


NAMES = st.sampled_from(
    [
        "Network",
        "network",
        "IPv6Network",
        "EnableIPv4",
        "EnableIPv6",
        "EnableNFTables",
        "SubnetLen",
        "SubnetMin",
        "SubnetMax",
        "IPv6SubnetLen",
        "IPv6SubnetMin",
        "IPv6SubnetMax",
        "Backend",
        "Type",
        "VNI",
        "Port",
        "MTU",
        "GBP",
    ]
)
ADDRESSES = st.one_of(st.ip_addresses().map(str), st.ip_addresses(network="10.0.0.0/8").map(str))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 140),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["vxlan", "host-gw", "udp", "10.0.0.0/8", "10.3.0.0/16", "fd00::/48"]),
        ADDRESSES,
        st.builds("{}/{}".format, ADDRESSES, st.integers(-1, 130)),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def good_objects(draw):
    """A configuration that a cluster could have, with members that fit each other."""
    family, found = draw(st.sampled_from(["4", "6", "46"])), {}
    if "4" in family:
        found |= {"Network": "10.3.0.0/16", "SubnetLen": draw(st.integers(18, 30))}
        found |= draw(st.sampled_from([{}, {"SubnetMin": "10.3.64.0"}, {"SubnetMax": "10.3.128.0"}]))
    if "6" in family:
        found |= {"EnableIPv6": True, "IPv6Network": "fd00::/48", "IPv6SubnetLen": draw(st.integers(50, 126))}
        found |= draw(st.sampled_from([{}, {"IPv6SubnetMin": "fd00:0:0:8000::"}]))
    if family == "6":
        found["EnableIPv4"] = False
    vxlan = st.fixed_dictionaries(
        {"Type": st.just("vxlan")},
        optional={"VNI": st.integers(1, 4096), "Port": st.integers(1, 65535), "MTU": st.integers(1350, 9000)},
    )
    return found | {"Backend": draw(st.one_of(vxlan, st.just({"Type": "host-gw"})))}


TEXTS = mostly(
    bent_json(good_objects(), VALUES).map(json.dumps),
    st.one_of(st.text(), VALUES.map(json.dumps), st.dictionaries(NAMES, VALUES).map(json.dumps)),
)


@reaches(read=0.1, refused=0.1, pool_v4=0.02, pool_v6=0.01)
@given(TEXTS, st.booleans())
def test_any_text_is_a_configuration_or_a_config_error(text, etcd):
    try:
        netconf = parse_netconf(text, backends=BACKENDS, etcd=etcd)
    except ConfigError as error:
        reached("refused")
        for problem in error.problems:
            str(problem).encode()
        return
    reached("read")
    for pool in (netconf.v4, netconf.v6):
        if pool is not None and etcd:
            reached(f"pool_v{pool.network.version}")
            assert pool.first in pool.network
            assert pool.last in pool.network
            assert pool.first <= pool.last
            assert count(pool) >= 1


def test_all_backends_that_there_are_are_named():
    with pytest.raises(ConfigError, match=r"expected vxlan$"):
        parse_netconf('{"Network": "10.1.0.0/16", "Backend": {"Type": "x"}}', backends={"vxlan": BACKENDS["vxlan"]})


def test_without_a_backend_it_is_flannels_default_where_there_is_one():
    assert parse_netconf('{"Network": "10.1.0.0/16"}', backends={**BACKENDS, "udp": hostgw}).backend == "udp"


def test_a_key_that_stands_there_twice_is_warned_of():
    netconf = parse_netconf(
        '{"Network": "10.1.0.0/16", "network": "10.2.0.0/16", "x": 1, "x": 2,'
        ' "Backend": {"Type": "vxlan", "VNI": 2, "Vni": 3, "vni": 4}}',
        backends=BACKENDS,
    )
    assert (str(netconf.v4.network), netconf.options.vni) == ("10.2.0.0/16", 4)
    assert netconf.warnings == (
        "net-conf: x is no known key and is ignored.",
        "net-conf: Network stands there 2 times; the last one counts",
        "net-conf: Backend.VNI stands there 3 times; the last one counts",
    )
