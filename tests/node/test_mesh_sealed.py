"""A mesh with a password: packets of pods are sealed by WireGuard, here by wireguard-go; tests/vm has the kernel's."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from tests.node import wgnode
from tests.node.meshnode import MeshNode, created, joined, mesh_of
from tests.node.test_status import asked
from tests.node.test_udp import taking
from tests.support.traffic import Capture, Packet, Pings, Stream, nothing_lost, reaches
from tests.support.weftd import Cluster, eventually

NETWORK = IPv4Network("10.32.0.0/12")
PORT = 51820


@pytest.fixture
def secret(tmp_path: Path) -> str:
    return password(tmp_path, "a password of words")


def password(folder: Path, words: str) -> str:
    """The flag for a file with it."""
    file = folder / words.replace(" ", "-")
    file.write_text(f"{words}\n")
    file.chmod(0o600)
    return f"--password-file={file}"


def is_clear(packet: Packet) -> bool:
    """Whether it tells of pods: its addresses are theirs, or it is vxlan."""
    return packet.source in NETWORK or packet.target in NETWORK or (packet.protocol == 17 and 8472 in packet.ports)


@contextmanager
def nothing_in_clear(*nodes: MeshNode) -> Iterator[None]:
    """On the underlay, while the block runs; something sealed goes by."""
    captures = [Capture(node.netns, "eth0") for node in nodes]
    yield
    packets = [packet for capture in captures for packet in capture.packets()]
    assert any(packet.protocol == 17 and PORT in packet.ports for packet in packets)
    assert [packet for packet in packets if is_clear(packet)] == []


def links(node: MeshNode) -> set[str]:
    return {link["ifname"] for link in json.loads(node.ip("-j link show"))}


def test_n4_all_pods_reach_all_and_nothing_is_in_clear_on_the_underlay(cluster: Cluster, secret: str):
    nodes = created(cluster, 1, 2, 3, more=(secret,))
    pods = [node.pod() for node in nodes]
    with nothing_in_clear(*nodes):
        for pod in (*pods, *(node.netns for node in nodes)):
            assert all(reaches(pod, other.ips[0]) for other in pods)
    for node in nodes:
        assert "flannel.1" not in links(node)
        assert "blackhole 10.32.0.0/12" in node.routes()
        assert {peer["way"] for peer in asked(node)["peers"]} == {"direct"}


def test_n4_what_has_no_way_goes_nowhere(cluster: Cluster, secret: str):
    """Not while the device is made anew either, and not to addresses that no node has."""
    one, two = created(cluster, 1, 2, more=(secret,))
    here, there = one.pod(), two.pod()
    with nothing_in_clear(one, two):
        assert reaches(here, there.ips[0])
        assert not reaches(here, NETWORK[0x40000], seconds=0.5)
        one.ip("link del flannel-wg")
        assert reaches(here, there.ips[0], seconds=20)
    one.says("VTEP-004", seconds=5)


def test_n4_pods_of_both_families_are_sealed(cluster: Cluster, secret: str, tmp_path: Path):
    config = {"Network": str(NETWORK), "EnableIPv6": True, "IPv6Network": "fd05::/48", "Backend": {"Type": "mesh"}}
    file = tmp_path / "net-conf.json"
    file.write_text(json.dumps(config))
    one, two = created(cluster, 1, 2, more=(secret, f"--net-config-path={file}"))
    here, there = one.pod(), two.pod()
    assert len(there.ips) == 2
    with nothing_in_clear(one, two):
        assert all(reaches(source, target) for source in (here, one.netns) for target in there.ips)


@pytest.mark.parametrize("words", ["another one, of words", ""])
def test_n4_who_has_another_password_or_none_gets_nothing(cluster: Cluster, secret: str, tmp_path: Path, words: str):
    one, two = created(cluster, 1, 2, more=(secret,))
    [stranger] = mesh_of(cluster, 3, more=(password(tmp_path, words),) if words else ())
    stranger.spawn().says("MESH-002", seconds=30)
    assert stranger.state["ring"] is None
    assert "flannel-wg" not in links(stranger)
    assert all(len(asked(node)["peers"]) == 1 for node in (one, two))
    stranger.signal(signal.SIGTERM)
    stranger.wait()


@pytest.mark.parametrize("trusted, clear", [("172.31.0.0/24", True), ("172.31.0.2/32", False)])
def test_n4_only_two_nodes_inside_trusted_prefixes_speak_vxlan(
    cluster: Cluster, secret: str, tmp_path: Path, trusted: str, clear: bool
):
    """One of the two is not enough."""
    file = tmp_path / "net-conf.json"
    file.write_text(json.dumps({"Network": str(NETWORK), "Backend": {"Type": "mesh", "Trusted": trusted}}))
    one, two = created(cluster, 1, 2, more=(secret, f"--net-config-path={file}"))
    here, there = one.pod(), two.pod()
    assert ["flannel.1" in links(node) for node in (one, two)] == [clear, True]
    if clear:
        assert reaches(here, there.ips[0])
        assert [peer["way"] for peer in asked(one)["peers"]] == ["vxlan"]
    else:
        with nothing_in_clear(one, two):
            assert reaches(here, there.ips[0])
            assert reaches(there, here.ips[0])


def test_n6_every_daemon_is_killed_and_started_again_and_no_packet_is_lost(cluster: Cluster, secret: str):
    nodes = created(cluster, 1, 2, 3, more=(secret,))
    here, there, far = (node.pod() for node in nodes)
    # Slowly: wireguard-go of Debian 12 has the kernel's usual buffer for datagrams, which holds 92 of these, and on a
    # busy machine it does not get a processor for 70 ms at times.
    with (
        nothing_lost(here, there, there.ips[0], every=0.01),
        nothing_lost(far, here, here.ips[0], every=0.01),
    ):
        for node in nodes:
            node.kill()
        for node in nodes:
            node.start()
        for node in nodes:
            eventually(lambda node=node: node.state["agreed"], seconds=40)
    assert all({peer["way"] for peer in asked(node)["peers"]} == {"direct"} for node in nodes)


def test_n5_another_password_and_new_links_cost_no_packet(cluster: Cluster, tmp_path: Path):
    """Both passwords are taken while nodes get the new one; which of them a link has is not what seals packets."""
    flag = password(tmp_path, "a password of words")
    file = Path(flag.partition("=")[2])
    nodes = created(cluster, 1, 2, more=(flag,))
    here, there = (node.pod() for node in nodes)
    with Pings(here, there.ips[0], every=0.01) as pings:
        for words in ("another one, of words\na password of words\n", "another one, of words\n"):
            file.write_text(words)
            for node in nodes:
                node.kill()
                node.start()
                eventually(lambda node=node: all(peer["us"] or peer["linked"] for peer in node.state["peers"]))
    assert pings.sent > 100
    assert len(pings.lost) <= pings.sent / 1000, f"{len(pings.lost)} of {pings.sent} lost: {pings.lost[:20]}"


def has_frames(cluster: Cluster, node: MeshNode, mtu: int) -> None:
    """Of this size: the switch drops what is too large for a port, and says nothing."""
    node.ip(f"link set eth0 mtu {mtu}")
    cluster.underlay.switch.run(f"ip link set {node.port} mtu {mtu}")


def test_n12_nodes_with_large_frames_and_without_reach_each_other_also_when_one_loses_them(
    cluster: Cluster, secret: str
):
    nodes = one, other, plain = mesh_of(cluster, 1, 2, 3, more=(secret,))
    for node in (one, other):
        has_frames(cluster, node, 9000)
    joined(nodes)
    here, there, far = (node.pod() for node in nodes)
    for node in (one, other):
        node.netns.run("ip link set pod1 mtu 8920; ip link set cni0 mtu 8920")  # as the plugin makes them
    eventually(lambda: " mtu 1400" in one.ip(f"route show {plain.v4}"), seconds=30)
    assert " mtu " not in one.ip(f"route show {other.v4}")
    assert "1 received" in here.run(f"ping -c 1 -W 2 -M do -s 8000 {there.ips[0]}")
    with Stream(here, far, far.ips[0]) as stream, Pings(here, there.ips[0], every=0.1):
        has_frames(cluster, other, 1500)
        eventually(lambda: " mtu 1400" in one.ip(f"route show {other.v4}"), seconds=30)
    assert stream.whole, stream.fault
    with Stream(here, there, there.ips[0]) as stream:
        assert reaches(here, there.ips[0])
    assert stream.whole, stream.fault


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_n5_wireguard_takes_new_keys_under_load(cluster: Cluster, secret: str):
    """After 120 s it makes new ones (REKEY_AFTER_TIME), and refuses old ones after 180 s."""
    one, two = created(cluster, 1, 2, more=(secret,))
    here, there = one.pod(), two.pod()
    with Pings(here, there.ips[0], every=0.01) as pings:
        time.sleep(200)
    assert len(pings.lost) <= pings.sent / 1000, f"{len(pings.lost)} of {pings.sent} lost: {pings.lost[:20]}"


def test_who_has_wireguards_port_is_named_until_it_is_free(cluster: Cluster, secret: str):
    one, two = nodes = mesh_of(cluster, 1, 2, more=(secret,))
    with taking(one.netns, PORT) as pid:
        one.spawn("--mesh-create").says(rf"VTEP-004 .*UDP port {PORT} is held by process {pid} \(.*\)", seconds=30)
        assert not one.ready
    two.spawn()
    for node in nodes:
        node.wait_ready()
    here, there = (node.pod() for node in nodes)
    assert reaches(here, there.ips[0], seconds=20)


def test_wireguard_go_that_dies_is_started_again(cluster: Cluster, secret: str):
    one, two = created(cluster, 1, 2, more=(secret,))
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    os.kill(wgnode.server(one), signal.SIGKILL)
    one.says("VTEP-004", seconds=30)
    assert reaches(here, there.ips[0], seconds=40)


def test_a_node_that_goes_to_another_ring_seals_with_the_secret_of_that_one(cluster: Cluster, secret: str):
    one, two = created(cluster, 1, 2, more=(secret,))
    [other] = created(cluster, 3, peers=(), more=(secret,))
    before = other.v4
    other.mesh("connect", str(one.public_v4))  # it drops its own ring, of which nobody has had an address
    eventually(lambda: other.v4 != before, seconds=60)
    other.wait_ready()
    eventually(lambda: str(other.v4) in one.routes(), seconds=20)
    there, here = two.pod(), other.pod()
    with nothing_in_clear(one, two, other):
        assert reaches(here, there.ips[0], seconds=20)
        assert reaches(there, here.ips[0], seconds=20)


def test_without_a_password_wireguard_stands_beside_vxlan(cluster: Cluster):
    nodes = created(cluster, 1, 2)
    for node in nodes:
        eventually(lambda node=node: wgnode.server(node))
        assert {"flannel.1", "flannel-wg"} <= links(node)
        assert {peer["way"] for peer in asked(node)["peers"]} == {"vxlan"}
    one, two = nodes
    address = eventually(lambda: asked_by_wireguard(two))
    eventually(lambda: reaches(one.netns, address, seconds=1), seconds=20)


def asked_by_wireguard(node: MeshNode) -> IPv4Address:
    [found] = json.loads(node.ip("-j -4 address show flannel-wg"))
    return IPv4Address(found["addr_info"][0]["local"])
