"""The back end udp: a TUN device, the route of the network, a relay, and who has which subnet."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from tests.support import builders
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, udp, vxlan
from weft.desired.backends.udp import Forward, KernelForward, KernelPath, Relay, TunLink, UdpOptions, Ways
from weft.desired.inputs import Inputs
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Address, Ownership, Route, Sysctl
from weft.model.lease import LeaseAttrs
from weft.model.value import Value, replace

LINK = TunLink(name="flannel0", mtu=1472)
RELAY = Relay(dev="flannel0", local=IPv4Address("192.168.0.1"), port=8285)
PATH = KernelPath(dev="flannel0", uplink="eth0", local=IPv4Address("192.168.0.1"), port=8285)
FORWARD = Forward(dev="flannel0", dst=IPv4Network("10.5.2.0/24"), via=IPv4Address("192.168.0.2"))


def own(**how: object) -> Inputs:
    return builders.inputs(1, backend="udp", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend, port", [('{"Type": "udp"}', 8285), ('{"Type": "UDP", "Port": 9000}', 9000)])
def test_its_options(backend: str, port: int):
    parsed = parse_netconf(f'{{"Network": "10.5.0.0/16", "Backend": {backend}}}', backends=BACKENDS)
    assert parsed.options == UdpOptions(port=port)


def test_without_a_back_end_it_is_udp():
    assert parse_netconf('{"Network": "10.5.0.0/16"}', backends=BACKENDS).backend == "udp"


@pytest.mark.parametrize(
    "text, says",
    [
        (
            '"Backend": {"Type": "udp", "Port": 0}',
            "CONF-002 net-conf: Backend.Port: 0; expected a whole number from 1 to 65535",
        ),
    ],
)
def test_what_is_refused(text: str, says: str):
    with pytest.raises(ConfigError, match=re.escape(says)):
        parse_netconf(f'{{"Network": "10.5.0.0/16", {text}}}', backends=BACKENDS)


def test_what_a_node_needs_once():
    assert udp.shared(own()) == {
        LINK,
        Address(dev="flannel0", ip=IPv4Address("10.5.1.0"), prefixlen=32),
        Route(dst=IPv4Network("10.5.0.0/16"), dev="flannel0"),
        RELAY,
    }
    assert udp.devices(own()) == (("flannel0", TunLink, {4}, True),)


def test_before_the_lease_or_without_an_address_there_is_nothing():
    assert udp.shared(replace(own(), v4=None)) == frozenset()
    facts = own().facts
    assert udp.shared(replace(own(), facts=replace(facts, uplink=replace(facts.uplink, v4=None)))) == frozenset()


def test_behind_nat_the_relay_has_the_uplinks_address_and_the_lease_the_public_one():
    public = IPv4Address("203.0.113.7")
    inputs = replace(own(), facts=replace(own().facts, public_v4=public))
    assert RELAY in udp.shared(inputs)
    assert udp.advertise(inputs) == LeaseAttrs(public_ip=public)


def test_the_outer_headers_take_28_bytes():
    assert udp.mtu(own()) == 1472
    udp.check(own(uplink_mtu=96))
    says = "MTU-001 MTU of eth0: 95 leaves 67 bytes in a datagram; expected at least 96. Raise the MTU of the uplink"
    with pytest.raises(ConfigError, match=re.escape(says)):
        udp.check(own(uplink_mtu=95))


def test_a_peer_is_a_route_of_the_relay():
    lease = builders.lease(2, udp)
    assert lease.attrs.backend == ""
    assert udp.peer(own(), lease) == {FORWARD}
    assert udp.peer(own(), replace(lease, attrs=replace(lease.attrs, backend="udp"))) == {FORWARD}


class TestBothFamilies:
    """One device and one relay for both; datagrams are of IPv4."""

    @pytest.fixture
    def ours(self) -> Inputs:
        return own(family="46")

    def test_what_a_node_needs_once(self, ours: Inputs):
        base = IPv6Address("fc00:0:0:1::")
        relay = replace(RELAY, own6=base)
        assert udp.shared(ours) == udp.shared(own()) - {RELAY} | {
            relay,
            Address(dev="flannel0", ip=base, prefixlen=128),
            Route(dst=IPv6Network("fc00::/48"), dev="flannel0"),
            Sysctl(name="net/ipv6/conf/flannel0/accept_ra", value="0"),
        }
        assert str(relay) == "relay of flannel0 from 192.168.0.1 port 8285, errors from fc00:0:0:1::"
        assert udp.devices(ours) == (("flannel0", TunLink, {4, 6}, True),)

    def test_without_a_subnet_of_ipv6_it_is_as_of_ipv4(self, ours: Inputs):
        assert udp.shared(replace(ours, v6=None)) == udp.shared(own())

    def test_the_lease(self, ours: Inputs):
        told = LeaseAttrs(public_ip=IPv4Address("192.168.0.1"), public_ipv6=IPv6Address("fd00::1"))
        assert udp.advertise(ours) == told
        assert udp.advertise(replace(ours, prepared=Ways(in_kernel=True))) == replace(told, data={"Kernel": True})
        assert udp.advertise(replace(own(), facts=ours.facts)).public_ipv6 is None

    def test_a_peer(self, ours: Inputs):
        lease = builders.lease(2, udp, family="46")
        forward = replace(FORWARD, dst=IPv6Network("fc00:0:0:2::/64"), key=())
        assert udp.peer(ours, lease) == {FORWARD, forward}
        assert udp.peer(ours, replace(lease, v6=None)) == {FORWARD}
        assert udp.peer(ours, replace(lease, v4=None)) == {forward}
        assert udp.peer(own(), lease) == {FORWARD}

    def test_a_peer_with_upstreams_relay_gets_no_ipv6(self, ours: Inputs):
        """It takes an IPv6 packet for one of IPv4. Its lease has a subnet all the same, and no public IPv6 address."""
        assert udp.peer(ours, builders.lease(2, udp, family="46", public_ipv6=None)) == {FORWARD}

    def test_the_kernel_knows_of_ipv4_alone(self, ours: Inputs):
        ours = replace(ours, prepared=Ways(in_kernel=True))
        lease = builders.lease(2, udp, family="46")
        known = {each for each in udp.peer(ours, lease) if isinstance(each, KernelForward)}
        assert known == {KernelForward(dev="flannel0", dst=FORWARD.dst, via=FORWARD.via, sends=False)}
        assert not any(isinstance(each, KernelForward) for each in udp.peer(ours, replace(lease, v4=None)))

    def test_the_least_packet_of_ipv6_must_fit(self):
        udp.check(own(family="46", uplink_mtu=1308))
        says = "1307 leaves 1279 bytes in a datagram; expected at least 1308. Raise the MTU of the uplink, or turn IPv6"
        with pytest.raises(ConfigError, match=re.escape(says)):
            udp.check(own(family="46", uplink_mtu=1307))


class TestIpv6Alone:
    """Without IPv4 datagrams are of IPv6."""

    @pytest.fixture
    def ours(self) -> Inputs:
        return own(family="6")

    def test_what_a_node_needs_once(self, ours: Inputs):
        base = IPv6Address("fc00:0:0:1::")
        assert udp.shared(ours) == {
            replace(LINK, mtu=1452),
            replace(RELAY, local=IPv6Address("fd00::1"), own6=base),
            Address(dev="flannel0", ip=base, prefixlen=128),
            Route(dst=IPv6Network("fc00::/48"), dev="flannel0"),
            Sysctl(name="net/ipv6/conf/flannel0/accept_ra", value="0"),
        }
        assert udp.devices(ours) == (("flannel0", TunLink, {6}, True),)
        assert udp.shared(replace(ours, v6=None)) == frozenset()
        facts = ours.facts
        assert udp.shared(replace(ours, facts=replace(facts, uplink=replace(facts.uplink, v6=None)))) == frozenset()

    def test_a_peer(self, ours: Inputs):
        forward = Forward(dev="flannel0", dst=IPv6Network("fc00:0:0:2::/64"), via=IPv6Address("fd00::2"))
        lease = builders.lease(2, udp, family="6")
        assert udp.peer(ours, lease) == {forward}
        assert udp.peer(ours, builders.lease(2, udp, family="6", public_ipv6=None)) == frozenset()
        assert udp.peer(ours, builders.lease(2, udp, family="46")) == {forward}
        assert udp.advertise(ours) == LeaseAttrs(public_ip=None, public_ipv6=IPv6Address("fd00::1"))

    def test_the_outer_headers_take_48_bytes(self):
        udp.check(own(family="6", uplink_mtu=1328))
        says = "1327 leaves 1279 bytes in a datagram; expected at least 1328. Raise the MTU of the uplink"
        with pytest.raises(ConfigError, match=re.escape(says) + "$"):
            udp.check(own(family="6", uplink_mtu=1327))

    def test_no_program_of_the_kernel_knows_it(self):
        text = '{"EnableIPv4": false, "IPv6Network": "fc00::/48", "EnableIPv6": true, "Backend": {"Type": "udp"}}'
        assert parse_netconf(text, backends=BACKENDS).options == UdpOptions(kernel_path=False)


class TestInTheKernel:
    """Where the kernel takes our programs, which `Ways` says."""

    @pytest.fixture
    def ours(self) -> Inputs:
        return replace(own(), prepared=Ways(in_kernel=True))

    def test_the_programs_stand_beside_a_relay_that_gets_each_datagram_alone(self, ours: Inputs):
        state = udp.shared(ours)
        assert state - udp.shared(own()) == {PATH, replace(RELAY, joined=False)}
        assert udp.shared(replace(own(), prepared=Ways(in_kernel=False))) == udp.shared(own())

    @pytest.mark.parametrize(
        "data, sends", [({"Kernel": True}, True), ({"Kernel": 1}, False), ({}, False), ([], False), (None, False)]
    )
    def test_the_relay_sends_to_peers_whose_kernel_takes_no_datagrams(self, ours: Inputs, data: object, sends: bool):
        lease = builders.lease(2, udp)
        lease = replace(lease, attrs=replace(lease.attrs, data=data))
        forward = KernelForward(dev="flannel0", dst=FORWARD.dst, via=FORWARD.via, sends=sends)
        assert udp.peer(ours, lease) == {FORWARD, forward}

    def test_the_lease_says_so(self, ours: Inputs):
        assert udp.advertise(ours).data == {"Kernel": True}
        assert udp.advertise(own()).data is None

    def test_it_can_be_turned_off(self):
        text = '{"Network": "10.5.0.0/16", "Backend": {"Type": "udp", "KernelPath": false}}'
        assert parse_netconf(text, backends=BACKENDS).options == UdpOptions(kernel_path=False)

    def test_how_its_objects_read_and_whose_they_are(self):
        forward = KernelForward(dev="flannel0", dst=FORWARD.dst, via=FORWARD.via, sends=True)
        assert str(PATH) == "kernel path of flannel0 by eth0 from 192.168.0.1 port 8285"
        assert str(forward) == "forward 10.5.2.0/24 by the kernel path of flannel0 to and from 192.168.0.2"
        assert str(replace(forward, sends=False)).endswith("flannel0 from 192.168.0.2")
        assert (PATH.code_if_changed, forward.code_if_changed) == ("VTEP-004", "FDB-001")


def test_a_peer_that_cannot_be_served():
    with pytest.raises(PeerError, match=r"ADDR-002 lease 10\.5\.2\.0-24: backend 'vxlan'; expected udp, as on this"):
        udp.peer(own(), builders.lease(2, vxlan))
    lease = builders.lease(2, udp)
    assert udp.peer(own(), replace(lease, v4=None)) == frozenset()
    assert udp.peer(own(), builders.lease(2, udp, public_ip=None)) == frozenset()
    assert udp.peer(replace(own(), v4=None), lease) == frozenset()
    with pytest.raises(TypeError, match="udp got Value"):
        udp.shared(replace(own(), netconf=replace(own().netconf, options=Value())))


def test_how_its_objects_read_and_whose_they_are():
    assert str(LINK) == "link flannel0 tun mtu 1472"
    assert str(RELAY) == "relay of flannel0 from 192.168.0.1 port 8285"
    assert str(FORWARD) == "forward 10.5.2.0/24 by the relay of flannel0 to 192.168.0.2"
    assert (RELAY.code_if_changed, FORWARD.code_if_changed) == ("VTEP-004", "FDB-001")
    ours, anothers = (Ownership(devices=frozenset({name}), networks=()) for name in ("flannel0", "flannel.1"))
    for thing in (LINK, RELAY, FORWARD):
        assert thing.is_within(ours)
        assert not thing.is_within(anothers)
    assert not LINK.excludes(replace(LINK, name="flannel1"))
    assert not LINK.changes_in_place(replace(LINK, persists=0))
