"""Routes that somebody takes away, and those that take another's place."""

import re
import signal
from pathlib import Path

import pytest

from tests.support.weftd import HOST_GW, VXLAN, Cluster, eventually

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "run-weftd.md"
BACKENDS = pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])


@BACKENDS
def test_a_route_that_went_while_the_daemon_was_away_comes_back_for_good(cluster: Cluster, backend):
    cluster.configure(backend)
    cluster.peers(range(50, 60), BackendType=backend["Backend"]["Type"])
    node = cluster.node(1).start()
    before = node.ip("route show proto 165")
    node.kill()
    for number in range(50, 60):
        node.ip(f"route del 10.5.{number}.0/24")
    cluster.etcd.delete(cluster.key("10.5.59.0-24"))
    node.start()
    left = "".join(line for line in before.splitlines(keepends=True) if "10.5.59.0" not in line)
    eventually(lambda: node.ip("route show proto 165") == left)


@BACKENDS
def test_a_route_that_goes_with_others_comes_back_for_good(cluster: Cluster, backend):
    cluster.configure(backend)
    cluster.peer(50, BackendType=backend["Backend"]["Type"])
    node = cluster.node(1).start()
    before = node.ip("route show proto 165")
    for _ in range(10):
        # The address makes the daemon look at everything; the route is gone when it does.
        node.ip(
            "address add 172.31.0.77/24 dev eth0; ip address del 172.31.0.77/24 dev eth0; ip route del 10.5.50.0/24"
        )
        eventually(lambda: node.ip("route show proto 165") == before)
    assert node.ip("route show proto 165") == before


@BACKENDS
def test_a_subnet_of_another_length_takes_over_the_base_of_one_that_goes(cluster: Cluster, backend):
    cluster.configure(backend)
    kind = backend["Backend"]["Type"]
    node = cluster.node(1).start()
    cluster.peer(50, BackendType=kind)
    node.sees("ip route", "^10.5.50.0/24 ")
    node.signal(signal.SIGSTOP)  # so that it hears of both at once
    cluster.peer(50, lease="10.5.50.0-25", BackendType=kind)
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    node.signal(signal.SIGCONT)
    node.sees("ip route", "^10.5.50.0/25 ")
    eventually(lambda: "10.5.50.0/24" not in node.ip("route"))
    assert "10.5.50.0/25" in node.ip("route")


def test_on_the_way_back_to_flannel_routes_are_made_as_its_own(cluster: Cluster):
    cluster.configure(HOST_GW)
    cluster.peers(range(50, 60), BackendType="host-gw")
    node = cluster.node(1).start()
    ours = node.ip("route show root 10.5.0.0/16 proto 165 scope global")
    assert len(ours.splitlines()) == 10
    node.stop()
    node.ip("route del 10.5.59.0/24 via 172.31.0.59 scope global")
    ours = "".join(line for line in ours.splitlines(keepends=True) if "10.5.59.0" not in line)
    node.ip("route replace 10.5.50.0/24 via 172.31.0.50 proto 165 scope 26")  # as of more than 1,000 peers
    [command] = re.findall(r"```sh\n(ip -4 route show .*)\n```", HOWTO.read_text())
    node.netns.run(command)
    assert node.ip("route show root 10.5.0.0/16 proto boot scope global") == ours
    node.ip("route del 10.5.50.0/24 via 172.31.0.50 scope global")


def test_routes_of_an_earlier_version_get_scope_global_without_a_gap_and_those_too_much_go(cluster: Cluster):
    """It spread all of them over 200 scopes."""
    cluster.configure()
    cluster.peers(range(50, 60))
    node = cluster.node(1).start()
    plain = node.ip("route show proto 165")
    assert "scope" not in plain
    node.stop()
    for number in range(50, 60):
        node.ip(f"route replace 10.5.{number}.0/24 via 10.5.{number}.0 dev flannel.1 onlink proto 165 scope {number}")
    node.ip("route add 10.5.70.0/24 via 10.5.70.0 dev flannel.1 onlink proto 165 scope 70")
    node.start()
    eventually(lambda: node.ip("route show proto 165") == plain)
    assert node.lines("ready")
    assert not node.lines("ROUTE-00[12].*put back")
