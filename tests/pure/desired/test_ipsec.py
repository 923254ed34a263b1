"""The back end ipsec: charon, keys, connections, and policies (flannel.md §6.7)."""

import json
import re
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from tests.support import builders
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, ipsec
from weft.desired.backends.ipsec import Esp, IpsecOptions
from weft.desired.backends.ipsec.objects import Charon, CharonLink, Connection, End, Policy, SharedKey, connection_of
from weft.desired.inputs import Inputs
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Object, Ownership, Route
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import Secret, replace

TEXT = "s3cr3t-0" * 12
PSK = Secret(TEXT)
PROPOSAL = "aes128gcm16-sha256-prfsha256-ecp256"
OWN = End(builders.public_v4(1), builders.subnet_v4(1))
FAR = End(builders.public_v4(2), builders.subnet_v4(2))


def own(*, in_kernel: bool = True, **how: Any) -> Inputs:
    return replace(builders.inputs(1, backend="ipsec", psk=PSK, **how), prepared=Esp(in_kernel=in_kernel))


def parsed(**backend: object) -> object:
    text = json.dumps({"Network": "10.5.0.0/16", "Backend": {"Type": "ipsec", "PSK": TEXT, **backend}})
    return parse_netconf(text, backends=BACKENDS).options


PUBLISHED = Lease(id="two", v4=FAR.subnet, v6=None, attrs=LeaseAttrs(public_ip=FAR.public, backend="ipsec"), created=2)


@pytest.mark.spec("flannel.md §6.7/PSK", "flannel.md §6.7/UDPEncap", "flannel.md §6.7/ESPProposal")
def test_its_options():
    assert parsed() == IpsecOptions(udp_encap=False, proposal=PROPOSAL, psk=PSK)
    assert parsed(UDPEncap=True, ESPProposal="aes256-sha256") == IpsecOptions(
        udp_encap=True, proposal="aes256-sha256", psk=PSK
    )
    assert parsed(ESPProposal="") == parsed()


@pytest.mark.spec("flannel.md §6.7/PSK")
@pytest.mark.parametrize(
    "backend, says",
    [
        ({"PSK": None}, "Backend.PSK: no value; expected at least 96 characters"),
        ({"PSK": TEXT[:-1]}, "Backend.PSK: a value (not shown) of 95 characters; expected at least 96 characters"),
        ({"PSK": 7}, "Backend.PSK: 7; expected a text"),
        ({"UDPEncap": "yes"}, 'Backend.UDPEncap: "yes"; expected true or false'),
        ({"ESPProposal": "aes128, aes256"}, 'Backend.ESPProposal: "aes128, aes256"; expected algorithms as strongSwan'),
    ],
)
def test_what_is_refused_and_no_key_is_shown(backend: dict[str, object], says: str):
    with pytest.raises(ConfigError, match=re.escape(says)) as raised:
        parsed(**backend)
    assert "s3cr3t" not in str(raised.value)


def test_pods_with_ipv6_need_another_back_end():
    text = {"Network": "10.5.0.0/16", "IPv6Network": "fd00::/48", "EnableIPv6": True}
    with pytest.raises(ConfigError, match="Type: ipsec, with EnableIPv6"):
        parse_netconf(json.dumps({**text, "Backend": {"Type": "ipsec", "PSK": TEXT}}), backends=BACKENDS)


@pytest.mark.spec("flannel.md §6.1/mtu-ipsec")
@pytest.mark.parametrize(
    "uplink, in_kernel, udp_encap, expected",
    [
        (1500, True, False, 1423),
        (1500, True, True, 1415),
        (9000, True, False, 8923),
        (1500, False, False, 1400),
        (9000, False, False, 1400),
        (1450, False, True, 1365),
    ],
)
def test_the_mtu(uplink: int, in_kernel: bool, udp_encap: bool, expected: int):
    inputs = own(in_kernel=in_kernel, uplink_mtu=uplink, udp_encap=udp_encap)
    ipsec.check(inputs)
    assert ipsec.mtu(inputs) == expected
    if in_kernel:
        assert ipsec.mtu(replace(inputs, prepared=None)) == expected, "before it is tried"


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match="MTU of eth0: 100 leaves 23 bytes in the tunnel; expected at least 145"):
        ipsec.check(own(uplink_mtu=100))
    inputs = own()
    moved = replace(inputs, facts=replace(inputs.facts, public_v4=IPv4Address("203.0.113.1")))
    with pytest.raises(ConfigError, match=r"IFACE-001 --public-ip: 203\.0\.113\.1, while eth0 has 192\.168\.0\.1"):
        ipsec.check(moved)


@pytest.mark.spec("flannel.md §6.7/published", "flannel.md §6.7/shared")
def test_what_a_node_publishes_and_needs_once():
    assert ipsec.advertise(own()) == LeaseAttrs(public_ip=OWN.public, backend="ipsec")
    assert ipsec.shared(own()) == {Charon(), SharedKey(owner=OWN.public, secret=PSK)}
    assert ipsec.shared(replace(own(), v4=None)) == frozenset()
    assert ipsec.devices(own()) == (("ipsec0", CharonLink, {4}, True),)


@pytest.mark.spec("flannel.md §6.7/no-kernel-esp")
def test_where_the_kernel_has_no_esp_charon_carries_packets_and_none_leaves_without_it():
    assert ipsec.shared(own(in_kernel=False)) == {
        Charon(in_process=True, address=IPv4Address("10.5.1.0"), mtu=1400),
        SharedKey(owner=OWN.public, secret=PSK),
        Route(dst=IPv4Network("10.5.0.0/16"), blackhole=True, priority=1 << 30),
    }
    assert ipsec.peer(own(in_kernel=False), PUBLISHED) == {
        SharedKey(owner=FAR.public, secret=PSK),
        Connection(local=OWN, remote=FAR, proposal=PROPOSAL, udp_encap=True, in_process=True),
    }


@pytest.mark.spec("flannel.md §6.7/policies", "flannel.md §6.7/connection", "flannel.md §6.7/peer-added")
def test_what_a_peer_needs():
    there = {"src": FAR.subnet, "dst": OWN.subnet, "tunnel_src": FAR.public, "tunnel_dst": OWN.public}
    assert ipsec.peer(own(udp_encap=True, proposal="aes256-sha256"), PUBLISHED) == {
        Policy(direction="out", src=OWN.subnet, dst=FAR.subnet, tunnel_src=OWN.public, tunnel_dst=FAR.public),
        Policy(direction="in", **there),
        Policy(direction="fwd", **there),
        SharedKey(owner=FAR.public, secret=PSK),
        Connection(local=OWN, remote=FAR, proposal="aes256-sha256", udp_encap=True),
    }


@pytest.mark.parametrize(
    "inputs, found",
    [
        (replace(own(), v4=None), PUBLISHED),
        (own(), replace(PUBLISHED, v4=None)),
        (own(), replace(PUBLISHED, attrs=LeaseAttrs(public_ip=None, backend="ipsec"))),
    ],
)
def test_without_both_subnets_and_an_address_there_is_nothing(inputs: Inputs, found: Lease):
    assert ipsec.peer(inputs, found) == frozenset()


def test_a_lease_of_another_back_end_costs_its_peer_alone():
    with pytest.raises(PeerError, match="expected ipsec"):
        ipsec.peer(own(), replace(PUBLISHED, attrs=LeaseAttrs(public_ip=FAR.public, backend="vxlan")))


@pytest.mark.spec("flannel.md §6.7/connection")
def test_a_connections_name_tells_whose_it_is():
    connection = Connection(local=OWN, remote=FAR, proposal=PROPOSAL)
    name = "192.168.0.1-10.5.1.0/24-10.5.2.0/24-192.168.0.2"
    assert (connection.name, connection.child) == (name, "10.5.1.0/24-10.5.2.0/24")
    assert connection_of(name) == replace(connection, proposal="")
    for other in ("home", "a-b-c-d", "192.168.0.1-10.5.1.1/24-10.5.2.0/24-192.168.0.2"):
        assert connection_of(other) is None


def everything() -> list[Object]:
    key = SharedKey(owner=FAR.public, secret=PSK)
    policy = Policy(direction="fwd", src=OWN.subnet, dst=FAR.subnet, tunnel_src=OWN.public, tunnel_dst=FAR.public)
    connection = Connection(local=OWN, remote=FAR, proposal=PROPOSAL)
    return [Charon(), Charon(in_process=True, address=FAR.public, mtu=1), key, policy, connection]


def test_how_they_read_and_that_no_key_is_seen():
    assert [str(thing) for thing in everything()] == [
        "charon, with ESP in the kernel",
        "charon, with ESP in itself, through ipsec0 address 192.168.0.2 mtu 1",
        "shared key for 192.168.0.2",
        "IPsec policy fwd 10.5.1.0/24 to 10.5.2.0/24 by 192.168.0.1 to 192.168.0.2",
        "IPsec connection 192.168.0.1-10.5.1.0/24-10.5.2.0/24-192.168.0.2",
    ]
    assert [thing.code_if_changed for thing in everything()] == [
        "VTEP-004",
        "VTEP-004",
        "FDB-001",
        "FDB-001",
        "FDB-001",
    ]
    shown = f"{everything()!r} {own()!r} {own().netconf} {ipsec.peer(own(), PUBLISHED)!r}"
    assert "s3cr3t" not in shown


def test_whose_they_are():
    ours = Ownership(devices=frozenset({"ipsec0"}), networks=(builders.NETWORK_V4,))
    assert all(thing.is_within(ours) for thing in everything())
    assert not any(thing.is_within(replace(ours, devices=frozenset())) for thing in everything())
    other = replace(ours, networks=(IPv4Network("10.6.0.0/16"),))
    assert [type(thing) for thing in everything() if not thing.is_within(other)] == [Policy]


def test_what_was_not_tried_and_options_of_another_back_end():
    assert ipsec.peer(replace(own(), prepared=None), PUBLISHED) == ipsec.peer(own(), PUBLISHED)
    with pytest.raises(TypeError, match="ipsec got VxlanOptions"):
        ipsec.shared(replace(own(), netconf=builders.netconf()))
