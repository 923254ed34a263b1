"""Results of every version, read and written."""

import json
from ipaddress import ip_interface

import pytest

from weft.model.attachment import IpConfig, Result, RouteConfig
from weft.wire import cnijson, cniresult
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError
from weft.wire.cnivalue import decode, encode

S = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {
            "name": "eth0",
            "mac": "00:11:22:33:44:55",
            "mtu": 1500,
            "sandbox": "/proc/3553/ns/net",
            "socketPath": "/path/to/vhost/fd",
            "pciID": "8086:9a01",
        }
    ],
    "ips": [
        {"interface": 0, "address": "1.2.3.30/24", "gateway": "1.2.3.1"},
        {"interface": 0, "address": "abcd:1234:ffff::cdde/64", "gateway": "abcd:1234:ffff::1"},
    ],
    "routes": [
        {"dst": "15.5.6.0/24", "gw": "15.5.6.8"},
        {"dst": "1111:dddd::/80", "gw": "1111:dddd::aaaa"},
    ],
    "dns": {"nameservers": ["1.2.3.4", "1::cafe"], "domain": "acompany.com", "search": ["a"], "options": ["foo"]},
}


def convert(obj, to):
    return cniresult.to_json(cniresult.read(obj, obj.get("cniVersion", "")), to)


@pytest.mark.spec("cni.md R1")
def test_the_newest_prints_everything():
    assert convert(S, "1.1.0") == S
    printed = cniresult.render(cniresult.read(S, "1.1.0"), "1.1.0")
    assert json.loads(printed) == S
    assert printed.startswith(b'{\n    "cniVersion"')
    assert not printed.endswith(b"\n")


@pytest.mark.spec("cni.md R2")
def test_there_and_back_between_1_0_and_1_1():
    assert convert(convert(S, "1.0.0"), "1.1.0") == S


@pytest.mark.spec("cni.md R3")
@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
def test_lists_with_versions(version):
    old = convert(S, version)
    assert old["cniVersion"] == version
    assert [ip["version"] for ip in old["ips"]] == ["4", "6"]
    assert old["interfaces"] == [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/proc/3553/ns/net"}]
    back = convert(old, "1.1.0")
    assert back["ips"] == S["ips"]
    assert back["routes"] == S["routes"]


@pytest.mark.spec("cni.md R4", cases=("0.1.0-*", "0.2.0-*"))
@pytest.mark.spec("cni.md R8", cases="-0.1.0")
@pytest.mark.parametrize("version, printed", [("0.1.0", "0.1.0"), ("0.2.0", "0.2.0"), ("", "0.1.0")])
def test_blocks(version, printed):
    assert convert(S, version) == {
        "cniVersion": printed,
        "ip4": {
            "ip": "1.2.3.30/24",
            "gateway": "1.2.3.1",
            "routes": [{"dst": "15.5.6.0/24", "gw": "15.5.6.8"}],
        },
        "ip6": {
            "ip": "abcd:1234:ffff::cdde/64",
            "gateway": "abcd:1234:ffff::1",
            "routes": [{"dst": "1111:dddd::/80", "gw": "1111:dddd::aaaa"}],
        },
        "dns": S["dns"],
    }


@pytest.mark.spec("cni.md R5")
def test_0_1_and_0_2_differ_by_their_number():
    old = convert(S, "0.1.0")
    assert convert(old, "0.2.0") == old | {"cniVersion": "0.2.0"}


@pytest.mark.spec("cni.md R6")
@pytest.mark.parametrize("routes", [[{"dst": "15.5.6.0/24", "gw": "15.5.6.8"}], [{"dst": "15.5.6.0/24"}]])
def test_blocks_through_lists_and_back(routes):
    old = {"cniVersion": "0.2.0", "ip4": {"ip": "1.2.3.30/24", "routes": routes}, "dns": {}}
    assert convert(convert(old, "0.4.0"), "0.2.0") == old


@pytest.mark.spec("cni.md R7")
def test_no_addresses_make_no_blocks():
    with pytest.raises(CniError, match=r"^cannot convert: no valid IP addresses$"):
        convert({"cniVersion": "0.3.1"}, "0.2.0")


@pytest.mark.spec("cni.md R9")
def test_the_index_0_is_kept_and_none_is_none():
    with_index = {"cniVersion": "1.0.0", "ips": [{"interface": 0, "address": "10.1.2.3/24"}]}
    without = {"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}]}
    assert convert(with_index, "1.0.0") == with_index
    assert convert(without, "1.0.0") == without


@pytest.mark.spec("cni.md R10")
def test_an_address_that_is_a_number():
    with pytest.raises(CniError, match=r"cannot use an integer as address"):
        cniresult.read({"cniVersion": "1.0.0", "ips": [{"address": 5}]}, "1.0.0")


@pytest.mark.spec("cni.md R11")
def test_no_version_at_all_is_0_1_0():
    old = {"cniVersion": "", "ip4": {"ip": "1.2.3.30/24"}}
    assert convert(old, "") == {"cniVersion": "0.1.0", "ip4": {"ip": "1.2.3.30/24"}, "dns": {}}


@pytest.mark.spec("cni.md R12")
def test_a_version_that_nobody_knows():
    with pytest.raises(CniError, match=r'^unsupported CNI result version "7\.0\.0"$'):
        cniresult.read({}, "7.0.0")
    with pytest.raises(CniError, match=r"^no converter for CNI result version 1\.1\.0 to 7\.0\.0$"):
        cniresult.to_json(Result(), "7.0.0")


@pytest.mark.spec("cni.md R13")
@pytest.mark.parametrize("own", ["0.2.0", "5678.456"])
def test_a_previous_result_of_another_family(own):
    with pytest.raises(CniError) as caught:
        cniresult.read_previous({"prevResult": {"cniVersion": own, "ips": []}}, "1.1.0")
    assert caught.value.msg == (
        f'could not parse prevResult: result type supports [1.0.0 1.1.0] but unmarshalled CNIVersion is "{own}"'
    )


@pytest.mark.spec("cni.md R14")
def test_a_previous_result_without_a_version_has_the_requests():
    found = cniresult.read_previous({"prevResult": {"ips": [{"address": "1.2.3.4/24"}]}}, "1.0.0")
    assert found is not None
    assert str(found.ips[0].address) == "1.2.3.4/24"


def test_no_previous_result():
    assert cniresult.read_previous({}, "1.0.0") is None


@pytest.mark.spec("cni.md R15")
def test_only_the_first_address_of_a_family_fits_a_block():
    two = {"cniVersion": "0.4.0", "ips": [{"address": "1.2.3.4/24"}, {"address": "1.2.3.5/24"}]}
    assert convert(two, "0.2.0")["ip4"] == {"ip": "1.2.3.4/24"}


@pytest.mark.spec("cni.md R16")
def test_empty_dns():
    assert convert({"cniVersion": "0.4.0"}, "0.4.0") == {"cniVersion": "0.4.0", "dns": {}}
    assert convert({"cniVersion": "1.1.0"}, "1.1.0") == {"cniVersion": "1.1.0"}


@pytest.mark.spec("cni.md G8")
def test_a_route_with_everything():
    route = {"dst": "1.2.3.0/24", "gw": "1.2.3.1", "mtu": 1500, "advmss": 1340, "priority": 100, "table": 50}
    route["scope"] = 253
    assert encode(decode(RouteConfig, route)) == route
    zero = {"dst": "1.2.3.0/24", "table": 0, "scope": 0}
    assert encode(decode(RouteConfig, zero)) == zero


@pytest.mark.spec("cni.md G9")
def test_a_gateway_that_is_no_address():
    with pytest.raises(JsonError, match=r"^invalid IP address: 1\.2\.3\.x$"):
        decode(RouteConfig, {"dst": "1.2.3.0/24", "gw": "1.2.3.x"})


@pytest.mark.spec("cni.md G7")
@pytest.mark.parametrize("text", ["1.2.3.4/24", "2001:db8::/32"])
def test_prefixes_that_are_read(text):
    assert str(cnijson.parse_cidr(text)) == text


@pytest.mark.spec("cni.md G7")
@pytest.mark.parametrize("text", ["1.2.3/45", "1.2.3.4/99", "1.2.3.4", "1.2.3.4/255.0.0.0", "1.2.3.4/", "01.2.3.4/8"])
def test_prefixes_that_are_refused(text):
    with pytest.raises(JsonError, match=r"^invalid CIDR address: "):
        cnijson.parse_cidr(text)


@pytest.mark.spec("cni.md G11")
@pytest.mark.parametrize("text", ["192.168.0.1", "192.168.0.1/24", "2001:db8::1/64", ""])
def test_addresses_with_or_without_a_prefix(text):
    found = cnijson.parse_ip_or_cidr(text)
    assert str(found or "") == text.partition("/")[0]


@pytest.mark.spec("cni.md G11")
@pytest.mark.parametrize("text", ["192.168.0.1000", "2001:db8::1/256", "test", "fe80::1%eth0"])
def test_addresses_that_are_refused(text):
    with pytest.raises(JsonError) as caught:
        cnijson.parse_ip_or_cidr(text)
    assert str(caught.value) == f"invalid IP address {text}"


def test_keys_match_in_any_case_and_the_last_one_wins():
    config = cnijson.load(b'{"MTU": 1, "mtu": 2, "Mtu": null, "unknown": {}}')
    assert cnijson.integer(config, "mtu") == 2
    assert cnijson.integer(cnijson.load(b'{"mtu": 1, "MTU": 2, "mtu": 3}'), "mtu") == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'"x"',
        b"\xff",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"[" * 100000,
        b'{"a": ' + b"1" * 5000 + b"}",
    ],
)
def test_what_is_no_object(text):
    with pytest.raises(JsonError):
        cnijson.load(text)


@pytest.mark.parametrize(
    "key, read",
    [("s", cnijson.integer), ("s", cnijson.flag), ("b", cnijson.integer), ("f", cnijson.integer), ("n", cnijson.text)],
)
def test_another_type_names_the_key(key, read):
    with pytest.raises(JsonError, match=f"as {key} "):
        read({"s": "x", "b": True, "f": 1.5, "n": 1}, key)


def test_numbers_with_a_fraction_are_read():
    assert cnijson.load(b'{"a": 1.5}') == {"a": 1.5}


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1])
def test_numbers_of_more_than_64_bits_are_refused(number: int):
    with pytest.raises(JsonError, match=r"as n \(expected an integer from -9223372036854775808 to"):
        cnijson.integer({"n": number}, "n")
    assert cnijson.integer({"n": number // 2}, "n") == number // 2


def test_limits_do_not_exclude_the_default():
    assert cnijson.as_integer(0, "n", least=1, most=5) == 0
    with pytest.raises(JsonError, match="from 1 to 5"):
        cnijson.as_integer(6, "n", least=1, most=5)


@pytest.mark.parametrize(
    "key, number",
    [("scope", 256), ("scope", -1), ("table", 1 << 32), ("table", -1), ("mtu", -1), ("priority", 1 << 32)],
)
def test_routes_that_the_kernel_has_no_room_for(key: str, number: int):
    with pytest.raises(JsonError, match=f"cannot use {number} as {key}"):
        decode(RouteConfig, {"dst": "10.0.0.0/8", key: number})


@pytest.mark.parametrize("address", ["224.0.0.5/24", "127.1.0.2/16", "0.0.0.0/8", "::ffff:10.9.0.5/120", "ff05::5/64"])
def test_an_address_at_which_nobody_reaches_a_pod_is_no_result(address):
    good = IpConfig(address=ip_interface("10.9.0.5/24"))
    cniresult.check_usable([good, IpConfig(address=ip_interface("fe80::5/64"))])
    with pytest.raises(CniError, match=f"no pod is reached at {ip_interface(address)}: it is multicast"):
        cniresult.check_usable([good, IpConfig(address=ip_interface(address))])
