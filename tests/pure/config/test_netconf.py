"""net-conf: which texts are configurations, what they mean, and what is said about the others."""

import json
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from tests.pure.config.configurations import conf, count, problems
from weft.config.netconf import Pool
from weft.desired.backends import BACKENDS

*_SOME, _LAST = BACKENDS


HERE = f"{', '.join(_SOME)} or {_LAST}"


def vector(name):
    return pytest.mark.spec(f"flannel.md 11.1/{name}")


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
