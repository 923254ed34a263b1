"""The back end wireguard: devices, the own key, and peers (flannel.md §6.6)."""

import json
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

import pytest

from tests.support import builders
from tests.support.builders import key
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, wireguard
from weft.desired.backends.wireguard import Keys, WireguardOptions
from weft.desired.inputs import Inputs
from weft.desired.tunnels.wireguard import (
    Peer,
    Server,
    WireguardDevice,
    WireguardLink,
    WireguardPeer,
    WireguardRoute,
    WireguardTun,
)
from weft.model.errors import ConfigError, PeerError
from weft.model.kernel.objects import Address, Ownership, Route
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Endpoint
from weft.model.value import Secret, replace

OWN = Keys(private=Secret(key(1)), public=key(101))
PSK = Secret(key(9))


def own(*, family: str = "4", **how: Any) -> Inputs:
    return replace(builders.inputs(1, backend="wireguard", family=family, **how), prepared=OWN)


def lease(*, data: Any = None, data_v6: Any = None, family: str = "4", **attrs: Any) -> Lease:
    """What node 2 publishes."""
    published = LeaseAttrs(
        public_ip=builders.public_v4(2) if "4" in family else None,
        public_ipv6=builders.public_v6(2) if "6" in family else None,
        backend="wireguard",
        data=data,
        data_v6=data_v6,
    )
    return Lease(
        id="two",
        v4=builders.subnet_v4(2) if "4" in family else None,
        v6=builders.subnet_v6(2) if "6" in family else None,
        attrs=replace(published, **attrs),
    )


def said(port: int | None = 51820, number: int = 102) -> dict[str, Any]:
    return {"PublicKey": key(number)} | ({} if port is None else {"Port": port})


def parsed(**backend: object) -> object:
    text = json.dumps({"Network": "10.5.0.0/16", "Backend": {"Type": "wireguard", **backend}})
    return parse_netconf(text, backends=BACKENDS).options


@pytest.mark.spec(
    *(f"flannel.md §6.6/{name}" for name in ("ListenPort", "ListenPortV6", "MTU", "PSK", "keepalive", "Mode"))
)
def test_its_options():
    assert parsed() == WireguardOptions()
    assert parsed(
        ListenPort=1, ListenPortV6=2, MTU=1400, PSK=key(9), PersistentKeepaliveInterval=25, Mode="auto"
    ) == WireguardOptions(port=1, port_v6=2, mtu=1400, psk=PSK, keepalive=25, mode="auto")
    assert parsed(PSK="", Mode="") == WireguardOptions()


@pytest.mark.parametrize(
    "backend, says",
    [
        ({"Mode": "both"}, 'Backend.Mode: "both"; expected separate, auto, ipv4 or ipv6'),
        ({"ListenPort": 0}, "Backend.ListenPort: 0; expected a whole number from 1 to 65535"),
        ({"PSK": "c2VjcmV0"}, "Backend.PSK: a value (not shown): 6 bytes; expected 32 bytes in base64"),
        ({"PSK": "secret!"}, "Backend.PSK: a value (not shown): no base64"),
    ],
)
def test_what_is_refused_and_no_secret_is_shown(backend: dict[str, object], says: str):
    with pytest.raises(ConfigError, match=re.escape(says)) as raised:
        parsed(**backend)
    assert "secret!" not in str(raised.value)


@pytest.mark.spec("flannel.md §6.6/device", "flannel.md §6.6/device-config")
def test_what_a_node_needs_once():
    assert wireguard.shared(own()) == {
        WireguardLink(name="flannel-wg", mtu=1420),
        WireguardDevice(dev="flannel-wg", private=OWN.private, port=51820),
        Address(dev="flannel-wg", ip=IPv4Address("10.5.1.0"), prefixlen=32),
        Route(dst=IPv4Network("10.5.0.0/16"), dev="flannel-wg"),
    }
    assert wireguard.devices(own()) == [("flannel-wg", WireguardLink, {4}, True)]
    assert wireguard.shared(replace(own(), v4=None)) == frozenset()


def test_each_family_has_a_device_of_its_own():
    assert wireguard.shared(own(family="46")) - wireguard.shared(own()) == {
        WireguardLink(name="flannel-wg-v6", mtu=1420),
        WireguardDevice(dev="flannel-wg-v6", private=OWN.private, port=51821),
        Address(dev="flannel-wg-v6", ip=IPv6Address("fc00:0:0:1::"), prefixlen=128),
        Route(dst=IPv6Network("fc00::/48"), dev="flannel-wg-v6"),
    }


@pytest.mark.spec("flannel.md §6.6/one-device")
@pytest.mark.parametrize("mode", ["auto", "ipv4", "ipv6"])
def test_one_device_carries_both_families_and_none_that_is_off(mode: str):
    both = wireguard.shared(own(family="46", mode=mode))
    assert {thing.link or thing.key[1] for thing in both} == {"flannel-wg"}
    assert {thing.dst for thing in both if isinstance(thing, Route)} == {builders.NETWORK_V4, builders.NETWORK_V6}
    for family, network in (("4", builders.NETWORK_V4), ("6", builders.NETWORK_V6)):
        one = wireguard.shared(own(family=family, mode=mode))
        assert [thing.dst for thing in one if isinstance(thing, Route)] == [network]


def test_where_the_kernel_has_none_a_process_serves_a_tun_device():
    inputs = replace(own(), prepared=replace(OWN, in_process=True))
    assert wireguard.shared(inputs) - wireguard.shared(own()) == {
        WireguardTun(name="flannel-wg", mtu=1420),
        Server(dev="flannel-wg"),
    }
    assert wireguard.devices(inputs) == [("flannel-wg", WireguardTun, {4}, True)]


@pytest.mark.spec("flannel.md §6.6/published")
def test_the_lease_tells_the_key_and_the_port_that_is_listened_on():
    four, six = {"PublicKey": key(101), "Port": 51820}, {"PublicKey": key(101), "Port": 51821}
    assert wireguard.advertise(own()) == LeaseAttrs(
        public_ip=builders.public_v4(1), backend="wireguard", data=four, data_v6=None
    )
    both = wireguard.advertise(own(family="46"))
    assert (both.public_ipv6, both.data, both.data_v6) == (builders.public_v6(1), four, six)
    assert wireguard.advertise(own(family="46", mode="auto")).data_v6 == four, "Q-41"
    assert wireguard.advertise(own(family="6")).data is None


@pytest.mark.spec("flannel.md §6.1/mtu-wireguard")
@pytest.mark.parametrize("uplink, option, expected", [(1500, 0, 1420), (9000, 0, 8920), (9000, 1500, 1420)])
def test_the_mtu(uplink: int, option: int, expected: int):
    inputs = own(uplink_mtu=uplink, mtu=option)
    wireguard.check(inputs)
    assert wireguard.mtu(inputs) == expected


@pytest.mark.parametrize(
    "family, option, says",
    [
        ("4", 100, "Backend.MTU: 100 leaves 20 bytes in the tunnel; expected at least 68. Raise the MTU of the uplink"),
        ("46", 1359, "Backend.MTU: 1359 leaves 1279 bytes in the tunnel; expected at least 1280"),
    ],
)
def test_too_small_an_mtu_is_refused(family: str, option: int, says: str):
    with pytest.raises(ConfigError, match=re.escape(says)):
        wireguard.check(own(family=family, mtu=option))
    with pytest.raises(ConfigError, match="MTU of eth0: 100 leaves"):
        wireguard.check(own(uplink_mtu=100))


@pytest.mark.spec("flannel.md §6.6/peer-added", "flannel.md §6.6/port-of-old-peers")
def test_a_peer_of_each_family_on_its_device():
    chosen = {"psk": PSK, "keepalive": 25, "port": 1, "port_v6": 2}
    both = lease(family="46", data=said(7), data_v6=said(None))
    assert wireguard.peer(own(family="46", **chosen), both) == {
        WireguardPeer(
            dev="flannel-wg",
            peer=Peer(
                key=key(102),
                endpoint=Endpoint(builders.public_v4(2), 7),
                psk=PSK,
                keepalive=25,
            ),
        ),
        WireguardRoute(dev="flannel-wg", net=builders.subnet_v4(2), peer=key(102)),
        WireguardPeer(
            dev="flannel-wg-v6",
            peer=Peer(
                key=key(102),
                endpoint=Endpoint(builders.public_v6(2), 2),
                psk=PSK,
                keepalive=25,
            ),
        ),
        WireguardRoute(dev="flannel-wg-v6", net=builders.subnet_v6(2), peer=key(102)),
    }
    assert {thing.link for thing in wireguard.peer(own(), both)} == {"flannel-wg"}
    assert wireguard.peer(own(), lease(family="6", data_v6=said())) == frozenset()


def peer_and_routes(inputs: Inputs, told: Lease) -> tuple[WireguardPeer, list[WireguardRoute]]:
    things = wireguard.peer(inputs, told)
    [found] = [thing for thing in things if isinstance(thing, WireguardPeer)]
    return found, [thing for thing in things if isinstance(thing, WireguardRoute)]


GLOBAL_V6 = IPv6Address("2001:db8::1")


@pytest.mark.spec("flannel.md §6.6/auto")
@pytest.mark.parametrize(
    "mode, own_v6, v4, v6, dialled",
    [
        ("ipv4", GLOBAL_V6, "203.0.113.2", "2001:db8::2", "203.0.113.2:4"),
        ("ipv6", GLOBAL_V6, "203.0.113.2", "2001:db8::2", "[2001:db8::2]:6"),
        ("auto", GLOBAL_V6, "203.0.113.2", "2001:db8::2", "203.0.113.2:4"),
        ("auto", GLOBAL_V6, "192.168.0.2", "2001:db8::2", "[2001:db8::2]:6"),
        ("auto", GLOBAL_V6, "172.31.0.2", "fd00::2", "172.31.0.2:4"),
        ("auto", IPv6Address("fd00::1"), "10.0.0.2", "2001:db8::2", "10.0.0.2:4"),
        ("auto", GLOBAL_V6, "10.0.0.2", None, "10.0.0.2:4"),
        ("auto", GLOBAL_V6, None, "fd00::2", "[fd00::2]:6"),
    ],
)
def test_where_a_peer_is_dialled(mode: str, own_v6: IPv6Address, v4: str | None, v6: str | None, dialled: str):
    inputs = own(family="46", mode=mode)
    inputs = replace(inputs, facts=replace(inputs.facts, public_v6=own_v6))
    told = lease(
        family="46",
        data=said(4),
        data_v6=said(6),
        public_ip=None if v4 is None else IPv4Address(v4),
        public_ipv6=None if v6 is None else IPv6Address(v6),
    )
    found, routes = peer_and_routes(inputs, told)
    assert (found.dev, str(found.peer.endpoint)) == ("flannel-wg", dialled)
    assert {route.net for route in routes} == {builders.subnet_v4(2), builders.subnet_v6(2)}
    assert {(route.dev, route.peer) for route in routes} == {("flannel-wg", key(102))}


def test_either_familys_data_have_the_key():
    found, _ = peer_and_routes(own(family="46", mode="ipv6"), lease(family="46", data=said(7)))
    assert (found.peer.key, found.peer.endpoint) == (key(102), Endpoint(builders.public_v6(2), 7))


def test_without_the_wanted_family_a_peer_cannot_be_dialled():
    with pytest.raises(PeerError, match="no address for mode ipv6; expected the public address of that family"):
        wireguard.peer(own(mode="ipv6"), lease(data=said()))
    assert wireguard.peer(own(family="4", mode="ipv6"), lease(family="6", data_v6=said())) == frozenset()


@pytest.mark.parametrize(
    "data, says",
    [
        (None, "PublicKey None; expected 32 bytes in base64"),
        ({"PublicKey": "short"}, "PublicKey 'short'"),
        ({"PublicKey": key(1)[:-4]}, "PublicKey "),
        ({"PublicKey": 7}, "PublicKey 7"),
        (said(65536), "Port 65536; expected a port, or none"),
        ({**said(), "Port": True}, "Port True"),
        ({**said(), "Port": "1"}, "Port '1'"),
    ],
)
def test_data_that_cannot_be_used_cost_their_peer_alone(data: Any, says: str):
    with pytest.raises(PeerError, match=re.escape(says)):
        wireguard.peer(own(), lease(data=data))
    with pytest.raises(PeerError, match="expected wireguard"):
        wireguard.peer(own(), lease(data=said(), backend="vxlan"))


def test_a_key_is_told_the_kernel_in_its_own_spelling():
    """Else what is wanted would never be what the kernel shows."""
    spelt = {**said(), "PublicKey": "B" * 42 + "B="}
    one, [route] = peer_and_routes(own(), lease(data=spelt))
    assert one.peer.key == route.peer == "B" * 42 + "A="


@pytest.mark.spec("flannel.md §6.6/changed-key")
def test_a_new_key_is_another_peer_with_the_same_addresses():
    one, [route] = peer_and_routes(own(), lease(data=said()))
    two, [other] = peer_and_routes(own(), lease(data=said(number=103)))
    assert one.key != two.key
    assert route.key == other.key, "which goes from one to the other"
    assert (route.peer, other.peer) == (key(102), key(103))


def test_how_they_read():
    ownership = Ownership(devices=frozenset({"flannel-wg"}), networks=())
    peer, [route] = peer_and_routes(own(), lease(data=said()))
    device = WireguardDevice(dev="flannel-wg", private=OWN.private, port=1)
    things = (WireguardTun(name="flannel-wg", mtu=1), Server(dev="flannel-wg"), device, peer, route)
    assert [str(thing) for thing in things] == [
        "link flannel-wg tun mtu 1",
        "wireguard-go for flannel-wg",
        "wireguard flannel-wg port 1",
        f"wireguard peer {key(102)} dev flannel-wg at 192.168.0.2:51820",
        f"wireguard route 10.5.2.0/24 dev flannel-wg to peer {key(102)}",
    ]
    assert [thing.code_if_changed for thing in things] == ["VTEP-003", "VTEP-004", "VTEP-003", "FDB-001", "FDB-001"]
    assert all(thing.is_within(ownership) for thing in things)
    link = WireguardLink(name="a", mtu=1)
    assert not link.excludes(WireguardLink(name="b", mtu=1))
    assert not things[0].excludes(WireguardTun(name="b", mtu=1))
    assert key(1) not in f"{device!r} {OWN!r}"


def test_options_and_keys_of_another_back_end_are_a_fault():
    with pytest.raises(TypeError, match="wireguard got VxlanOptions"):
        wireguard.shared(replace(own(), netconf=builders.netconf()))
    with pytest.raises(TypeError, match="wireguard got NoneType"):
        wireguard.shared(replace(own(), prepared=None))
