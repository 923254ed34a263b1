"""This weft beside an older one: docs/reference/versions.md says what then has to work.

There is no release yet, so the older one is a commit, built from this repository's history. A release that changes what
a promise is about moves it to the release before.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node.plugincalls import Runtime
from tests.support.checkout import CHECKOUT
from tests.support.netns import Netns
from tests.support.traffic import Pings
from tests.support.weftd import Cluster, Daemon, eventually
from weft.model.value import Value

OLDER: Final = (
    "5b12392bafe79b74255f9cd1289f48e44612c494"  # the first with `weft status`; its client speaks today's protocol
)
COMMAND: Final = (sys.executable, "-c", "from weft.cli import main; main()")
NET_CONF: Final = '{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}'


class Weft(Value):
    """A version of weft: what makes Python take it, and the directory with its plugins."""

    environment: dict[str, str]
    bin_dir: Path

    @classmethod
    def at(cls, source: Path, bin_dir: Path) -> "Weft":
        environment = {"PYTHONPATH": str(source)}
        everything = {**os.environ, **environment, "WEFT_STATE_DIR": str(bin_dir / "state")}
        subprocess.run([sys.executable, "-m", "weft.cni.build"], env=everything, check=True, capture_output=True)
        place = ["--bin-dir", str(bin_dir), "--conf-dir", str(bin_dir / "net.d")]
        subprocess.run([*COMMAND, "cni", "install", *place], env=everything, check=True, capture_output=True)
        return cls(environment=environment, bin_dir=bin_dir)

    def status(self, node: Daemon) -> dict[str, Any]:
        socket = {"WEFT_CNI_SOCKET": str(node.folder / "cni" / "cni.sock")}
        asked = node.netns.popen(
            [*COMMAND, "status", "-o", "json"], env={**os.environ, **self.environment, **socket}, stdout=subprocess.PIPE
        )
        said, _ = asked.communicate(timeout=60)
        assert asked.returncode == 0, said
        return dict(json.loads(said))


@pytest.fixture(scope="module")
def this(tmp_path_factory: pytest.TempPathFactory) -> Weft:
    return Weft.at(CHECKOUT / "src", tmp_path_factory.mktemp("this"))


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Weft:
    folder = tmp_path_factory.mktemp("older")
    archive = subprocess.run(
        ["git", "-c", "tar.umask=0022", "archive", OLDER, "src"], cwd=CHECKOUT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=archive, check=True)
    return Weft.at(folder / "src", folder / "bin")


def attach(runtime: Runtime, name: str) -> Netns:
    pod = Netns()
    runtime.node.pods.append(pod)
    assert "ips" in runtime.ask("ADD", name, pod), name
    return pod


@pytest.mark.parametrize("daemon, client", [("this", "older"), ("older", "this")])
def test_plugins_and_commands_speak_with_a_daemon_of_another_version(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, daemon: str, client: str
):
    weft, other = request.getfixturevalue(daemon), request.getfixturevalue(client)
    cluster.configure(NET_CONF)
    node = cluster.node(1).start(env=weft.environment)
    runtime = Runtime(node, tmp_path, other.bin_dir)
    pod = attach(runtime, "c1")
    assert runtime.owners == {"c1"}
    assert "state UP" in pod.run("ip link show eth0")
    assert other.status(node)["ready"] is True
    assert runtime.ask("DEL", "c1", pod) is None
    assert runtime.owners == set()


def test_a_node_goes_up_and_down_while_pods_speak(cluster: Cluster, tmp_path: Path, this: Weft, older: Weft):
    """Its lease, its pods and every packet stay; the other node runs the older version all the time."""
    cluster.configure(NET_CONF)
    node, peer = cluster.node(1).start(env=older.environment), cluster.node(2).start(env=older.environment)
    calls = {weft.bin_dir: Runtime(node, tmp_path / "one", weft.bin_dir) for weft in (this, older)}
    before = attach(calls[older.bin_dir], "before")
    there = attach(Runtime(peer, tmp_path / "two", older.bin_dir), "there")
    address = peer.subnets[0][2]
    assert address.compressed in there.run("ip -4 -o address show eth0")
    lease, macs = node.subnets, node.macs
    eventually(lambda: "1 received" in before.run(f"ping -c 1 -W 1 {address}", check=False))
    with Pings(before, address) as pings:
        for step, weft in enumerate((this, older, this)):
            node.stop()
            node.start(env=weft.environment)
            assert (node.subnets, node.macs) == (lease, macs)
            attach(calls[weft.bin_dir], f"c{step}")
    assert pings.sent > 100
    assert pings.lost == []
    runtime = calls[this.bin_dir]
    assert runtime.owners == {"before", "c0", "c1", "c2"}
    for name in sorted(runtime.owners):
        assert runtime.ask("DEL", name) is None
    assert runtime.owners == set()
