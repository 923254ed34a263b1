"""What wireguard-go says of a device, read without one: of several peers each has what is said of it."""

from collections.abc import Iterator
from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import key
from weft.daemon.backends.wireguard.inprocess import _device, _hex
from weft.desired.tunnels.wireguard import Device, LivePeer, Peer
from weft.model.net import Endpoint
from weft.model.value import Secret

ENDPOINTS = st.builds(Endpoint, st.ip_addresses(), st.integers(1, 65535))
NETS = st.ip_addresses().map(ip_network)


@st.composite
def seen(draw: st.DrawFn, number: int) -> LivePeer:
    peer = Peer(
        key=key(number),
        endpoint=draw(st.none() | ENDPOINTS),
        psk=draw(st.none() | st.integers(1, 9).map(lambda each: Secret(key(each + 100)))),
        keepalive=draw(st.integers(0, 300)),
    )
    networks = frozenset(draw(st.sets(NETS, max_size=3)))
    return LivePeer(peer=peer, networks=networks, handshake=draw(st.integers(0, 1 << 31)))


DEVICES = st.builds(
    lambda port, peers: Device(private=Secret(key(99)), port=port, peers=peers),
    st.integers(0, 65535),
    st.integers(0, 3).flatmap(lambda count: st.tuples(*(seen(number + 1) for number in range(count)))),
)


def said(device: Device) -> Iterator[tuple[str, str]]:
    """The lines of an answer to `get=1` (https://www.wireguard.com/xplatform/)."""
    assert device.private is not None
    yield "private_key", _hex(device.private.reveal())
    yield "listen_port", str(device.port)
    for each in device.peers:
        peer = each.peer
        yield "public_key", _hex(peer.key)
        yield "preshared_key", "0" * 64 if peer.psk is None else _hex(peer.psk.reveal())
        if peer.endpoint is not None:
            yield "endpoint", str(peer.endpoint)
        yield "last_handshake_time_sec", str(each.handshake)
        yield "persistent_keepalive_interval", str(peer.keepalive)
        for net in each.networks:
            yield "allowed_ip", str(net)


@given(DEVICES)
def test_what_is_said_of_a_device_is_read_whole(device: Device):
    assert _device(iter(list(said(device)))) == device
