"""Every plugin in one chain, as runtimes call it: by the installed programs, with and without a daemon."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cni.daemon import CniDaemon
from tests.support.netns import Netns
from tests.support.waiting import eventually
from weft.cni import build
from weft.cni.host.host import RETIRED
from weft.cni.install import executables

WEFT = Path(sys.executable).with_name("weft")
CAPABILITIES = {
    "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
    "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000},
}


class Node:
    """A node with our plugins installed and one network that uses them all."""

    def __init__(self, directory: Path, netns: Netns) -> None:
        self.directory, self.netns, self.bin_dir = directory, netns, directory / "bin"
        executables.install(self.bin_dir)
        ipam = {
            "type": "host-local",
            "dataDir": str(directory / "networks"),
            "ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]],
        }
        plugins: list[dict[str, Any]] = [
            {"type": "bridge", "bridge": "cni7", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "bandwidth", "capabilities": {"bandwidth": True}},
            {"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"},
            {
                "type": "tuning",
                "dataDir": str(directory / "tuning"),
                "mtu": 1400,
                "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1", "net.core.somaxconn": "77"},
            },
            {"type": "sbr"},
        ]
        conf = {"name": "whole", "cniVersion": "1.1.0", "plugins": plugins}
        (directory / "net.d").mkdir()
        (directory / "net.d" / "10-whole.conflist").write_text(json.dumps(conf))

    def cni(self, verb: str, *args: str) -> Any:
        """Run `weft cni VERB` on the node; returns what it printed, decoded."""
        env = {
            "PATH": os.environ["PATH"],
            "WEFT_CNI_SOCKET": str(self.directory / "daemon" / "run" / "cni.sock"),
            "WEFT_STATE_DIR": str(self.directory / "daemon" / "state"),
            "CNI_PATH": str(self.bin_dir),
            "NETCONFPATH": str(self.directory / "net.d"),
            "CAP_ARGS": json.dumps(CAPABILITIES),
        }
        command = [str(WEFT), "cni", verb, "-o", "json", "--cache-dir", str(self.directory / "cache"), "whole", *args]
        pipe = subprocess.PIPE
        with self.netns.popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as child:
            out, err = child.communicate(timeout=200)
        assert child.returncode == 0, err
        return json.loads(out) if out else None

    def left(self) -> set[str]:
        """What tells of any pod: links but those that wait for their deletion, rules, addresses, files of state."""
        shown = [link for link in self.netns.rtnl.links() if link.alias != RETIRED]
        links = {link.name for link in shown} - {"lo", "cni7"}
        rules = self.netns.run("iptables-save; ip6tables-save; nft list ruleset")
        lines = {line for line in rules.splitlines() if "10.77.0." in line or "fd77::" in line}
        directories = [self.directory / "networks" / "whole", self.directory / "tuning", self.directory / "daemon"]
        files = {path.name for each in directories for path in each.rglob("*.json")}
        return links | lines | files | {path.name for path in directories[0].glob("10.*")}


@pytest.fixture(params=["with the daemon", "without a daemon"])
def node(tmp_path: Path, make_netns: Callable[[], Netns], request: pytest.FixtureRequest) -> Iterator[Node]:
    assert build.PROGRAM.build()
    made = Node(tmp_path, make_netns())
    daemon = None
    if request.param == "with the daemon":
        daemon = CniDaemon(tmp_path / "daemon", made.netns, made.bin_dir, ours=True)
    yield made
    if daemon is not None:
        daemon.stop()


def test_the_whole_chain_comes_and_goes(node, make_netns):
    pod = make_netns()
    host_value = node.netns.run("cat /proc/sys/net/core/somaxconn")
    result = node.cni("add", pod.path)
    assert [one["name"] for one in result["interfaces"]][0::2] == ["cni7", "eth0"]
    assert result["interfaces"][3]["name"].startswith("bwp")
    [link] = pod.json("ip -j link show eth0")
    assert link["mtu"] == 1400
    assert pod.run("cat /proc/sys/net/core/somaxconn").strip() == "77"
    assert node.netns.run("cat /proc/sys/net/core/somaxconn") == host_value
    assert "from 10.77.0.2 lookup 100" in pod.run("ip rule")
    shown = node.netns.run("iptables-save -t filter")
    assert "-s 10.77.0.2/32 -j ACCEPT" in shown
    assert "-i cni7 ! -o cni7" in shown
    assert "tbf 1: root" in node.netns.run(f"tc qdisc show dev {result['interfaces'][1]['name']}")
    pod.run("ping -c1 -W5 -I 10.77.0.2 10.77.0.1")
    node.cni("check", pod.path)
    assert node.left()
    for _ in range(2):
        node.cni("del", pod.path)
    assert node.left() == set()


def test_a_namespace_that_is_gone_leaves_nothing(node):
    with subprocess.Popen(["unshare", "-n", "sleep", "100"]) as pod:
        path = f"/proc/{pod.pid}/ns/net"
        own = Path("/proc/self/ns/net").stat().st_ino
        eventually(lambda: Path(path).stat().st_ino != own)
        node.cni("add", path)
        pod.kill()
    node.cni("del", path)
    assert node.left() == set()


@pytest.mark.parametrize("node", ["without a daemon"], indirect=True)
def test_cleanup_removes_what_plugins_have_made_and_frees_what_pods_held(node, make_netns):
    node.netns.run("nft add table ip foreign; iptables -t nat -N FOREIGN")
    nftables = json.loads((node.directory / "net.d" / "10-whole.conflist").read_text())
    nftables["plugins"][3]["backend"] = "nftables"
    (node.directory / "net.d" / "10-whole.conflist").write_text(json.dumps(nftables))
    pod = make_netns()
    node.cni("add", pod.path)
    rules = node.netns.run("nft list ruleset")
    for table in ("weft-hostport", "weft-firewall", "dnat"):
        assert table in rules
    command = [str(WEFT), "cleanup", f"--state-dir={node.directory / 'daemon' / 'state'}", "--subnet-file=/nonexistent"]
    would = node.netns.run([*command, "--dry-run"]).splitlines()
    said = node.netns.run(command).splitlines()
    assert said[-1] == "nothing of weft is left in the kernel"
    would, did = ([line for line in lines[:-1] if "/run/weft" not in line] for lines in (would, said))  # it is shared
    assert [line.replace("would remove", "removed") for line in would] == did
    for part in ("table inet weft-hostport", "table inet weft-firewall", "link cni7", "what "):
        assert [line for line in said if line.startswith(f"removed {part}")]
    rules = node.netns.run("nft list ruleset; iptables-save")
    for gone in ("weft", "dnat", "10.77.0."):
        assert gone not in rules
    assert "foreign" in rules
    assert "FOREIGN" in rules
    # What tuning keeps for its own DEL is no one's address or rule.
    assert node.left() == {path.name for path in (node.directory / "tuning").iterdir()}
