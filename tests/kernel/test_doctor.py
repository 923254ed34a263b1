"""`weft doctor` on nodes without weftd: with reference plugins alone, and as flanneld makes one."""

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.netns import Netns
from tests.support.weftd import eventually
from weft.diag.doctor.command import run_fixes
from weft.diag.finding import Command, Finding
from weft.model.errors import Problem

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

    def doctor(self, *options: str, stdin: int | None = None) -> "subprocess.CompletedProcess[str]":
        files = ("--conf-dir", str(self.folder), "--bin-dir", REFERENCE, "--subnet-file", str(self.subnet_file))
        command = [WEFT, "doctor", *files, *options]
        process = self.netns.popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=200)
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
    assert "not seen packets: no pod here has a partner, and no peer an address in the pod network" in said.stdout
    assert said.stdout.endswith("; no packet was sent, so nothing is proved\n")


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


@pytest.fixture
def broken(node: Node) -> Node:
    """A node with two faults that commands mend, and one that its owner alone can."""
    node.netns.bridge("br7", "10.9.0.1/24")
    node.netns.run("sysctl -qw net.ipv4.ip_forward=0; ip link set br7 down")
    node.configure({**BRIDGE, "plugins": [*BRIDGE["plugins"], {"type": "macwand"}]})
    return node


def test_what_is_mended_is_shown_run_and_looked_at_again(broken: Node):
    fixed = broken.doctor("--fix", "--yes")
    assert fixed.returncode == 3  # the plugin is still missing
    lines = fixed.stdout.splitlines()
    forwarding = "sysctl -w net.ipv4.ip_forward=1"
    assert f"  {forwarding}  # turns forwarding on, until something turns it off again" in lines
    assert {f"done     {forwarding}", "done     ip link set br7 up"} <= set(lines)
    assert {"mended   KERN-002 sysctl net/ipv4/ip_forward", "mended   BRIDGE-006 bridge br7"} <= set(lines)
    assert broken.codes() == ["CNI-001"]
    nothing = broken.doctor("--fix", "--yes").stdout
    assert nothing.endswith("so nothing is proved\nno finding has a command that is certain to mend it\n")


@pytest.mark.parametrize("answer, left", [("n", True), ("", True), ("y", False)])
def test_nothing_is_run_unless_somebody_agrees(broken: Node, answer: str, left: bool):
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "w") as terminal:
        terminal.write(f"{answer}\n")
        terminal.flush()
        fixed = broken.doctor("--fix", stdin=theirs)
        os.close(theirs)
    assert "Run 2 commands? [y/N]: " in fixed.stdout
    assert ("KERN-002" in broken.codes()) == left


def test_where_nobody_can_be_asked_nothing_is_run(broken: Node):
    refused = broken.doctor("--fix", stdin=subprocess.DEVNULL)
    assert refused.returncode == 2
    assert "standard input is no terminal, so nobody can be asked. Say --yes to agree" in refused.stderr
    assert "KERN-002" in broken.codes()
    for options in (("--yes",), ("--fix", "-o", "json"), ("--fix", "--from", "x")):
        assert broken.doctor(*options).returncode == 2


def test_a_command_that_fails_is_told_and_ends_no_other(broken: Node):
    ran = broken.netns.call(
        lambda: list(
            run_fixes(
                [
                    finding(Command(("ip", "link", "set", "none", "up"), ""), Command(("true",), "")),
                    finding(Command(("no-such-program",), "")),
                    finding(Command(("true",), "")),
                ]
            )
        )
    )
    assert ran == [
        'failed   ip link set none up: exit 1: Cannot find device "none"',
        "failed   no-such-program: No such file or directory",
        "done     true",
    ]


def finding(*fix: Command) -> Finding:
    return Finding(problem=Problem(code="KERN-002", where="x", seen="y"), fix=fix)


def test_what_cannot_be_seen_is_said(node: Node):
    node.configure(BRIDGE)
    hidden = node.doctor("--bin-dir", "/nowhere")
    assert "not seen plugins: plugins: No such file or directory\n" in hidden.stdout
    assert "2 checks could not see what they need; " in hidden.stdout


def test_in_a_pod_it_does_not_say_that_no_network_manager_runs_on_the_host(node: Node, monkeypatch: pytest.MonkeyPatch):
    node.configure(BRIDGE)
    checked = "link-managers: no network manager takes links of pods for its own"
    assert checked in node.doctor("-v").stdout
    monkeypatch.setenv("POD_NAME", "kube-flannel-ds-x1")
    said = node.doctor("-v").stdout
    assert "not seen link-managers: managers: weft runs in a pod and cannot see" in said
    assert "managers: run '/var/lib/weft/node/" in said
    assert checked not in said


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
        _, err = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "HOST-002 weft doctor: run by user 65534; expected root" in err


def findings(node: Node) -> list[Any]:
    found: list[Any] = json.loads(node.doctor("-o", "json").stdout)["findings"]
    return found


@pytest.mark.parametrize(
    "policy", ["iptables -P FORWARD DROP", "nft 'add table inet f; add chain inet f c {%s; policy drop; }'"]
)
def test_a_bridge_whose_pods_packets_nobody_has_accepted(node: Node, policy: str):
    node.netns.bridge("br7", "10.9.0.1/24")
    node.netns.bridge("up0", "192.0.2.9/24")
    node.netns.run("sysctl -qw net.ipv4.ip_forward=1; ip route add default via 192.0.2.1")
    node.configure(BRIDGE)
    assert not node.codes()
    node.netns.run(policy.replace("%s", "type filter hook forward priority 0"))
    out, published = findings(node)
    assert {(each["code"], each["weight"]) for each in (out, published)} == {("FW-002", "warning")}
    assert out["seen"].startswith("what its pods send is dropped by the policy of ")
    assert '{"type": "firewall"} after the plugin bridge in ' in out["hint"]
    assert published["seen"].startswith("what comes to its published ports is dropped by the policy of ")
    if policy.startswith("iptables"):
        node.netns.run("iptables -I FORWARD -s 10.9.0.0/24 -j ACCEPT")
        node.netns.run(published["hint"].partition("To have it accepted: ")[2])
        assert not node.codes()


def test_an_address_that_a_dhcp_client_gives_a_device_is_named_with_it(flannels: Node):
    assert eventually(flannels.codes) == ["LEASE-005"]
    flannels.netns.run("ip address add 192.0.2.77/24 dev flannel.1")
    client = flannels.folder / "dhcpcd"
    shutil.copy2("/usr/bin/sleep", client)
    with flannels.netns.popen([str(client), "300"]) as running:
        [found] = eventually(lambda: [each for each in findings(flannels) if "dhcpcd" in each["seen"]])
        running.kill()
    assert (found["code"], found["where"]) == ("HOST-001", "link flannel.1")
    assert "denyinterfaces flannel*" in found["hint"]
    flannels.netns.run(found["hint"].rpartition("; then remove the address: ")[2])
    assert eventually(flannels.codes) == ["LEASE-005"]


def test_a_pod_s_own_mtu_counts(flannels: Node, make_netns: Callable[[], Netns]):
    pod = make_netns()
    network = {"type": "flannel", "delegate": {"isDefaultGateway": True}}
    flannels.configure({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [network]})
    flannels.netns.bridge("cni0", "10.244.1.1/24")
    flannels.netns.run(f"ip link add veth1 mtu 1450 type veth peer name eth0 mtu 1450 netns {pod.path}")
    flannels.netns.run("ip link set veth1 master cni0 up")
    assert "MTU-001" not in flannels.codes()
    pod.run("ip link set eth0 mtu 1500")
    [found] = [each for each in findings(flannels) if each["code"] == "MTU-001"]
    assert found["seen"] == "1 pod has MTU 1500 (host end: veth1)"
