"""net-conf.json as a text: what is no configuration is refused, by its place, and nothing else ends a node."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_json, mostly
from tests.pure.config.configurations import conf, count, problems
from tests.pure.reach import reached, reaches
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS
from weft.model.errors import ConfigError


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
