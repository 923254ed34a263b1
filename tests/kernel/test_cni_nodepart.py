"""weft's node part: what stands in for weftd on a node that has neither Python nor this C library."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cni.standins import kill_stand_ins
from tests.support.netns import SECONDS, Netns
from tests.support.weftd import eventually
from weft.cni.install import nodepart
from weft.model.errors import Unavailable

BUSYBOX = Path("/bin/busybox")
MUSL = Path("/lib/ld-musl-x86_64.so.1")
SUBNET = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
# As the DaemonSet's init container sees the node: two of its directories, and nothing else.
INSTALL = """
mount -t tmpfs none /var/lib && mkdir /var/lib/weft && mount --bind {root}/var/lib/weft /var/lib/weft &&
mount -t tmpfs none /opt && mkdir -p /opt/cni/bin && mount --bind {root}/opt/cni/bin /opt/cni/bin &&
env -u WEFT_STATE_DIR {weft} cni install --self-contained --network=none -o json
"""


class BareNode:
    """A node whose root has busybox and musl, and weft's plugins as a DaemonSet puts them there."""

    def __init__(self, root: Path, netns: Netns) -> None:
        self.root = root
        self.netns = netns
        for folder in (
            "bin",
            "lib",
            "proc",
            "sys",
            "dev",
            "run/flannel",
            "run/weft",
            "var/lib/weft",
            "opt/cni/bin",
            "tmp",
        ):
            (root / folder).mkdir(parents=True)
        shutil.copy(BUSYBOX, root / "bin" / "busybox")
        (root / "bin" / "sh").symlink_to("busybox")
        shutil.copy(MUSL, root / "lib" / MUSL.name)
        install = INSTALL.format(root=root, weft=Path(sys.executable).with_name("weft"))
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-ec", install], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        self.installed = json.loads(done.stdout)
        (root / "run/flannel/subnet.env").write_text(SUBNET)
        mounts = f"mount -t proc none {root}/proc; mount --bind /dev {root}/dev; mount -t sysfs none {root}/sys"
        self.holder = netns.popen(["unshare", "--mount", "sh", "-ec", f"{mounts}; exec sleep infinity"])
        eventually(lambda: not self.run("/bin/busybox", "test", "-e", "/sys/class/net").returncode)

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "--net", "chroot", str(self.root), *command]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.inside(*command), capture_output=True, text=True, check=False, timeout=SECONDS)

    def call(self, command: str, plugin: str, conf: dict[str, Any], pod: str = "", **more: str) -> Any:
        """Call a plugin as a runtime on the node does, which has nothing in its environment."""
        env = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": pod,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
            "PATH": "/bin",
            **more,
        }
        words = ["/bin/busybox", "env", "-i", *(f"{key}={value}" for key, value in env.items())]
        stdin = json.dumps({"cniVersion": "1.1.0", "name": "cbr0", "type": plugin, **conf})
        done = subprocess.run(
            self.inside(*words, f"/opt/cni/bin/{plugin}"),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        return json.loads(done.stdout) if done.stdout else None

    def close(self) -> None:
        kill_stand_ins(Path("/run/weft"), root=self.root)
        self.holder.send_signal(signal.SIGKILL)


@pytest.fixture
def bare(tmp_path: Path, netns: Netns) -> Iterator[BareNode]:
    node = BareNode(tmp_path / "root", netns)
    try:
        yield node
    finally:
        node.close()


CHAIN: dict[str, Any] = {"delegate": {"isDefaultGateway": True, "hairpinMode": True}}
PORTS: dict[str, Any] = {
    "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
}


def test_a_pod_is_attached_checked_and_detached(bare: BareNode, make_netns):
    assert bare.installed["interpreter"].startswith("/var/lib/weft/node/")
    assert bare.run("/bin/sh", "-c", "exec python3").returncode != 0
    pod = make_netns()
    result = bare.call("ADD", "flannel", CHAIN, pod.path)
    assert "ips" in result, result
    assert [ip["address"] for ip in result["ips"]] == ["10.244.1.2/24"]
    assert bare.netns.run("ping -c1 -W2 10.244.1.2")
    assert pod.run("ping -c1 -W2 10.244.1.1")
    mapped = bare.call("ADD", "portmap", {**PORTS, "prevResult": result}, pod.path)
    assert mapped["ips"] == result["ips"]
    assert "8080" in bare.netns.run("nft list ruleset")
    assert bare.call("CHECK", "flannel", {**CHAIN, "prevResult": result}, pod.path) is None
    assert bare.call("CHECK", "portmap", {**PORTS, "prevResult": result}, pod.path) is None
    assert bare.call("STATUS", "flannel", CHAIN) is None
    assert bare.call("DEL", "portmap", {**PORTS, "prevResult": result}, pod.path) is None
    assert bare.call("DEL", "flannel", CHAIN, pod.path) is None
    assert pod.rtnl.link("eth0") is None
    assert "8080" not in bare.netns.run("nft list ruleset")
    assert not (bare.root / "var/lib/cni/networks/cbr0/10.244.1.2").exists()


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_rules_are_made_by_the_programs_that_came_along(bare: BareNode, make_netns, backend: str):
    pod = make_netns()
    result = bare.call("ADD", "flannel", CHAIN, pod.path)
    conf = {**PORTS, "backend": backend, "snat": True, "prevResult": result}
    assert "ips" in bare.call("ADD", "portmap", conf, pod.path)
    assert bare.call("CHECK", "portmap", conf, pod.path) is None
    assert bare.call("DEL", "portmap", conf, pod.path) is None


def test_gc_frees_what_no_attachment_needs(bare: BareNode, make_netns):
    pod = make_netns()
    assert bare.call("ADD", "flannel", CHAIN, pod.path)["ips"]
    assert bare.call("GC", "flannel", {**CHAIN, "cni.dev/valid-attachments": []}) is None
    assert not (bare.root / "var/lib/cni/networks/cbr0/10.244.1.2").exists()


def test_without_a_lease_status_says_so_at_once_and_the_first_pods_wait_for_it(bare: BareNode, make_netns):
    lease = bare.root / "run/flannel/subnet.env"
    lease.unlink()
    said = bare.call("STATUS", "flannel", CHAIN)
    assert said["code"] == 50
    assert "weftd does not run on this node" in said["details"]
    pod = make_netns()
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": pod.path, "CNI_IFNAME": "eth0"}
    words = ["/bin/busybox", "env", "-i", "CNI_PATH=/opt/cni/bin", *(f"{key}={value}" for key, value in env.items())]
    waiting = subprocess.Popen(
        bare.inside(*words, "/opt/cni/bin/flannel"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert waiting.stdin is not None
    waiting.stdin.write(json.dumps({"cniVersion": "1.1.0", "name": "cbr0", "type": "flannel", **CHAIN}))
    waiting.stdin.close()
    waiting.stdin = None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1)
    lease.with_suffix(".new").write_text(SUBNET)
    lease.with_suffix(".new").rename(lease)
    assert json.loads(waiting.communicate(timeout=SECONDS)[0])["ips"]


def test_a_directory_that_a_kubelet_has_made_is_closed(bare: BareNode):
    made = bare.root / "run/weft"
    made.chmod(0o755)
    assert bare.call("STATUS", "loopback", {}) is None
    assert made.stat().st_mode & 0o777 == 0o700


def test_people_find_weft_in_it(bare: BareNode):
    done = bare.run("/var/lib/weft/node/current/bin/weft", "--version")
    assert done.stdout.startswith("weft "), done.stderr


class TestVersions:
    """Of one place: what is put there, and put there again."""

    @pytest.fixture(scope="class")
    @staticmethod
    def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
        place = tmp_path_factory.mktemp("state") / "node"
        nodepart.put(place)
        return place

    def test_what_is_whole_stays(self, place: Path):
        before = (place / "current").resolve().stat()
        assert nodepart.put(place) == nodepart.known(place)
        assert (place / "current").resolve().stat().st_ino == before.st_ino

    @pytest.mark.parametrize("how", ["changed", "removed", "cut"])
    def test_what_is_damaged_is_put_there_anew(self, place: Path, how: str):
        victim = (place / "current" / "lib" / "ld.so").resolve()
        before = victim.read_bytes()
        if how == "removed":
            victim.unlink()
        else:
            victim.write_bytes(before[:-1] + b"!" if how == "changed" else before[: len(before) // 2])
        nodepart.put(place)
        assert victim.read_bytes() == before

    def test_a_link_that_leads_elsewhere_is_set_right(self, place: Path):
        link = (place / "current" / "bin").resolve() / "python3"
        link.unlink()
        link.symlink_to("/bin/sh")
        assert nodepart.put(place).readlink() == Path("weft-launch")

    def test_another_version_lies_beside_it_and_the_last_two_stay(self, place: Path, monkeypatch):
        first = nodepart.put(place)
        kept = []
        for version in ("0.0.2", "0.0.3"):
            monkeypatch.setattr(nodepart, "__version__", version)
            kept.append(nodepart.put(place))
        assert nodepart.known(place) == kept[-1]
        assert [each.exists() for each in (first, *kept)] == [False, True, True]
        assert {each.name for each in place.iterdir()} == {"current", *(each.parents[1].name for each in kept)}

    def test_where_it_cannot_run_that_is_said_and_the_one_before_serves(self, place: Path, monkeypatch):
        before = nodepart.known(place)
        monkeypatch.setattr(nodepart, "__version__", "0.0.4")
        monkeypatch.setattr(nodepart, "_TRIAL", "raise SystemExit('no')")
        with pytest.raises(Unavailable, match="CNI-004"):
            nodepart.put(place)
        assert nodepart.known(place) == before
        assert not list(place.glob(".new-*"))


def test_without_room_for_it_plugins_are_installed_all_the_same(tmp_path: Path):
    script = (
        f"mount -t tmpfs -o size=1m none {tmp_path} && export WEFT_STATE_DIR={tmp_path}/state && "
        f"{Path(sys.executable).with_name('weft')} cni install --self-contained --network=none --bin-dir {tmp_path}/bin"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", f"{script}; ls -A {tmp_path}/bin"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "CNI-004" in done.stderr
    assert "bridge" in done.stdout
    assert ".weft-python" not in done.stdout
