"""A node of reference plugins alone, without any daemon: a namespace with pods on a bridge, and `weft` run there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.netns import Netns

WEFT = str(Path(sys.executable).with_name("weft"))
BRIDGE = {
    "cniVersion": "1.0.0",
    "name": "plain",
    "plugins": [{"type": "bridge", "bridge": "br7", "ipam": {"type": "host-local"}}],
}
NAMES = ("web", "db", "db")  # two with one host name: the second is told by its address


class Node:
    """A namespace with pods of its own on a bridge; each pod is a process with a host name."""

    def __init__(self, netns: Netns, pods: list[Netns], folder: Path) -> None:
        self.netns, self.pods, self.folder = netns, pods, folder
        netns.bridge("br7", "10.9.0.1/24", "fd09::1/64")
        netns.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        (folder / "10-net.conflist").write_text(json.dumps(BRIDGE))
        for number, (pod, name) in enumerate(zip(pods, NAMES, strict=False), 2):
            netns.run(f"ip link add p{number} master br7 up type veth peer name eth0 netns {pod.path}")
            pod.run(f"ip address add 10.9.0.{number}/24 dev eth0; ip address add fd09::{number}/64 dev eth0 nodad")
            pod.run("ip link set eth0 up; ip route add default via 10.9.0.1; ip -6 route add default via fd09::1")
            pod.popen(["unshare", "--uts", "sh", "-c", f"hostname {name}; exec sleep 1000"])

    def check(self, *options: str) -> "subprocess.CompletedProcess[str]":
        command = [WEFT, "check", "--conf-dir", str(self.folder), "--subnet-file", str(self.folder / "none"), *options]
        process = self.netns.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def report(self) -> Any:
        ran = self.check("-o", "json")
        assert ran.stdout, ran.stderr
        return json.loads(ran.stdout)

    def names(self) -> set[str]:
        """The pods that are found."""
        return {
            each["trial"]["source"] for each in self.report()["trials"] if each["trial"]["scenario"] == "pod-itself"
        }


def trace(node: Node, *arguments: str) -> "subprocess.CompletedProcess[str]":
    files = ("--conf-dir", str(node.folder), "--subnet-file", str(node.folder / "none"))
    command = [WEFT, "trace", *files, *arguments]
    process = node.netns.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=200)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def proved(node: Node, *arguments: str) -> Any:
    ran = trace(node, "--probe", "-o", "json", *arguments)
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert ran.returncode == (0 if found["well"] else 3)
    return found
