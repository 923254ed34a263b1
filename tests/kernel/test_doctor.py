"""`weft doctor` on nodes without weftd: with reference plugins alone, and as flanneld makes one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.netns import Netns
from tests.support.weftd import eventually

WEFT = str(Path(sys.executable).with_name("weft"))
REFERENCE = "/usr/lib/cni"  # Debian's containernetworking-plugins
ENV = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
BRIDGE = {
    "cniVersion": "1.0.0",
    "name": "plain",
    "plugins": [{"type": "bridge", "bridge": "br7", "ipam": {"type": "host-local"}}, {"type": "portmap"}],
}


class Node:
    """A namespace that a doctor examines, with its own directories."""

    def __init__(self, netns: Netns, folder: Path) -> None:
        self.netns, self.folder = netns, folder
        self.subnet_file = folder / "subnet.env"

    def configure(self, conf: dict[str, Any]) -> None:
        (self.folder / "10-net.conflist").write_text(json.dumps(conf))

    def doctor(self, *options: str) -> "subprocess.CompletedProcess[str]":
        files = ("--conf-dir", str(self.folder), "--bin-dir", REFERENCE, "--subnet-file", str(self.subnet_file))
        command = [WEFT, "doctor", *files, *options]
        process = self.netns.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def codes(self) -> list[str]:
        said = self.doctor("-o", "json")
        assert said.stdout, said.stderr
        return [finding["code"] for finding in json.loads(said.stdout)["findings"]]


@pytest.fixture
def node(netns: Netns, tmp_path: Path) -> Node:
    return Node(netns, tmp_path)


@pytest.fixture
def flannels(node: Node, vtep: int) -> Iterator[Node]:
    """A node with one peer, which is away, and a program of flanneld's name."""
    node.subnet_file.write_text(ENV)
    node.configure({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "loopback"}]})
    node.netns.run("sysctl -qw net.ipv4.ip_forward=1; ip link set flannel.1 mtu 1450")
    node.netns.run("ip address add 10.244.1.0/32 dev flannel.1; ip address add 10.244.1.1/24 dev eth0")
    node.netns.run("ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink")
    node.netns.run("ip neigh add 10.244.2.0 lladdr 02:00:00:00:02:07 dev flannel.1 nud permanent")
    node.netns.run("bridge fdb add 02:00:00:00:02:07 dev flannel.1 dst 10.0.0.2 self permanent")
    daemon = node.folder / "flanneld"
    shutil.copy2("/usr/bin/sleep", daemon)
    with node.netns.popen([str(daemon), "300"]) as running:
        yield node
        running.kill()


def test_a_node_with_plugins_alone_that_is_well(node: Node):
    node.netns.bridge("br7", "10.9.0.1/24")
    node.netns.run("sysctl -qw net.ipv4.ip_forward=1")
    node.configure(BRIDGE)
    said = node.doctor("-v")
    assert said.returncode == 0, said.stdout
    assert "ok       forwarding: the kernel forwards pods' packets\n" in said.stdout
    assert said.stdout.endswith(" checks: 0 faults, 0 warnings\n")


def test_what_is_wrong_with_such_a_node(node: Node):
    node.netns.bridge("br7", "10.9.0.1/24")
    node.netns.run("sysctl -qw net.ipv4.ip_forward=0; ip link set br7 down")
    node.configure({**BRIDGE, "plugins": [*BRIDGE["plugins"], {"type": "macwand"}]})
    assert sorted(node.codes()) == ["BRIDGE-006", "CNI-001", "KERN-002"]


def test_a_command_that_mends_it_mends_it(node: Node):
    node.netns.bridge("br7", "10.9.0.1/24")
    node.netns.run("sysctl -qw net.ipv4.ip_forward=0; ip link set br7 down")
    node.configure(BRIDGE)
    found = json.loads(node.doctor("-o", "json").stdout)["findings"]
    for command in [command for finding in found for command in finding["fix"]]:
        node.netns.run(command)
    assert not node.codes()


def test_what_cannot_be_seen_is_said(node: Node):
    node.configure(BRIDGE)
    hidden = node.doctor("--bin-dir", "/nowhere")
    assert "not seen plugins: plugins: No such file or directory\n" in hidden.stdout
    assert hidden.stdout.endswith("1 check could not see what they need\n")


def test_a_node_of_flanneld(flannels: Node):
    node = flannels
    assert eventually(node.codes) == ["LEASE-005"]
    node.netns.run("bridge fdb delete 02:00:00:00:02:07 dev flannel.1 dst 10.0.0.2 self")
    assert "FDB-001" in node.codes()
    node.netns.run("ip neigh delete 10.244.2.0 dev flannel.1")
    assert "FDB-001" in node.codes()
    node.netns.run("ip neigh replace 10.244.2.0 lladdr 02:00:00:00:02:07 dev flannel.1 nud permanent")
    node.netns.run("ip route delete 10.244.2.0/24")
    assert node.codes() == ["ROUTE-001"]


def test_without_its_daemon_it_is_said(flannels: Node):
    (flannels.folder / "flanneld").rename(flannels.folder / "other")
    for process in flannels.netns._children:
        process.kill()
        process.wait()
    assert "INST-003" in flannels.codes()


def test_an_ordinary_user_is_refused(node: Node):
    asked = "import os; os.setuid(65534); from weft.cli import run; raise SystemExit(run(['doctor']))"
    with node.netns.popen([sys.executable, "-c", asked], stderr=subprocess.PIPE, text=True) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "HOST-002 weft doctor: run by user 65534; expected root" in err
