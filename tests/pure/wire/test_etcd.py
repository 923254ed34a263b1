"""Keys and values in etcd: flannel's bytes, and no stranger's bytes do harm."""

import json
import time
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes, bent_json, mostly
from tests.pure.reach import reached, reaches
from weft.model.errors import PeerError
from weft.model.lease import Lease, LeaseAttrs, PolicyMode
from weft.wire.etcd import (
    config_key,
    decode_attrs,
    decode_lease,
    encode_attrs,
    lease_id,
    parse_id,
    subnets_prefix,
)


def v4(text: str) -> IPv4Network:
    return IPv4Network(text)


def v6(text: str) -> IPv6Network:
    return IPv6Network(text)


# --- keys


@pytest.mark.spec("flannel.md §4.2/config-key")
@pytest.mark.parametrize(
    "prefix, joined",
    [
        ("/coreos.com/network", "/coreos.com/network"),
        ("/coreos.com/network/", "/coreos.com/network"),
        ("//coreos.com//network", "/coreos.com/network"),
        ("coreos.com/network", "coreos.com/network"),
        ("/a/./b/../c", "/a/c"),
        ("/", ""),
    ],
)
def test_prefix_is_cleaned_like_go_joins_paths(prefix, joined):
    assert config_key(prefix) == f"{joined}/config"
    assert subnets_prefix(prefix) == f"{joined}/subnets/"


def test_empty_prefix_stays_relative():
    assert config_key("") == "config"


@pytest.mark.parametrize(
    "text, subnets",
    [
        pytest.param(
            "10.12.13.0-24",
            (v4("10.12.13.0/24"), None),
            marks=pytest.mark.spec("flannel.md 11.2/v4", "flannel.md §4.2/v4-key"),
        ),
        pytest.param(
            "10.12.13.0-24&fd00:12:13::-56",
            (v4("10.12.13.0/24"), v6("fd00:12:13::/56")),
            marks=pytest.mark.spec("flannel.md 11.2/dual", "flannel.md §4.2/dual-key"),
        ),
        # 0.0.0.0-0 stands for "no IPv4"
        pytest.param(
            "0.0.0.0-0&fd00::-64",
            (None, v6("fd00::/64")),
            marks=pytest.mark.spec("flannel.md 11.2/v6-only", "flannel.md §4.2/v6-only-key"),
        ),
    ],
)
def test_key_round_trips(text, subnets):
    assert parse_id(text) == subnets
    assert lease_id(*subnets) == text


@pytest.mark.parametrize(
    "text, subnets",
    [
        pytest.param(
            "/coreos.com/network/subnets/10.5.1.0-24",
            (v4("10.5.1.0/24"), None),
            marks=pytest.mark.spec("flannel.md 11.2/full-path"),
        ),
        pytest.param("x10.1.2.0-24", (v4("10.1.2.0/24"), None), marks=pytest.mark.spec("flannel.md 11.2/not-anchored")),
        ("10.1.2.0-24&::-0", (v4("10.1.2.0/24"), None)),
        ("10.5.100.0-0&fd00::-64", (None, v6("fd00::/64"))),  # as flanneld 0.28.9 writes with a `SubnetMin`
        ("10.1.0.0-31", (v4("10.1.0.0/31"), None)),
        ("10.1.2.0-24&fd00::-127", (v4("10.1.2.0/24"), v6("fd00::/127"))),
    ],
)
@pytest.mark.spec("flannel.md §4.2/recogniser")
def test_key_is_recognised(text, subnets):
    assert parse_id(text) == subnets


REJECTED = [
    "10",
    "10.12.13.0",
    "10.12.13-24",
    "10.12.13.300-24",
    "10.12.13.0-24hi",
    "&2001::-56",
    "10.12.13.0-24&:12:13:-56",
    "10.12.13.0-24&20011::-56",
    "10.12.13.0-24&2001-56",
    "10.12.13.0-24&2001::",
    "10.12.13.0-24&2001::-56hi",
]


@pytest.mark.spec("flannel.md 11.2/rejected")
@pytest.mark.parametrize("text", REJECTED)
def test_no_subnet_is_rejected(text):
    with pytest.raises(PeerError, match="no subnet"):
        parse_id(text)


@pytest.mark.spec("flannel.md 11.2/rejected-lengths")
@pytest.mark.parametrize("text", ["10.1.2.0-32", "10.1.2.0-24&fd00::-128", "10.1.2.0-24&FD00::-64"])
def test_length_beyond_the_bits_and_upper_case_are_rejected(text):
    with pytest.raises(PeerError):
        parse_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0-0",
        "0.0.0.0-0&::-0",
        "10.5.100.0-0",
        "10.5.256.0-0&fd00::-64",
        "10.5.1.7-24",
        "010.5.1.0-24",
        "10.5.1.0-24\n",
        "",
        "10.5.1.0-" + "9" * 5000,
        "1٣.1.1.0-24",
    ],
)
def test_what_no_node_could_use_is_rejected(text):
    with pytest.raises(PeerError):
        parse_id(text)


NETS4 = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 31)).map(lambda pair: IPv4Network(pair, strict=False))
NETS6 = st.tuples(st.integers(0, 2**128 - 1), st.integers(1, 127)).map(lambda pair: IPv6Network(pair, strict=False))
IDS = st.builds(lease_id, NETS4, NETS6 | st.none()) | st.builds(lease_id, st.none(), NETS6)
ODD_KEYS = st.text(alphabet="0123456789.-&abcdef:x/ \n", max_size=60) | st.text(max_size=40)


@reaches(subnets_v4=0.05, subnets_v6=0.08, refused=0.15)
@given(mostly(bent_bytes(IDS.map(str.encode)).map(lambda key: key.decode(errors="backslashreplace")), ODD_KEYS))
def test_any_key_is_subnets_or_a_peer_error(text):
    try:
        subnets = parse_id(text)
    except PeerError:
        reached("refused")
        return
    for net in filter(None, subnets):
        reached(f"subnets_v{net.version}")
    assert subnets != (None, None)
    assert parse_id(lease_id(*subnets)) == subnets


@given(NETS4, NETS6 | st.none())
def test_every_subnet_has_a_key_that_upstream_recognises(net, net6):
    text = lease_id(net, net6)
    assert parse_id(text) == (net, net6)
    assert text == text.lower()


# --- values

VXLAN4 = (
    b'{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan",'
    b'"BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}'
)
VXLAN46 = (
    b'{"PublicIP":"192.168.64.3","PublicIPv6":"fd00::3","BackendType":"vxlan",'
    b'"BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"},"BackendV6Data":{"VNI":1,"VtepMAC":"6a:11:22:33:44:55"}}'
)
VALUES = [
    (b'{"PublicIP":"1.2.3.4","PublicIPv6":null}', LeaseAttrs(public_ip=IPv4Address("1.2.3.4"))),
    (
        VXLAN4,
        LeaseAttrs(
            public_ip=IPv4Address("192.168.64.3"), backend="vxlan", data={"VNI": 1, "VtepMAC": "c6:d2:32:6f:8f:44"}
        ),
    ),
    (
        VXLAN46,
        LeaseAttrs(
            public_ip=IPv4Address("192.168.64.3"),
            public_ipv6=IPv6Address("fd00::3"),
            backend="vxlan",
            data={"VNI": 1, "VtepMAC": "c6:d2:32:6f:8f:44"},
            data_v6={"VNI": 1, "VtepMAC": "6a:11:22:33:44:55"},
        ),
    ),
    (
        b'{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"wireguard",'
        b'"BackendData":{"PublicKey":"<base64>=","Port":51820}}'.replace(b"<", rb"\u003c").replace(b">", rb"\u003e"),
        LeaseAttrs(
            public_ip=IPv4Address("192.168.64.3"), backend="wireguard", data={"PublicKey": "<base64>=", "Port": 51820}
        ),
    ),
    (
        b'{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"host-gw"}',
        LeaseAttrs(public_ip=IPv4Address("192.168.64.3"), backend="host-gw"),
    ),
    (
        b'{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::3"}',
        LeaseAttrs(public_ip=None, public_ipv6=IPv6Address("fd00::3")),
    ),
    (
        rb'{"PublicIP":"1.2.3.4","PublicIPv6":null,"BackendData":"\u0026\u003c\u003e\u2028\u2029' + 'é€"}'.encode(),
        LeaseAttrs(public_ip=IPv4Address("1.2.3.4"), data="&<>\u2028\u2029é€"),
    ),
]


@pytest.mark.spec("flannel.md §4.2/value-bytes")
@pytest.mark.spec("flannel.md 11.5/value-bytes", cases="public-ip")
@pytest.mark.spec("flannel.md 11.3/json", cases=("public-ip", "v6-only"))
@pytest.mark.parametrize(
    "value, attrs", VALUES, ids=["public-ip", "vxlan", "dual", "wireguard", "host-gw", "v6-only", "escapes"]
)
def test_value_is_upstreams_byte_for_byte(value, attrs):
    assert encode_attrs(attrs) == value
    assert decode_attrs(value, "lease") == attrs


def test_what_a_stranger_says_of_policies_is_a_mode_or_nothing():
    for said in ('"off"', "7", '["enforce"]', "null", '"enforce\\n"'):
        assert decode_attrs(b'{"PublicIP":"1.2.3.4","NetworkPolicy":%s}' % said.encode(), "lease").policies == ""
    assert decode_attrs(b'{"PublicIP":"1.2.3.4","NetworkPolicy":"audit"}', "lease").policies == "audit"


A = IPv4Address("1.2.3.4")


@pytest.mark.spec("flannel.md §4.2/readers")
@pytest.mark.parametrize(
    "value, attrs",
    [
        ('{"publicip":"1.2.3.4","BACKENDTYPE":"udp"}', LeaseAttrs(public_ip=A, backend="udp")),
        ('{"PublicIP":"9.9.9.9","publicIP":"1.2.3.4"}', LeaseAttrs(public_ip=A)),
        ('{"PublicIP":"9.9.9.9","publicIP":"8.8.8.8","PublicIP":"1.2.3.4"}', LeaseAttrs(public_ip=A)),
        ('{"PublicIP":"9.9.9.9","PublicIP":"1.2.3.4"}', LeaseAttrs(public_ip=A)),
        ('{"PublicIP":"1.2.3.4","Other":[1,{"x":null}]}', LeaseAttrs(public_ip=A)),
        ('{"PublicIP":"1.2.3.4","PublicIPv6":null,"BackendType":null,"BackendData":null}', LeaseAttrs(public_ip=A)),
        ('{"PublicIP":"0.0.0.0"}', LeaseAttrs(public_ip=None)),
        ("{}", LeaseAttrs(public_ip=None)),
        ("null", LeaseAttrs(public_ip=None)),
        (' {"PublicIP" : "1.2.3.4"}\n', LeaseAttrs(public_ip=A)),
        ('{"PublicIP":"1.2.3.4","BackendData":[1,"x"]}', LeaseAttrs(public_ip=A, data=[1, "x"])),
    ],
)
def test_value_is_read_as_upstream_reads_it(value, attrs):
    assert decode_attrs(value.encode(), "lease") == attrs


@pytest.mark.spec("flannel.md §4.2/readers")
@pytest.mark.spec("flannel.md 11.3/v6-as-v4", cases='{"PublicIP":"2001:db8::1"}-*')
@pytest.mark.parametrize(
    "value, seen",
    [
        ('{"PublicIP":null}', "PublicIP is None"),
        ('{"PublicIP":"2001:db8::1"}', "PublicIP is '2001:db8::1'"),
        ('{"PublicIP":"node1"}', "PublicIP is 'node1'"),
        ('{"PublicIP":"01.2.3.4"}', "PublicIP is '01.2.3.4'"),
        ('{"PublicIP":16909060}', "PublicIP is 16909060"),
        ('{"PublicIP":"1.2.3.4","PublicIPv6":"1.2.3.4"}', "PublicIPv6 is '1.2.3.4'"),
        ('{"PublicIP":"1.2.3.4","PublicIPv6":7}', "PublicIPv6 is 7"),
        ('{"PublicIP":"1.2.3.4","PublicIPv6":"fd00::3%eth0"}', "PublicIPv6 is 'fd00::3%eth0'"),
        ('{"PublicIP":"1.2.3.4","BackendType":{}}', "BackendType is {}"),
        ("[]", "the value is a JSON list"),
        ('"text"', "the value is a JSON str"),
        ("", "not JSON"),
        ('{"PublicIP":"1.2.3.4"} x', "not JSON"),
        ('{"PublicIP":"1.2.3.4","BackendData":{"VNI":NaN}}', "not JSON: JSON is malformed: invalid character"),
        ('{"PublicIP":"1.2.3.4","BackendData":{"VNI":1e999}}', "not JSON: Number out of range"),
        ('{"PublicIP":"1.2.3.4","BackendType":"\\ud800"}', "not JSON"),
        ('{"publicip":"1.2.3.4","BackendData":{"\\udfff":1}}', "not JSON"),
        ('{"PublicIP":"' + "9" * 3000 + '"}', "..."),
        ('{"PublicIP":"10.0.0.1","BackendData":"' + "x" * 4096 + '"}', "the value has 4136 bytes"),
        ("[" * 4000, "nested too deeply"),
        ('{"x":' * 800, "nested too deeply"),
        ('{"BackendData":' + "[" * 65 + "]" * 65 + "}", "nested too deeply"),
    ],
)
def test_value_that_upstream_rejects_is_a_peer_error(value, seen):
    with pytest.raises(PeerError) as raised:
        decode_attrs(value.encode(), "10.5.1.0-24")
    [problem] = raised.value.problems
    assert seen in problem.seen
    assert (problem.code, problem.where) == ("ADDR-002", "lease 10.5.1.0-24")
    assert len(str(problem)) < 400


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)
ATTRS = st.builds(
    LeaseAttrs,
    public_ip=st.integers(1, 2**32 - 1).map(IPv4Address) | st.none(),
    public_ipv6=st.integers(0, 2**128 - 1).map(IPv6Address) | st.none(),
    backend=st.text(st.characters(exclude_categories=["Cs"])),
    data=JSON,
    data_v6=JSON,
    policies=st.sampled_from(get_args(PolicyMode)),
)


@given(ATTRS)
def test_value_round_trips(attrs):
    value = encode_attrs(attrs)
    assert decode_attrs(value, "lease") == attrs
    assert not set("<>&\u2028\u2029") & set(value.decode())
    assert json.loads(value).keys() >= {"PublicIP", "PublicIPv6"}


JUNK = st.binary(max_size=200) | st.builds(
    lambda name, field: json.dumps({name: field}).encode(),
    st.sampled_from(["PublicIP", "publicip", "PublicIPv6", "BackendType", "BackendData", "BackendV6Data", "x"]),
    JSON,
)
WRITTEN = ATTRS.map(encode_attrs)
BENT_VALUES = bent_json(WRITTEN.map(json.loads), JSON).map(lambda value: json.dumps(value).encode())


@reaches(lease=0.12, value_refused=0.08, key_refused=0.05)
@given(
    mostly(IDS, ODD_KEYS),
    mostly(st.one_of(WRITTEN, BENT_VALUES, bent_bytes(WRITTEN)), JUNK),
    st.integers(0, 2**63 - 1),
)
def test_any_entry_is_a_lease_or_a_peer_error(name, value, created):
    try:
        lease = decode_lease(name, value, created)
    except PeerError as error:
        reached("key_refused" if "the key" in error.problems[0].seen else "value_refused")
        assert len(str(error)) < 600  # noqa: PT017 one bad entry must not flood the log
    else:
        reached("lease")
        assert lease.id == name
        assert lease.subnets


def test_a_lease_is_read_whole():
    value = b'{"PublicIP":"1.2.3.4","PublicIPv6":null}'
    expected = Lease(
        id="10.5.1.0-24&fd00::-64",
        v4=IPv4Network("10.5.1.0/24"),
        v6=IPv6Network("fd00::/64"),
        attrs=LeaseAttrs(public_ip=A),
        created=7,
    )
    assert decode_lease("10.5.1.0-24&fd00::-64", value, 7) == expected


@pytest.mark.spec("flannel.md 11.3/empty-v6")
def test_a_v6_net_is_empty_only_when_it_is_everything():
    assert parse_id("10.5.1.0-24")[1] is None
    assert parse_id("10.5.1.0-24&::-0")[1] is None
    assert parse_id("10.5.1.0-24&::-64")[1] == ip_network("::/64")


@given(st.integers(0, 2**32 - 1))
def test_quick_reading_of_ipv4_agrees_with_the_library(number):
    address = IPv4Address(number)
    read = decode_attrs(json.dumps({"PublicIP": str(address)}).encode(), "lease").public_ip
    assert read == (address if number else None)


@reaches(address=0.1, refused=0.2)
@given(
    mostly(
        bent_bytes(st.ip_addresses(v=4).map(lambda ip: str(ip).encode())).map(lambda raw: raw.decode("latin-1")),
        st.from_regex(r"\A[0-9. +_x]{5,16}\Z"),
    )
)
def test_quick_reading_of_ipv4_accepts_nothing_more(text):
    try:
        address = ip_address(text)
    except ValueError:
        reached("refused")
        with pytest.raises(PeerError):
            decode_attrs(json.dumps({"PublicIP": text}).encode(), "lease")
    else:
        reached("address")
        assert decode_attrs(json.dumps({"PublicIP": text}).encode(), "lease").public_ip == (
            address if int(address) else None
        )


def test_a_key_of_a_million_digits_is_refused_at_once():
    start = time.process_time()
    with pytest.raises(PeerError, match="the key is no subnet"):
        parse_id("1" * 1_000_000)
    assert time.process_time() - start < 0.5


def test_numbers_of_a_back_end_that_we_do_not_know_stay():
    assert decode_attrs(b'{"PublicIP":"1.2.3.4","BackendData":{"weight":1.5,"id":7}}', "lease").data == {
        "weight": 1.5,
        "id": 7,
    }
