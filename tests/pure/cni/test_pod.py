"""Gateways, routes and addresses of one attachment."""

from functools import partial
from ipaddress import ip_address, ip_interface

import pytest

from weft.cni.attachment import pod
from weft.model.attachment import Interface, IpConfig, Result, RouteConfig
from weft.model.value import replace

INTERFACES = (Interface(name="cni0"), Interface(name="veth0"), Interface(name="eth0", sandbox="/x"))
IP = IpConfig(address=ip_interface("10.1.2.2/24"), gateway=ip_address("10.1.2.1"), interface=2)


@pytest.mark.spec("cni.md B35")
@pytest.mark.parametrize("index", [1, 3, -1])
def test_an_address_of_another_interface(index):
    result = Result(interfaces=INTERFACES, ips=(replace(IP, interface=index),))
    message = r'^failed to add IP addr 10\.1\.2\.2/24 to "eth0": invalid interface index$'
    with pytest.raises(pod.Unfit, match=message):
        pod.addresses_of(result, "eth0")


@pytest.mark.spec("cni.md B35")
def test_a_link_that_no_interface_is():
    message = r'^failed to add IP addr 10\.1\.2\.2/24 to "eth9": invalid interface index$'
    with pytest.raises(pod.Unfit, match=message):
        pod.addresses_of(Result(interfaces=INTERFACES, ips=(IP,)), "eth9")


@pytest.mark.spec("cni.md B35")
def test_no_interfaces():
    with pytest.raises(pod.Unfit, match=r"^no interfaces to configure$"):
        pod.addresses_of(Result(ips=(IP,)), "eth0")


@pytest.mark.spec("cni.md B35")
def test_an_address_without_an_interface_is_nobodys():
    assert pod.addresses_of(Result(interfaces=INTERFACES, ips=(replace(IP, interface=None), IP)), "eth0") == (
        IP.address,
    )


def test_gateways_that_ipam_has_not_named():
    bare = Result(ips=(IpConfig(address=ip_interface("10.1.2.7/24")), IpConfig(address=ip_interface("fd00::7/64"))))
    plain = pod.with_gateways(bare, is_gateway=False, is_default=False)
    assert [ip.gateway for ip in plain.ips] == [None, None]
    assert [ip.interface for ip in plain.ips] == [2, 2]
    as_gateway = pod.with_gateways(bare, is_gateway=True, is_default=False)
    assert [str(ip.gateway) for ip in as_gateway.ips] == ["10.1.2.1", "fd00::1"]
    assert [str(one) for one in pod.gateway_addresses(as_gateway)] == ["10.1.2.1/24", "fd00::1/64"]
    assert as_gateway.routes == ()


def test_default_routes_are_added_once_for_each_family():
    complete = partial(pod.with_gateways, is_gateway=True, is_default=True)
    second = IpConfig(address=ip_interface("10.1.3.2/24"), gateway=ip_address("10.1.3.1"))
    six = IpConfig(address=ip_interface("fd00::2/64"), gateway=ip_address("fd00::1"))
    routes = complete(Result(ips=(IP, second, six))).routes
    assert [(str(route.dst), str(route.gw)) for route in routes] == [("0.0.0.0/0", "10.1.2.1"), ("::/0", "fd00::1")]
    for gateway in (None, ip_address("10.1.2.9")):
        given = RouteConfig(dst=ip_interface("0.0.0.0/0"), gw=gateway)
        assert complete(Result(ips=(IP,), routes=(given,))).routes == (given,)


def test_a_route_without_a_gateway_takes_its_familys_first():
    routes = (
        RouteConfig(dst=ip_interface("10.0.0.0/8")),
        RouteConfig(dst=ip_interface("fd01::/64")),
        RouteConfig(dst=ip_interface("10.2.0.7/16"), gw=ip_address("10.1.2.9"), mtu=1300, table=0, scope=253),
    )
    first, second, third = pod.routes_of(Result(ips=(IP,), routes=routes))
    assert (first.gw, second.gw) == (ip_address("10.1.2.1"), None)
    assert (third.gw, third.mtu, third.table, third.scope) == (ip_address("10.1.2.9"), 1300, 0, 253)


@pytest.mark.parametrize(
    "want, have, remove, add",
    [
        ("10.1.2.3/16", [], [], True),
        ("10.1.2.3/16", ["10.1.2.3/16", "10.0.0.1/8"], [], False),
        ("10.1.2.3/16", ["10.0.0.1/8"], ["10.0.0.1/8"], True),
        ("10.1.2.3/16", ["10.1.2.3/24"], ["10.1.2.3/24"], True),
        ("10.1.2.3/16", ["192.168.0.1/24"], ["192.168.0.1/24"], True),
        ("2001:db8:1:2::1/64", ["2001:db8:1::1/48"], ["2001:db8:1::1/48"], True),
        ("fd00:1234::1/64", ["2001:db8:1:2::1/64", "fe80::1/64", "10.0.0.1/8"], [], True),
    ],
)
def test_how_a_link_gets_an_address(want, have, remove, add):
    wanted, present = ip_interface(want), [ip_interface(one) for one in have]
    change = pod.ensure_address(wanted, present, link="cni0", force=True)
    assert ([str(one) for one in change.remove], change.add) == (remove, add)
    if remove:
        with pytest.raises(pod.Unfit, match=f'^"cni0" already has an IP address different from {want}$'):
            pod.ensure_address(wanted, present, link="cni0", force=False)


def test_addresses_behind_gateways():
    found = pod.behind_gateways(Result(ips=(replace(IP, interface=None),)), 1)
    assert [(ip.interface, ip.gateway) for ip in found.ips] == [(1, IP.gateway)]
    with pytest.raises(pod.Unfit, match=r"^IPAM has named no gateway for 10\.1\.2\.2/24$"):
        pod.behind_gateways(Result(ips=(replace(IP, gateway=None),)), 1)


def test_the_mac_goes_with_the_only_ipv4_address():
    v6 = replace(IP, address=ip_interface("fd00::2/64"), gateway=None)
    assert str(pod.mac_of(Result(ips=(v6, IP)))) == "0a:58:0a:01:02:02"
    assert pod.mac_of(Result(ips=(v6,))) is None
    assert pod.mac_of(Result(ips=(IP, replace(IP, address=ip_interface("10.9.0.3/28"))))) is None
