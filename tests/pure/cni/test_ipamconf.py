"""host-local's configuration: which are accepted, what is made of them, and the words for the others."""

from ipaddress import ip_address, ip_interface

import pytest

from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError


def spec(*rows):
    return pytest.mark.spec(*(f"cni.md {row}" for row in rows))


def parse(ipam, *, version="1.0.0", args="", **config):
    return ipamconf.parse({"name": "net", "ipam": ipam, **config}, version, args)


def single(subnet, **more):
    [[one]] = parse({"subnet": subnet, **more}).sets
    return one


def refused(ipam, message, **config):
    with pytest.raises((CniError, JsonError)) as caught:
        parse(ipam, **config)
    assert str(caught.value) == message
    assert isinstance(caught.value, JsonError) or caught.value.code == 999


@pytest.mark.spec("cni.md H1", cases="192.0.2.0/24-*")
@pytest.mark.spec("cni.md H2", cases="192.0.2.0/25-*")
@pytest.mark.spec("cni.md H3", cases="2001*")
@pytest.mark.parametrize(
    "subnet, first, last, gateway",
    [
        ("192.0.2.0/24", "192.0.2.1", "192.0.2.254", "192.0.2.1"),
        ("192.0.2.0/25", "192.0.2.1", "192.0.2.126", "192.0.2.1"),
        ("2001:db8:1::/64", "2001:db8:1::1", "2001:db8:1::ffff:ffff:ffff:ffff", "2001:db8:1::1"),
    ],
)
def test_what_a_subnet_alone_means(subnet, first, last, gateway):
    one = single(subnet)
    assert (one.first, one.last, one.gateway) == (ip_address(first), ip_address(last), ip_address(gateway))


@pytest.mark.spec("cni.md H4")
@pytest.mark.spec("cni.md 4.2/host-bits", cases="192.0.2.12/24-*")
@pytest.mark.parametrize(
    "subnet, length, network",
    [
        ("192.0.2.12/24", 24, "192.0.2.0"),
        ("192.168.127.0/23", 23, "192.168.126.0"),
        ("2001:db8:24:19ff::/63", 63, "2001:db8:24:19fe::"),
    ],
)
def test_a_subnet_with_host_bits(subnet, length, network):
    refused(
        {"subnet": subnet},
        "invalid range set 0: Network has host bits set. "
        f"For a subnet mask of length {length} the network address is {network}",
    )


@pytest.mark.spec("cni.md 4.2/too-small")
@pytest.mark.spec("cni.md H5", cases=("192.0.2.0/31", "fd00::/127"))
@pytest.mark.parametrize("subnet", ["192.0.2.0/31", "192.0.2.0/32", "fd00::/127", "fd00::/128"])
def test_a_subnet_that_is_too_small(subnet):
    refused({"subnet": subnet}, f"invalid range set 0: Network {subnet} too small to allocate from")


@pytest.mark.parametrize(
    "bounds, message",
    [
        pytest.param({"rangeStart": "192.0.3.0"}, "RangeStart 192.0.3.0", marks=spec("H6", "4.2/start-outside")),
        pytest.param({"rangeEnd": "192.0.4.0"}, "RangeEnd 192.0.4.0", marks=spec("H6", "4.2/end-outside")),
        pytest.param({"rangeStart": "fd00::1"}, "RangeStart fd00::1", marks=spec("4.2/start-outside")),
    ],
)
def test_bounds_outside(bounds, message):
    refused({"subnet": "192.0.2.0/24", **bounds}, f"invalid range set 0: {message} not in network 192.0.2.0/24")


@pytest.mark.parametrize(
    "bounds, message, first, last",
    [
        pytest.param(
            {"rangeStart": "192.0.2.50", "rangeEnd": "192.0.2.40"},
            "RangeStart 192.0.2.50",
            "192.0.2.50",
            "192.0.2.40",
            marks=spec("H6", "4.2/start-after-end"),
        ),
        ({"rangeEnd": "192.0.2.0"}, "RangeEnd 192.0.2.0", "192.0.2.1", "192.0.2.0"),
        ({"rangeStart": "192.0.2.255"}, "RangeStart 192.0.2.255", "192.0.2.255", "192.0.2.254"),
    ],
)
def test_a_range_that_runs_backward(bounds, message, first, last):
    with pytest.raises(CniError) as refusal:
        parse({"subnet": "192.0.2.0/24", **bounds})
    assert refusal.value.msg == f"invalid range set 0: {message} not in network 192.0.2.0/24"
    assert refusal.value.details == f"the range runs backward, from {first} to {last}"


@pytest.mark.parametrize(
    "subnet, gateway, message",
    [
        ("10.0.0.0/24", "fd00::1", '"gateway" fd00::1 is IPv6, and its range 10.0.0.0/24 is IPv4'),
        ("fd00:5::/64", "10.9.0.1", '"gateway" 10.9.0.1 is IPv4, and its range fd00:5::/64 is IPv6'),
    ],
)
def test_a_gateway_of_the_other_family(subnet, gateway, message):
    refused({"subnet": subnet, "gateway": gateway}, f"invalid range set 0: {message}")
    refused(
        {"ranges": [[{"subnet": "10.77.0.0/16"}], [{"subnet": subnet, "gateway": gateway}]]},
        f"invalid range set 1: {message}",
    )


@pytest.mark.parametrize("subnet", ["224.0.1.0/24", "127.8.0.0/16", "ff05::/64", "::ffff:10.9.0.0/120"])
def test_a_subnet_whose_addresses_nobody_reaches(subnet):
    said = f"{ip_interface(subnet)}: it is multicast, loopback, unspecified or IPv4-mapped"
    refused({"subnet": subnet}, f"invalid range set 0: no pod is reached at {said}")


@pytest.mark.parametrize("dst, gw", [("0.0.0.0/0", "fd00::1"), ("fd00::/8", "10.0.0.1")])
def test_a_route_by_a_gateway_of_the_other_family(dst, gw):
    families = (6, 4) if ":" in gw else (4, 6)
    refused(
        {"subnet": "10.0.0.0/24", "routes": [{"dst": dst, "gw": gw}]},
        f'route to {dst}: "gw" {gw} is IPv{families[0]}, and must be IPv{families[1]}',
    )


def test_bounds_may_be_network_and_broadcast_address():
    one = single("10.0.0.0/24", rangeStart="10.0.0.0", rangeEnd="10.0.0.255")
    assert (str(one.first), str(one.last)) == ("10.0.0.0", "10.0.0.255")


@pytest.mark.spec("cni.md H7")
def test_the_order_of_range_sets():
    conf = parse(
        {"subnet": "10.1.2.0/24", "ranges": [[{"subnet": "10.1.3.0/24"}], [{"subnet": "fd00::/64"}]]},
        runtimeConfig={"ipRanges": [[{"subnet": "10.1.1.0/24"}]]},
    )
    assert [str(ranges[0].subnet) for ranges in conf.sets] == ["10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24", "fd00::/64"]


@pytest.mark.spec("cni.md H8")
@pytest.mark.parametrize("text", ["10.1.2.10", "10.1.2.10/24"])
def test_addresses_asked_for_by_arguments(text):
    conf = parse({"subnet": "10.1.2.0/24"}, args=f"IP={text}")
    assert conf.requested == (ip_address("10.1.2.10"),)


@pytest.mark.spec("cni.md H8")
def test_addresses_asked_for_by_both_kinds_of_arguments():
    config = {
        "name": "net",
        "ipam": {"subnet": "10.1.2.0/24"},
        "args": {"cni": {"ips": ["10.1.2.11", "11.11.11.11", "2001:db8:1::11"]}},
    }
    requested = ipamconf.parse(config, "1.0.0", "IP=10.1.2.10").requested
    assert [str(ip) for ip in requested] == ["10.1.2.10", "10.1.2.11", "11.11.11.11", "2001:db8:1::11"]


@pytest.mark.spec("cni.md H9")
def test_addresses_asked_for_by_the_runtime():
    conf = parse(
        {"subnet": "192.168.0.0/24"}, runtimeConfig={"ips": ["192.168.0.1", "192.168.0.5/24", "2001:db8::1/64"]}
    )
    assert [str(ip) for ip in conf.requested] == ["192.168.0.1", "192.168.0.5", "2001:db8::1"]


@pytest.mark.spec("cni.md H10", "cni.md 4.2/sets-overlap")
def test_sets_that_overlap():
    sets = [
        ["10.1.2.0/24", "10.2.2.0/24"],
        ["10.1.4.0/24", "10.1.6.0/24", "10.1.8.0/24", "10.1.2.0/24"],
    ]
    ranges = [[{"subnet": subnet} for subnet in subnets] for subnets in sets]
    refused({"ranges": ranges}, "range set 0 overlaps with 1")


@pytest.mark.spec("cni.md H11", "cni.md 4.2/overlap-in-set")
def test_ranges_of_a_set_that_overlap():
    refused(
        {"ranges": [[{"subnet": "10.1.0.0/22"}, {"subnet": "10.1.2.0/24"}]]},
        "invalid range set 0: subnets 10.1.0.1-10.1.3.254 and 10.1.2.1-10.1.2.254 overlap",
    )


@pytest.mark.spec("cni.md H12", "cni.md 4.2/mixed-families")
def test_a_set_of_two_families():
    refused(
        {"ranges": [[{"subnet": "10.1.0.0/22"}, {"subnet": "2001:db8:5::/64"}]]},
        "invalid range set 0: mixed address families",
    )


@pytest.mark.spec("cni.md H13", "cni.md 4.2/versions-below-0.3.0")
def test_old_versions_have_one_address_of_a_family():
    two = {"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}]]}
    refused(two, "CNI version 0.2.0 does not support more than 1 address per family", version="0.2.0")
    assert len(parse(two, version="0.3.0").sets) == 2
    mixed = {"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}
    assert len(parse(mixed, version="0.2.0").sets) == 2


@pytest.mark.spec("cni.md H14")
def test_two_parts_of_one_subnet():
    def parts(start):
        low = {"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.127"}
        return {"ranges": [[low], [{"subnet": "10.1.0.0/24", "rangeStart": start}]]}

    assert len(parse(parts("10.1.0.128")).sets) == 2
    refused(parts("10.1.0.127"), "range set 0 overlaps with 1")


@pytest.mark.spec("cni.md H15")
def test_families_never_overlap():
    assert len(parse({"ranges": [[{"subnet": "0.0.0.0/24"}], [{"subnet": "::/24"}]]}).sets) == 2


@pytest.mark.spec("cni.md H16")
def test_a_gateway_elsewhere():
    one = single("10.0.0.0/24", gateway="192.168.1.1")
    assert (str(one.gateway), str(one.first)) == ("192.168.1.1", "10.0.0.1")


@pytest.mark.spec("cni.md 4.2/no-ipam")
def test_no_ipam():
    with pytest.raises(CniError) as caught:
        ipamconf.parse({"name": "net"}, "1.0.0", "")
    assert (caught.value.code, caught.value.msg) == (999, "IPAM config missing 'ipam' key")


def test_what_del_and_status_read():
    assert ipamconf.data_dir({"ipam": {"dataDir": "/d", "ranges": 5}}) == "/d"
    assert ipamconf.data_dir({"ipam": {}}) == ipamconf.DATA_DIR
    [[one]] = ipamconf.parse_sets({"ipam": {"ranges": [[{"subnet": "10.1.0.0/24"}]], "routes": 5}}, "1.0.0")
    assert str(one.subnet) == "10.1.0.0/24"
    assert ipamconf.parse_sets({"ipam": {}}, "1.0.0") == ()


@pytest.mark.spec("cni.md 4.2/no-ranges", "cni.md 4.2/empty-set")
def test_no_ranges():
    refused({}, "no IP ranges specified")
    refused({"ranges": []}, "no IP ranges specified")
    refused({"ranges": [[{"subnet": "10.1.0.0/24"}], []]}, "invalid range set 1: empty range set")


@pytest.mark.spec("cni.md 4.2/address-syntax")
@pytest.mark.parametrize(
    "ipam, config, message",
    [
        ({"subnet": "10.1.0/24"}, {}, "invalid CIDR address: 10.1.0/24"),
        ({"subnet": "10.1.0.0/24", "gateway": "x"}, {}, "invalid IP address: x"),
        ({"subnet": "10.1.0.0/24"}, {"runtimeConfig": {"ips": ["y"]}}, "invalid IP address y"),
        ({"ranges": [{"subnet": "10.1.0.0/24"}]}, {}, "cannot use an object as ranges[0] (expected a list)"),
        ({"subnet": 3}, {}, "cannot use an integer as subnet (expected a string)"),
    ],
)
def test_addresses_that_are_none(ipam, config, message):
    refused(ipam, message, **config)


@pytest.mark.spec("cni.md E10")
def test_resolv_conf():
    text = """
    # comment
    ; another
    nameserver 192.0.2.3
    nameserver 192.0.2.4 ignored
    domain first
    domain example.com
    search a b
    search c
    options one
    options two three
    sortlist 10.0.0.0
    nameserver
    """
    dns = ipamconf.parse_resolv_conf(text)
    assert dns.nameservers == ("192.0.2.3", "192.0.2.4")
    assert dns.domain == "example.com"
    assert dns.search == ("a", "b", "c")
    assert dns.options == ("one", "two", "three")


def test_a_set_as_messages_name_it():
    [ranges] = parse({"ranges": [[{"subnet": "10.1.0.0/30"}, {"subnet": "10.2.0.0/30"}]]}).sets
    assert ipamconf.describe(ranges) == "10.1.0.1-10.1.0.2,10.2.0.1-10.2.0.2"
