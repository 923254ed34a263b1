"""A host whose kernel has no nf_tables, with iptables-legacy alone: the daemon and the plugins work, or say why not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import published
from tests.support.netns import Netns
from tests.support.oldkernel import NO_NF_TABLES
from tests.support.published import PORT, Answering
from tests.support.weftd import VXLAN, Cluster, Daemon, eventually
from weft.cni import build
from weft.cni.install.executables import install

WEFT = Path(sys.executable).with_name("weft")
RULES = "iptables-legacy-save; ip6tables-legacy-save"


class Host:
    """Such a host, with a daemon, our plugins, and conflists by name: `weft cni` runs on it as a runtime would."""

    def __init__(self, node: Daemon, bin_dir: Path) -> None:
        self.node, self.bin_dir, self.conflists = node, bin_dir, node.folder / "net.d"
        self.conflists.mkdir()

    def network(self, name: str, **firewall: str) -> None:
        plugins = [
            {
                "type": "flannel",
                "subnetFile": str(self.node.subnet_file),
                "dataDir": str(self.node.folder / "flannel"),
                "ipam": {"dataDir": str(self.node.folder / "networks")},
                "delegate": {"isDefaultGateway": True, "hairpinMode": True},
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "firewall", **firewall},
        ]
        text = json.dumps({"name": name, "cniVersion": "1.1.0", "plugins": plugins})
        (self.conflists / f"{name}.conflist").write_text(text)

    def cni(self, verb: str, network: str, pod: Netns) -> tuple[int, str]:
        """Run `weft cni VERB`; returns its status and all that it said."""
        mappings = [{"hostPort": PORT, "containerPort": PORT, "protocol": kind} for kind in ("tcp", "udp")]
        env: dict[str, Any] = {
            "PATH": os.environ["PATH"],
            "WEFT_CNI_SOCKET": str(self.node.folder / "cni" / "cni.sock"),
            "WEFT_STATE_DIR": str(self.node.state_dir),
            "CNI_PATH": str(self.bin_dir),
            "NETCONFPATH": str(self.conflists),
            "CAP_ARGS": json.dumps({"portMappings": mappings}),
        }
        cache = str(self.node.folder / "cache")
        command = [*NO_NF_TABLES, str(WEFT), "cni", verb, "--cache-dir", cache, network, str(pod.path)]
        pipe = subprocess.PIPE
        with self.node.netns.popen(command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as child:
            said, _ = child.communicate(timeout=200)
        return child.returncode, said


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def host(cluster: Cluster, bin_dir: Path) -> Host:
    cluster.configure()
    return Host(cluster.node(1), bin_dir)


@pytest.mark.parametrize("masquerades", ["weftd", "plugins"])
def test_pods_and_their_ports_work_by_iptables_legacy_and_leave_nothing(cluster: Cluster, host: Host, masquerades: str):
    other = cluster.node(2).start()
    node = host.node
    node.spawn(*(["--ip-masq"] if masquerades == "weftd" else []), wrap=NO_NF_TABLES).wait_ready()
    node.says("WARN.*KERN-001 nf_tables notices: the kernel has none: Protocol not supported")
    before = node.netns.run(RULES)
    assert "-A FLANNEL-FWD" in before
    assert ("-A FLANNEL-POSTRTG" in before) == (masquerades == "weftd")
    host.network("cbr0")
    with Netns() as pod:
        status, said = host.cni("add", "cbr0", pod)
        assert status == 0, said
        status, said = host.cni("check", "cbr0", pod)
        assert status == 0, said
        address = str(node.v4[2])
        assert f"inet {address}/" in pod.run("ip address show eth0")
        assert address in node.netns.run(RULES)
        assert "MASQUERADE" in node.netns.run("iptables-legacy-save -t nat")
        with Answering(pod.path, "web"):
            for udp in (False, True):
                answer = published.ask(other.netns.call, node.public_v4, PORT, udp=udp)
                assert answer == f"web {other.public_v4}"
        # What leaves the pod network has the node's address.
        with Answering(cluster.underlay.switch.path, "outside"):
            assert published.ask(pod.call, "172.31.0.254", PORT) == f"outside {node.public_v4}"
        status, said = host.cni("del", "cbr0", pod)
        assert status == 0, said
    assert address not in node.netns.run(RULES)
    assert node.netns.run("nft list ruleset") == ""
    assert node.ready
    assert "Traceback" not in node.log


def test_rules_of_nf_tables_are_refused_by_name(cluster: Cluster, host: Host):
    cluster.configure(VXLAN, EnableNFTables=True)
    node = host.node
    node.spawn(wrap=NO_NF_TABLES).says("WARN .*up, but not ready: NFT-001 .*HOST-002 nft")
    assert node.subnet_file.exists(), "pods can be made and reach each other"
    host.network("strict", backend="nftables")
    with Netns() as pod:
        status, said = host.cni("add", "strict", pod)
        assert status == 1
        assert "the kernel has no nf_tables" in said
        assert "Traceback" not in said
    eventually(lambda: not [link for link in node.netns.rtnl.links() if link.name.startswith("veth")])
    assert "Traceback" not in node.log
