"""WireGuard by wireguard-go: tests/vm does the same with a kernel that has it."""

import os
import signal
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.support.builders import key
from tests.support.netns import Netns
from tests.support.weftd import eventually
from tests.support.wireguardroutes import networks_go_from_peer_to_peer
from weft.daemon.backends.wireguard import inprocess
from weft.daemon.backends.wireguard import plane as module
from weft.daemon.planes.contract import Place
from weft.desired.tunnels.wireguard import Peer, WireguardPeer
from weft.model.net import Endpoint
from weft.model.value import replace
from weft.plan.diff import Put


@pytest.fixture
def device(netns: Netns) -> Iterator[str]:
    name = f"wg{os.getpid()}"  # its socket has this name in a folder of all namespaces
    netns.run(f"ip tuntap add dev {name} mode tun")
    pid = netns.call(lambda: inprocess.start(name))
    try:
        eventually(lambda: netns.call(lambda: inprocess.InProcess().process(name)) == pid)
        yield name
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_networks_go_from_peer_to_peer(netns: Netns, device: str):
    networks_go_from_peer_to_peer(netns, device)


def test_peers_are_seen_as_they_are(netns: Netns, device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "DEVICE", device)
    monkeypatch.setattr(module, "_DEVICES", (device,))
    plane = module.WireguardPlane(Place(directory=Path(), boot=""))
    peer = Peer(key=key(50), endpoint=Endpoint(ip_address("192.0.2.1"), 51820))
    assert netns.call(plane._tunnels) == {}
    assert netns.call(lambda: plane._apply([Put(WireguardPeer(dev=device, peer=peer))])) == []
    [(name, seen)] = netns.call(plane._tunnels).items()
    assert (name, seen.peer.endpoint, seen.handshake) == (peer.key, peer.endpoint, 0)
    begins = WireguardPeer(dev=device, peer=replace(peer, endpoint=None))  # the peer does, and the address stays
    assert netns.call(lambda: plane._look({begins.key: begins}))[begins.key] == begins
    netns.run(f"ip link del {device}")
    eventually(lambda: netns.call(plane._tunnels) == {})
