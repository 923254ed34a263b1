"""A store that is the daemon itself: it works beside the node, knows a part at times, and gives the node another block.

Nothing is removed on incomplete knowledge, and no packet between living pods is lost.
"""

import json
import time

import pytest

from tests.node import meshstore
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import HOST_GW, VXLAN, Cluster, Daemon, eventually

NAMES = {1: "alpha", 2: "beta", 3: "gamma"}
STRAY = "10.5.99.0/24"


class Mesh:
    """Three nodes without a server."""

    def __init__(self, cluster: Cluster, backend: dict[str, object]) -> None:
        self.nodes = [cluster.node(number) for number in NAMES]
        addresses = {NAMES[node.number]: str(node.public_v4) for node in self.nodes}
        self._mesh = json.dumps({"config": backend, "nodes": addresses})

    def spawn(self, node: Daemon) -> None:
        node.program = "tests.node.meshstore"
        block = f"10.5.{node.number * 10}.0/24"
        node.spawn(env={"MESH": self._mesh, "NODE": NAMES[node.number], "HOME_BLOCK": block})

    def start(self) -> list[Daemon]:
        for node in self.nodes:
            self.spawn(node)
        for node in self.nodes:
            node.wait_ready()
            eventually(lambda node=node: len(node.ip("route show proto 165").splitlines()) == 2)
        return self.nodes

    def home(self, node: Daemon) -> str:
        [file] = node.state_dir.glob("*/store/home")
        return file.read_text()

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


def routes(node: Daemon) -> str:
    return node.ip("route show proto 165")


@pytest.fixture(params=[VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
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
