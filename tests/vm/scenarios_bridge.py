"""bridge with VLANs, in the virtual machine: packets, both families, and the plugin as a program (cni.md §3.5)."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.cni.install.executables import install

BRIDGE = "br-vlan"
TRUNK = [{"id": 101}, {"minID": 200, "maxID": 210}]


class World:
    """A node and as many pods as are asked for."""

    def __init__(self, stack: ExitStack, directory: str) -> None:
        self._stack = stack
        self.site = Site(self.pod(), Path(directory))
        self.host = self.site.host

    def pod(self) -> Netns:
        netns = self._stack.enter_context(Netns())
        # Else every address waits for a second before it is used.
        netns.run("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")
        return netns

    def conf(self, subnet: str = "", **more: Any) -> dict[str, Any]:
        conf = {"cniVersion": "1.1.0", "name": f"net{more.get('vlan', '')}", "type": "bridge", "bridge": BRIDGE, **more}
        if subnet:
            ipam = {"type": "host-local", "dataDir": str(self.site.store), "ranges": [[{"subnet": subnet}]]}
            conf |= {"ipam": ipam, "isDefaultGateway": True}
        return conf

    def add(self, conf: dict[str, Any], id_: str) -> tuple[Netns, Any]:
        """Attach a new pod; returns it with the result."""
        pod = self.pod()
        return pod, self.site.call("bridge", "ADD", conf, container=pod, id_=id_).result

    def vlans(self, port: str) -> dict[int, list[str]]:
        """The VLANs of a port of the host, each with its flags."""
        found: dict[int, list[str]] = {}
        for each in self.host.json(f"bridge -j vlan show dev {port}"):
            for vlan in each["vlans"]:
                for number in range(vlan["vlan"], vlan.get("vlanEnd", vlan["vlan"]) + 1):
                    found[number] = vlan.get("flags", [])
        return found

    def addresses(self, link: str) -> list[str]:
        [found] = self.host.json(f"ip -j addr show {link}")
        return [f"{each['local']}/{each['prefixlen']}" for each in found["addr_info"] if each["scope"] == "global"]


OWN = ["PVID", "Egress Untagged"]


@contextmanager
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, stack.enter_context(tempfile.TemporaryDirectory()))


def pings(netns: Netns, address: str) -> bool:
    return "1 received" in netns.run(f"ping -c1 -W2 {address} || true")


def address(result: Any) -> str:
    return str(result["ips"][0]["address"]).split("/")[0]


def check_both_families_and_masquerading() -> None:
    with world() as here:
        conf = here.conf("10.1.2.0/24", vlan=100, ipMasq=True, ipMasqBackend="nftables")
        conf["ipam"]["ranges"].append([{"subnet": "fd00:1::/64"}])
        pod, result = here.add(conf, "c1")
        assert here.addresses(f"{BRIDGE}.100") == ["10.1.2.1/24", "fd00:1::1/64"]
        assert pings(pod, "10.1.2.1")
        assert pings(pod, "fd00:1::1")
        assert address(result) in here.host.run("nft list ruleset")
        assert here.site.call("bridge", "DEL", conf, container=pod).exit == 0
        assert address(result) not in here.host.run("nft list ruleset")


def check_tagged_frames_of_a_trunk_reach_the_vlan() -> None:
    with world() as here:
        trunk, _ = here.add(here.conf(vlanTrunk=TRUNK), "c1")
        plain, _ = here.add(here.conf(vlan=101), "c2")
        trunk.run("ip link add link eth0 name eth0.101 type vlan id 101; ip addr add 10.3.0.1/24 dev eth0.101")
        trunk.run(
            "ip link set eth0.101 up; ip link add link eth0 name eth0.300 type vlan id 300; ip link set eth0.300 up"
        )
        plain.run("ip addr add 10.3.0.2/24 dev eth0")
        assert pings(trunk, "10.3.0.2")
        # A VLAN that is not in the trunk ends at the bridge.
        trunk.run("ip addr del 10.3.0.1/24 dev eth0.101; ip addr add 10.3.0.1/24 dev eth0.300")
        assert not pings(trunk, "10.3.0.2")


def check_the_program_itself() -> None:
    """The installed program, as a runtime runs it where no daemon answers."""
    with world() as here, tempfile.TemporaryDirectory() as state:
        conf = here.conf("10.1.2.0/24", vlan=100)
        pod = here.pod()
        python = Path(state, "python")
        python.write_text(f'#!/bin/sh\nshift  # -I\nPYTHONPATH={":".join(sys.path)} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        program = install(Path(state, "bin"), interpreter=python).bin_dir / "bridge"

        def run(command: str) -> str:
            env = here.site.env(command, pod, id_="c1", ifname="eth0", netns=None, args="")
            done = here.host.call(
                lambda: subprocess.run(
                    [program],
                    env={**os.environ, **env, "WEFT_STATE_DIR": state, "WEFT_CNI_SOCKET": f"{state}/run/cni.sock"},
                    input=json.dumps(conf).encode(),
                    capture_output=True,
                    check=False,
                )
            )
            assert done.returncode == 0, done
            return done.stdout.decode()

        result = json.loads(run("ADD"))
        assert here.vlans(result["interfaces"][1]["name"]) == {100: OWN}
        assert pings(pod, "10.1.2.1")
        run("DEL")
