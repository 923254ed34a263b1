"""The back end ipip: a tunnel, its address, and routes."""

import re
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.support import builders
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, hostgw, ipip
from weft.desired.backends.ipip import IpipLink, IpipOptions
from weft.desired.inputs import Inputs
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Address, Route
from weft.model.lease import LeaseAttrs
from weft.model.value import Value, replace


def own(**how: object) -> Inputs:
    return builders.inputs(1, backend="ipip", **how)  # type: ignore[arg-type]


def test_its_options():
    def parsed(backend: str) -> Value:
        return parse_netconf(f'{{"Network": "10.5.0.0/16", "Backend": {backend}}}', backends=BACKENDS).options

    assert parsed('{"Type": "IPIP"}') == IpipOptions(direct_routing=False)
    assert parsed('{"Type": "ipip", "DirectRouting": true}') == IpipOptions(direct_routing=True)


def test_ipv6_is_refused():
    text = '{"Network": "10.5.0.0/16", "IPv6Network": "fd00::/48", "EnableIPv6": true, "Backend": {"Type": "ipip"}}'
    says = "CONF-002 net-conf: Backend.Type: ipip, with EnableIPv6; expected a back end that carries IPv6, as vxlan or"
    with pytest.raises(ConfigError, match=re.escape(says)):
        parse_netconf(text, backends=BACKENDS)


def test_the_tunnel_and_its_address():
    assert ipip.shared(own()) == {
        IpipLink(name="flannel.ipip", mtu=1480, local=IPv4Address("192.168.0.1")),
        Address(dev="flannel.ipip", ip=IPv4Address("10.5.1.0"), prefixlen=32),
    }
    assert ipip.devices(own()) == (("flannel.ipip", IpipLink, {4}, True),)
    assert str(IpipLink(name="flannel.ipip", mtu=1480, local=IPv4Address("192.168.0.1"))) == (
        "link flannel.ipip ipip local 192.168.0.1 mtu 1480"
    )


def test_before_the_lease_or_without_an_address_there_is_none():
    assert ipip.shared(replace(own(), v4=None)) == frozenset()
    facts = own().facts
    assert ipip.shared(replace(own(), facts=replace(facts, uplink=replace(facts.uplink, v4=None)))) == frozenset()


def test_behind_nat_the_tunnel_has_the_uplinks_address_and_the_lease_the_public_one():
    public = IPv4Address("203.0.113.7")
    inputs = replace(own(), facts=replace(own().facts, public_v4=public))
    assert [thing.local for thing in ipip.shared(inputs) if isinstance(thing, IpipLink)] == [IPv4Address("192.168.0.1")]
    assert ipip.advertise(inputs) == LeaseAttrs(public_ip=public, backend="ipip")


def test_the_outer_header_takes_twenty_bytes():
    assert ipip.mtu(own()) == 1480
    ipip.check(own(uplink_mtu=88))
    says = "MTU-001 MTU of eth0: 87 leaves 67 bytes in the tunnel; expected at least 88. Raise the MTU of the uplink"
    with pytest.raises(ConfigError, match=re.escape(says)):
        ipip.check(own(uplink_mtu=87))


@pytest.mark.parametrize(
    "options, public, dev",
    [
        ({}, None, "flannel.ipip"),
        ({"direct_routing": True}, None, "eth0"),
        ({"direct_routing": True}, IPv4Address("198.51.100.2"), "flannel.ipip"),
    ],
)
def test_a_peers_route(options: dict[str, object], public: IPv4Address | None, dev: str):
    lease = builders.lease(2, ipip, **({} if public is None else {"public_ip": public}))
    via = public or IPv4Address("192.168.0.2")
    assert ipip.peer(own(**options), lease) == {Route(dst=IPv4Network("10.5.2.0/24"), via=via, dev=dev, onlink=True)}


def test_a_peer_that_cannot_be_served():
    with pytest.raises(PeerError, match=r"ADDR-002 lease 10\.5\.2\.0-24: backend 'host-gw'; expected ipip"):
        ipip.peer(own(), builders.lease(2, hostgw))
    lease = builders.lease(2, ipip)
    assert ipip.peer(own(), replace(lease, v4=None)) == frozenset()
    assert ipip.peer(own(), builders.lease(2, ipip, public_ip=None)) == frozenset()
    assert ipip.peer(replace(own(), v4=None), lease) == frozenset()
    with pytest.raises(TypeError, match="ipip got Value"):
        ipip.peer(replace(own(), netconf=replace(own().netconf, options=Value())), lease)
