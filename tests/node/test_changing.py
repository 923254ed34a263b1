"""One back end after another: node by node, what an old one leaves behind, and what a packet may have in each."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.node import wgnode
from tests.node.wgnode import start
from tests.support.crossing import cross
from tests.support.netns import Netns
from tests.support.traffic import Capture, Pings, nothing_lost, reaches
from tests.support.weftd import HOST_GW, VXLAN, Cluster, Daemon, Pod, eventually

UDP = {**VXLAN, "Backend": {"Type": "udp"}}
WG = {**VXLAN, "Backend": {"Type": "wireguard"}}
DEVICES = {"vxlan": "flannel.1", "udp": "flannel0", "wireguard": "flannel-wg"}
_IP_MTU_DISCOVER, _PROBE = 10, 3  # linux/in.h: don't fragment, whatever is known of the path


@pytest.fixture(autouse=True)
def ends_servers(cluster: Cluster) -> Iterator[None]:
    yield
    wgnode.end_servers(cluster)


def kind(conf: dict[str, Any]) -> str:
    return str(conf["Backend"]["Type"])


def restart(node: Daemon) -> None:
    node.stop()
    start(node)


@pytest.mark.parametrize(
    "before, after",
    [(VXLAN, HOST_GW), (HOST_GW, WG), (WG, UDP), (UDP, VXLAN)],
    ids=kind,
)
def test_node_by_node(cluster: Cluster, before: dict[str, Any], after: dict[str, Any]):
    cluster.configure(before)
    one, two, three = [start(cluster.node(number)) for number in (1, 2, 3)]
    pods = {node: node.pod() for node in (one, two, three)}
    for pod in pods.values():
        pod.run("ip link set eth0 mtu 1400")  # what fits in each: pods keep the MTU of the back end they were made with
    eventually(lambda: reaches(pods[one], pods[two].ips[0]))
    eventually(lambda: reaches(pods[two], pods[three].ips[0]))
    cluster.configure(after)
    with unharmed(pods[two], pods[three], kind(before)):
        restart(one)
        for other in (two, three):
            one.says(f"peer ignored: ADDR-002 lease {other.v4.network_address}-24: backend")
            other.says(f"peer ignored: ADDR-002 lease {one.v4.network_address}-24: backend")
    assert not reaches(pods[one], pods[two].ips[0], seconds=0.5)
    restart(two)
    eventually(lambda: reaches(pods[one], pods[two].ips[0]))
    with unharmed(pods[one], pods[two], kind(after)):
        restart(three)
        eventually(lambda: reaches(pods[one], pods[three].ips[0]))
    for node in (one, two, three):
        eventually(lambda node=node: _remains(node, kind(before)) == "")
    cross(two, three)


@contextmanager
def unharmed(source: Pod, sink: Pod, kind: str) -> Iterator[None]:
    """Lose no packet while the block runs; wireguard-go, a process beside others, may be late for TCP's patience."""
    if kind != "wireguard":
        with nothing_lost(source, sink, sink.ips[0]):
            yield
        return
    with Pings(source, sink.ips[0]) as pings:
        yield
    assert not pings.lost


def _remains(node: Daemon, kind: str) -> str:
    """The device of a back end, or its routes: those of host-gw lead through the uplink."""
    if kind in DEVICES:
        return " ".join(link["ifname"] for link in node.netns.json("ip -j link") if link["ifname"] == DEVICES[kind])
    return node.ip("route show proto 165 dev eth0")


@pytest.mark.parametrize(
    "conf, mtu, outer", [(VXLAN, 1450, 1500), (HOST_GW, 1500, 1500), (UDP, 1472, 1500), (WG, 1420, 1480)]
)
def test_the_mtu_is_what_fits_to_the_byte(cluster: Cluster, conf: dict[str, Any], mtu: int, outer: int):
    cluster.configure(conf)
    one, two = [start(cluster.node(number)) for number in (1, 2)]
    here, there = one.pod(), two.pod()
    eventually(lambda: reaches(here, there.ips[0]))
    here.run("ip link set eth0 mtu 9000")
    at = str(there.ips[0])
    seen = Capture(two.netns, "eth0")
    receiver = there.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with receiver:
        receiver.bind((at, 9))
        receiver.settimeout(3)
        send(here, at, bytes(mtu - 28))
        assert len(receiver.recv(1 << 16)) == mtu - 28
        largest = max(len(packet.payload) + 20 for packet in seen.packets())
        assert largest == outer, "the longest packet of a pod fills the uplink's, but for what is kept for IPv6"
        send(here, at, bytes(mtu - 28 + 1))
        eventually(lambda: f"mtu {mtu}" in here.run(f"ip route get {at}"))  # the node has said what fits
        receiver.settimeout(0.2)
        with pytest.raises(TimeoutError):
            receiver.recv(1 << 16)
    seen.close()
    assert json.loads(one.ip("-j link show eth0"))[0]["mtu"] == 1500


def send(here: Netns, address: str, content: bytes) -> None:
    """Send a datagram that no router may cut."""

    def inside() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_IP, _IP_MTU_DISCOVER, _PROBE)
            sock.sendto(content, (address, 9))

    here.call(inside)
