"""A store that is the daemon itself: it works beside the node, knows a part at times, and gives the node another block.

Nothing is removed on incomplete knowledge, and no packet between living pods is lost.
"""

import json
import re
import socket
import time
from ipaddress import IPv4Address

import pytest

from tests.node import meshstore
from tests.node.test_events import told
from tests.node.test_status import asked
from tests.support.netns import Netns
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, Pod, eventually

NAMES = {1: "alpha", 2: "beta", 3: "gamma"}
STRAY = "10.5.99.0/24"


class Mesh:
    """Three nodes without a server."""

    def __init__(self, cluster: Cluster, backend: dict[str, object]) -> None:
        self.nodes = [cluster.node(number) for number in NAMES]
        addresses = {NAMES[node.number]: str(node.public_v4) for node in self.nodes}
        self._mesh = json.dumps({"config": backend, "nodes": addresses})

    def spawn(self, node: Daemon, *flags: str) -> None:
        node.program = "tests.node.meshstore"
        block = f"10.5.{node.number * 10}.0/24"
        node.spawn(*flags, env={"MESH": self._mesh, "NODE": NAMES[node.number], "HOME_BLOCK": block})

    def start(self, *flags: str) -> list[Daemon]:
        for node in self.nodes:
            self.spawn(node, *flags)
        for node in self.nodes:
            node.wait_ready()
            eventually(lambda node=node: len(re.findall(r"10\.5\.\d0\.0/24", routes(node))) == 2)
        return self.nodes

    def home(self, node: Daemon) -> str:
        [file] = node.state_dir.glob("*/store/home")
        return file.read_text()

    def go(self, node: Daemon, **relays: str) -> None:
        """Have a node reach peers via others, and the rest by vxlan."""
        [file] = node.state_dir.glob("*/store/home")
        file.with_name("via").write_text(json.dumps(relays))

    def move(self, node: Daemon, block: str) -> None:
        [file] = node.state_dir.glob("*/store/home")
        file.write_text(block)


def cut(here: Daemon, there: Daemon) -> None:
    """Have a node hear nothing that another tells; pods' packets are left alone."""
    here.netns.run(
        f"""nft add table ip cut
        nft add chain ip cut input '{{ type filter hook input priority -300; }}'
        nft add rule ip cut input ip saddr {there.public_v4} udp dport {meshstore.PORT} drop"""
    )


def heal(here: Daemon) -> None:
    here.netns.run("nft delete table ip cut")


def source_of_a_datagram(sender: Netns, receiver: Pod) -> str:
    """As who receives it sees it."""
    with (
        receiver.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as ear,
        sender.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as mouth,
    ):
        ear.bind((str(receiver.ips[0]), 0))
        ear.settimeout(10)
        mouth.sendto(b"hello", ear.getsockname())
        return str(ear.recvfrom(9)[1][0])


def routes(node: Daemon) -> str:
    return node.ip("route show proto 165")


MESH = {"Network": "10.5.0.0/16", "Backend": {"Type": "mesh"}}  # of 256 blocks


@pytest.fixture(params=[VXLAN, HOST_GW, MESH], ids=["vxlan", "host-gw", "mesh"])
def mesh(cluster: Cluster, request: pytest.FixtureRequest) -> Mesh:
    return Mesh(cluster, request.param)


def test_a_part_that_is_lost_is_served_on_and_nothing_goes_before_all_is_known(mesh: Mesh):
    alpha, beta, gamma = mesh.start()
    assert [mesh.home(node) for node in mesh.nodes] == ["10.5.10.0/24", "10.5.20.0/24", "10.5.30.0/24"]
    here, there, far = alpha.pod(), beta.pod(), gamma.pod()
    assert reaches(here, there.ips[0])
    assert reaches(here, far.ips[0])
    with nothing_lost(here, far, far.ips[0]), nothing_lost(here, there, there.ips[0]):
        cut(alpha, gamma)
        alpha.says(r"STORE-001 store: it hears nothing of 1 lease: gamma \(not a word from them\)")
        assert alpha.ready, "it hears of the others"
        assert "10.5.30.0/24" in routes(alpha)
        # It starts again and knows of gamma by what it remembers alone; and of what nobody wants, too little.
        alpha.stop()
        alpha.ip(f"route add {STRAY} via {beta.public_v4} dev eth0 proto 165")
        mesh.spawn(alpha)
        alpha.wait_ready()
        time.sleep(1)  # beta has told of itself many times
        alpha.sees("ip route show proto 165", "^10.5.30.0/24")
        alpha.sees("ip route show proto 165", f"^{STRAY}")
        heal(alpha)
        eventually(lambda: STRAY not in routes(alpha), seconds=10)
        assert "10.5.30.0/24" in routes(alpha)
    assert alpha.ready


def test_nodes_of_sites_with_the_same_addresses_reach_each_other_by_their_ways(cluster: Cluster):
    """Each calls the same address public. What a node sends itself to a pod comes from the base of its block."""
    dual = {**MESH, **DUAL}
    alpha, beta, gamma = Mesh(cluster, dual).start("--public-ip=192.168.1.2")
    here, there, far = alpha.pod(), beta.pod(), gamma.pod()
    for target in (*there.ips, *far.ips):
        assert reaches(here, target)
        assert reaches(alpha.netns, target)
    assert "src 10.5.10.0" in alpha.ip(f"route get {there.ips[0]}")
    assert "src fd05:0:0:10::" in alpha.ip(f"route get {there.ips[1]}")
    assert "10.5.20.0/24 via 10.5.20.0 dev flannel.1 src 10.5.10.0 onlink" in routes(alpha)
    # Without the address that they come from there are no such routes; IPv6's stay, and come from elsewhere.
    alpha.ip("address del 10.5.10.0/32 dev flannel.1")
    alpha.ip("address del fd05:0:0:10::/128 dev flannel-v6.1")
    alpha.sees("ip route show proto 165", "^10.5.30.0/24 .*src 10.5.10.0")
    alpha.sees("ip -6 route show proto 165", "^fd05:0:0:30::/64 .*src fd05:0:0:10::")
    assert reaches(alpha.netns, far.ips[0])
    assert reaches(alpha.netns, far.ips[1])
    alpha.ip("route replace 10.5.30.0/24 via 10.5.30.0 dev flannel.1 onlink proto 165 mtu 1000")
    eventually(lambda: "mtu 1000" not in routes(alpha))


def test_two_that_cannot_meet_reach_each_others_pods_via_a_third(cluster: Cluster):
    """As soon as both ends say so; on the way back to the straight one no packet is lost."""
    mesh = Mesh(cluster, {**MESH, **DUAL})
    alpha, beta, gamma = mesh.start("--ip-masq")
    here, far = alpha.pod(), gamma.pod()
    assert all(reaches(here, target) for target in far.ips)
    for node, other in ((alpha, gamma), (gamma, alpha)):
        node.netns.run(
            f"""nft add table inet parted
            nft add chain inet parted input '{{ type filter hook input priority -300; }}'
            nft add rule inet parted input ip saddr {other.public_v4} udp dport 8472 drop
            nft add rule inet parted input ip6 saddr {other.public_v6} udp dport 8472 drop"""
        )
    assert not reaches(here, far.ips[0], seconds=1)
    assert not reaches(alpha.netns, IPv4Address("10.5.1.30"), seconds=1)
    mesh.go(alpha, gamma="beta")
    mesh.go(gamma, alpha="beta")
    alpha.sees("ip route show proto 165", "^10.5.30.0/24 via 10.5.20.0 dev flannel.1 src 10.5.10.0")
    gamma.sees("ip -6 route show proto 165", "^fd05:0:0:10::/64 via fd05:0:0:20:: dev flannel-v6.1")
    assert reaches(here, far.ips[0]), "the relay has no pods"
    assert source_of_a_datagram(here, far) == str(here.ips[0]), "no relay rewrites it"
    assert not reaches(alpha.netns, IPv4Address("10.5.1.30"), seconds=1), "there the straight way is asked"
    assert reaches(alpha.netns, IPv4Address("10.5.1.20"))
    beta.pod()
    for target in far.ips:
        assert reaches(here, target)
        assert reaches(alpha.netns, target)
    assert "10.5.30.0 lladdr" in alpha.ip("neigh show dev flannel.1 nud permanent"), "so that it can be tried"
    [event] = [each for each in told(alpha) if each["kind"] == "changed" and each["subject"] == "gamma"]
    assert (event["was"], event["now"]) == ("way vxlan", "way via beta (vxlan): port-filtered")
    ways = {peer["id"]: (peer["way"], peer["public"][0]) for peer in asked(alpha)["peers"]}
    assert ways == {
        "beta": ("vxlan", str(beta.public_v4)),
        "gamma": ("via beta (vxlan): port-filtered", str(gamma.public_v4)),
    }
    with nothing_lost(here, far, far.ips[0]):
        alpha.stop()
        mesh.spawn(alpha)
        alpha.wait_ready()
    for node in (alpha, gamma):
        node.netns.run("nft delete table inet parted")
    assert reaches(alpha.netns, IPv4Address("10.5.1.30"))
    with nothing_lost(here, far, far.ips[0]):
        mesh.go(alpha)
        mesh.go(gamma)
        alpha.sees("ip route show proto 165", "^10.5.30.0/24 via 10.5.30.0")
        gamma.sees("ip route show proto 165", "^10.5.10.0/24 via 10.5.10.0")


def test_a_mesh_has_a_back_end_of_its_own(cluster: Cluster):
    cluster.configure({"Network": "10.5.0.0/16", "Backend": {"Type": "mesh"}})
    node = cluster.node(1).spawn()
    node.says("CONF-002 .*Backend.Type.*: mesh, and the store is no mesh")


def test_a_block_that_moves_is_followed_by_the_kernel_and_the_file(mesh: Mesh):
    alpha, beta, gamma = mesh.start()
    here, far = alpha.pod(), gamma.pod()
    with nothing_lost(here, far, far.ips[0]):
        mesh.move(beta, "10.5.77.0/24")
        beta.says("LEASE-004 our subnet is now 10.5.77.0/24, it was 10.5.20.0/24; running pods keep their addresses")
        eventually(lambda: "FLANNEL_SUBNET=10.5.77.1/24" in beta.subnet_file.read_text())
        for node in (alpha, gamma):
            eventually(lambda node=node: "10.5.77.0/24" in routes(node) and "10.5.20.0/24" not in routes(node))
    assert "10.5.20.0" not in beta.ip("address show")
    there = beta.pod()
    assert str(there.ips[0]).startswith("10.5.77.")
    assert reaches(here, there.ips[0])
    assert reaches(there, far.ips[0])

    with nothing_lost(here, there, there.ips[0]):
        mesh.move(beta, "192.0.2.0/24")
        beta.says("LEASE-004 lease beta: its subnet 192.0.2.0/24 is not within 10.5.0.0/16")
        eventually(lambda: not beta.ready)
        assert "FLANNEL_SUBNET=10.5.77.1/24" in beta.subnet_file.read_text()
        mesh.move(beta, "10.5.77.0/24")
        eventually(lambda: beta.ready)
