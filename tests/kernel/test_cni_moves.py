"""A node moves from the reference plugins to weft's and back, with pods running and their ports open."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cni.daemon import CniDaemon
from tests.support.cni.site import REFERENCE
from tests.support.netns import Netns, wire
from tests.support.published import PORT, Answering, ask
from weft.cni import build
from weft.cni.commands.byhand import container_id

WEFT = Path(sys.executable).with_name("weft")
OUTSIDE, NODE = "192.168.7.2", "192.168.7.1"
NAMES = ("bridge", "host-local", "portmap", "loopback")
MAPPED = 8080


class Moving:
    """A node with the reference's plugins in a directory of its own, a client outside, and commands run on it."""

    def __init__(self, directory: Path, make_netns: Callable[[], Netns]) -> None:
        self.make_netns = make_netns
        self.node, self.outside = make_netns(), make_netns()
        wire(self.node, self.outside)
        self.node.run(f"ip addr add {NODE}/24 dev eth0")
        self.outside.run(f"ip addr add {OUTSIDE}/24 dev eth0")
        self.bin_dir, self.directory = directory / "bin", directory
        self.bin_dir.mkdir()
        for name in NAMES:
            shutil.copy2(f"{REFERENCE}/{name}", self.bin_dir)
        ipam = {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": str(directory / "networks")}
        plugins = [
            {"type": "bridge", "bridge": "cni7", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ]
        (directory / "net.d").mkdir()
        for name, version in (("moving", "1.0.0"), ("newest", "1.1.0")):
            conf = {"name": name, "cniVersion": version, "plugins": plugins}
            (directory / "net.d" / f"{name}.conflist").write_text(json.dumps(conf))

    def weft(self, verb: str, *args: str, port: int = 0) -> Any:
        """Run a command line on the node; returns what it printed, decoded."""
        mapping = {"hostPort": port, "containerPort": PORT, "protocol": "tcp"}
        env = {
            "PATH": os.environ["PATH"],
            "WEFT_CNI_SOCKET": str(self.directory / "daemon" / "run" / "cni.sock"),
            "WEFT_STATE_DIR": str(self.directory / "daemon" / "state"),
            "CNI_PATH": str(self.bin_dir),
            "NETCONFPATH": str(self.directory / "net.d"),
            "CAP_ARGS": json.dumps({"portMappings": [mapping]}) if port else "",
        }
        if verb in ("install", "uninstall", "handback"):
            args = ("--bin-dir", str(self.bin_dir), *args)
        else:
            args = ("--cache-dir", str(self.directory / "cache"), *args)
        with self.node.popen(
            [str(WEFT), "cni", verb, "-o", "json", *args],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            out, err = child.communicate(timeout=200)
        assert child.returncode == 0, err
        return json.loads(out)

    def pod(self, name: str, port: int, stack: ExitStack) -> Netns:
        """Attach a pod that answers at a port of the node."""
        made = self.make_netns()
        self.weft("add", "moving", made.path, port=port)
        stack.enter_context(Answering(made.path, name))
        return made

    def answer(self, port: int) -> str:
        return ask(self.outside.call, NODE, port)

    def taken(self, network: str = "moving") -> list[str]:
        return sorted(path.name for path in (self.directory / "networks" / network).glob("10.*"))

    def reference_is_back(self, name: str) -> bool:
        return (self.bin_dir / name).read_bytes() == Path(REFERENCE, name).read_bytes()


@pytest.fixture(params=["with the daemon", "without a daemon"])
def moving(tmp_path, make_netns, request) -> Iterator[Moving]:
    assert build.PROGRAM.build()
    made = Moving(tmp_path, make_netns)
    daemon = None
    if request.param == "with the daemon":
        daemon = CniDaemon(tmp_path / "daemon", made.node, made.bin_dir, ours=True)
    yield made
    if daemon is not None:
        daemon.stop()


def test_there_and_back_with_pods_running(moving):
    with ExitStack() as stack:
        first = moving.pod("before", MAPPED, stack)
        assert moving.answer(MAPPED) == f"before {OUTSIDE}"

        moving.weft("install", "--conf-dir", str(moving.directory / "unused"))
        assert moving.answer(MAPPED) == f"before {OUTSIDE}"
        moving.weft("check", "moving", first.path, port=MAPPED)
        second = moving.pod("between", MAPPED + 1, stack)
        third = moving.pod("gone", MAPPED + 2, stack)
        assert moving.answer(MAPPED + 1) == f"between {OUTSIDE}"
        assert "weft" in moving.node.run("nft list tables")
        moving.weft("del", "moving", third.path, port=MAPPED + 2)

        done = moving.weft("handback")
        assert done["programs"] == dict.fromkeys(NAMES, "put back")
        assert [each["ifname"] for each in done["port_maps"]] == ["eth0"]
        assert all(map(moving.reference_is_back, NAMES))
        assert "flannel" in done["still_weft"]
        assert "weft" not in moving.node.run("nft list tables")
        assert [moving.answer(port) for port in (MAPPED, MAPPED + 1)] == [f"before {OUTSIDE}", f"between {OUTSIDE}"]
        assert moving.weft("handback")["port_maps"] == []

        for pod, port in ((first, MAPPED), (second, MAPPED + 1)):
            # No CHECK: the reference's portmap looks for IPv6 chains that it never makes for a pod without IPv6.
            moving.weft("del", "moving", pod.path, port=port)
        assert [moving.answer(port) for port in (MAPPED, MAPPED + 1)] == ["", ""]
    assert moving.taken() == []
    assert "CNI-DN-" not in moving.node.run("iptables-save -t nat")
    assert moving.weft("uninstall")["done"]["flannel"] == "removed"
    assert sorted(path.name for path in moving.bin_dir.iterdir()) == sorted(NAMES)


def test_there_may_be_nothing_to_hand_back(moving):
    shutil.rmtree(moving.bin_dir)
    assert moving.weft("handback") == {"networks": {}, "programs": {}, "still_weft": [], "port_maps": []}


def test_gc_frees_what_is_gone_and_nothing_else(moving):
    moving.weft("install", "--conf-dir", str(moving.directory / "unused"))
    pods = {}
    for number, name in enumerate(("alive", "gone", "forgotten")):
        pods[name] = moving.directory / name
        pods[name].symlink_to(moving.make_netns().path)
        moving.weft("add", "newest", str(pods[name]), port=MAPPED + number)
    assert moving.taken("newest") == ["10.77.0.2", "10.77.0.3", "10.77.0.4"]
    # Of the third not even the cache is left: the plugins themselves know of it.
    id_ = container_id(str(pods["forgotten"]))
    (moving.directory / "cache" / "results" / f"newest-{id_}-eth0").unlink()
    for name in ("gone", "forgotten"):
        pods[name].unlink()
    done = moving.weft("gc", "newest")["attachments"]
    assert {each["netns"]: each["state"] for each in done} == {str(pods["alive"]): "kept", str(pods["gone"]): "ended"}
    assert moving.taken("newest") == ["10.77.0.2"]
    moving.weft("check", "newest", str(pods["alive"]), port=MAPPED)
    moving.weft("gc", "newest", "--all")
    assert moving.taken("newest") == []
    assert "elements" not in moving.node.run("nft list ruleset")
