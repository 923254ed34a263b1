"""static's configuration. Each case stands beside upstream's in tests/kernel/test_cni_static.py; here, the branches."""

from ipaddress import ip_address, ip_interface

import pytest

from weft.cni.plugins import static
from weft.model.attachment import Dns, IpConfig, RouteConfig
from weft.wire.cni import CniError

ONE = IpConfig(address=ip_interface("10.0.0.1/24"))


def parse(ipam, *, version="1.0.0", args="", **more):
    return static.parse({"ipam": ipam, **more}, version, args)


def refused(ipam, **more):
    with pytest.raises(CniError) as caught:
        parse(ipam, **more)
    return caught.value.msg


def test_addresses_routes_and_dns():
    conf = parse(
        {
            "addresses": [{"address": "10.0.0.1/24", "gateway": "10.0.0.254"}, {"address": "fd00::1/64"}],
            "routes": [{"dst": "1.2.3.0/24"}],
            "dns": {"domain": "d"},
        }
    )
    assert conf.ips == (
        IpConfig(address=ip_interface("10.0.0.1/24"), gateway=ip_address("10.0.0.254")),
        IpConfig(address=ip_interface("fd00::1/64")),
    )
    assert conf.routes == (RouteConfig(dst=ip_interface("1.2.3.0/24")),)
    assert conf.dns == Dns(domain="d")


def test_who_counts_most():
    ipam = {"addresses": [{"address": "10.0.0.9/24"}]}
    assert [str(one.address) for one in parse(ipam, args="IP=10.0.0.1/24").ips] == ["10.0.0.9/24", "10.0.0.1/24"]
    runtime = {"runtimeConfig": {"ips": ["10.0.0.1/24"]}}
    assert parse(ipam, args="IP=10.0.0.2/24", **runtime).ips == (ONE,)


def test_gateways_of_the_environment():
    [first, second] = parse({}, args="IP=10.0.0.1/24,fd00::1/64;GATEWAY=10.0.0.254").ips
    assert (first.gateway, second.gateway) == (ip_address("10.0.0.254"), None)


def test_what_is_refused():
    assert refused(None) == "IPAM config missing 'ipam' key"
    assert refused({"addresses": [{"address": "x"}]}).endswith("CIDR notation, got: 'x'")
    assert refused({}, args="IP=10.0.0.1/24;GATEWAY=zz") == "invalid gateway address: zz"
    two = {"addresses": [{"address": "10.0.0.1/24"}, {"address": "10.0.0.2/24"}]}
    assert refused(two, version="0.2.0") == "CNI version 0.2.0 does not support more than 1 address per family"
    assert len(parse(two, version="0.3.0").ips) == 2
    assert parse({"addresses": [{"address": "10.0.0.1/24"}]}, version="0.1.0").ips == (ONE,)
