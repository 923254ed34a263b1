"""Real daemons in the virtual machine, whose kernel has what this one lacks: wireguard, ipip, udp and ipsec."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.node.ipsecnode import IPSEC, agreed, charon, counts, end_charons
from tests.node.sending import is_refused, send_every_size, transfer
from tests.support import etcd
from tests.support.crossing import cross
from tests.support.netns import Netns
from tests.support.traffic import Capture, Packet, nothing_lost, reaches
from tests.support.weftd import DUAL, VXLAN, Cluster, Daemon, Underlay, eventually
from tests.support.wireguardroutes import networks_go_from_peer_to_peer
from weft.forward.kernelpath import Programs

WG = {**VXLAN, "Backend": {"Type": "wireguard"}}
UDP = {**VXLAN, "Backend": {"Type": "udp"}}
IPIP = {**VXLAN, "Backend": {"Type": "ipip"}}
_ICMP, _UDP, _ESP = 1, 17, 50
_IKE = {500, 4500}  # ports
SECONDS = 60.0  # all is emulated
EVERY = 0.02  # seconds between packets: enough of them, and the daemon has a processor meanwhile


@cache
def underlay() -> Underlay:
    """One with its store for all checks, which ends with the machine: a start of etcd takes long here."""
    return Underlay(Path(tempfile.mkdtemp()) / "store", etcd.debian())


@contextmanager
def cluster(*parts: dict[str, Any], **changes: Any) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = Cluster(underlay(), Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(made.close)
        made.configure(*parts, **changes)
        yield made


def wg(node: Daemon, device: str = "flannel-wg") -> list[list[str]]:
    return [line.split("\t") for line in node.netns.run(f"wg show {device} dump || true").splitlines()]


def know_each_other(one: Daemon, two: Daemon) -> None:
    for node in (one, two):
        eventually(lambda node=node: len(wg(node)) == 2, seconds=SECONDS)


def check_wireguard_in_the_kernel() -> None:
    """Both families, a restart of the daemon without a lost packet, and all that is mended."""
    with cluster({**WG, **DUAL}) as here:
        one, two = here.nodes(1, 2)
        know_each_other(one, two)
        cross(one, two)
        [link] = one.netns.json("ip -d -j link show flannel-wg")
        assert (link["linkinfo"]["info_kind"], link["mtu"], link["ifalias"]) == ("wireguard", 1420, "weft:vtep")
        _sends(one, two)
        pod, other = one.pods[0], two.pods[0]
        index, own = link["ifindex"], wg(one)[0]
        with nothing_lost(pod, other, other.ips[0], every=EVERY):
            one.stop()
            one.start()
        assert one.netns.json("ip -j link show flannel-wg")[0]["ifindex"] == index
        assert wg(one)[0] == own
        assert not one.lines("ERROR|put back")
        [peer] = wg(one)[1:]
        one.netns.run(f"wg set flannel-wg listen-port 7 peer {peer[0]} remove")
        eventually(
            lambda: (wg(one)[0][2], [each[:4] for each in wg(one)[1:]]) == ("51820", [peer[:4]]), seconds=SECONDS
        )
        one.ip("link delete flannel-wg")
        eventually(lambda: len(wg(one)) == 2, seconds=SECONDS)
        eventually(lambda: reaches(pod, other.ips[0]), seconds=SECONDS)


def check_networks_go_from_peer_to_peer() -> None:
    with Netns() as netns:
        netns.run("ip link add wgroutes type wireguard")
        networks_go_from_peer_to_peer(netns, "wgroutes")


def check_one_device_for_both_families_with_a_shared_key() -> None:
    psk = subprocess.run(["wg", "genpsk"], capture_output=True, text=True, check=True).stdout.strip()
    options = {"Type": "wireguard", "Mode": "ipv6", "PSK": psk, "PersistentKeepaliveInterval": 25, "MTU": 1400}
    with cluster({**WG, **DUAL}, Backend=options) as here:
        one, two = here.nodes(1, 2)
        know_each_other(one, two)
        cross(one, two)
        [(_, seen, endpoint, allowed, *_, keepalive)] = wg(one)[1:]
        assert (seen, endpoint, keepalive) == (psk, f"[{two.public_v6}]:51820", "25")
        assert set(allowed.split(",")) == {str(two.v4), str(two.v6)}
        assert one.env["FLANNEL_MTU"] == "1320"


def _sends(one: Daemon, two: Daemon) -> None:
    """Streams, datagrams of every size and errors; fewer megabytes than elsewhere, for all is emulated."""
    here, there = one.pods[0], two.pods[0]
    for far in there.ips:
        assert transfer(here, there, far, megabytes=10)
        send_every_size(here, there, far, mtu=int(one.env["FLANNEL_MTU"]))
        assert is_refused(here, far)


def check_ipip_between_daemons() -> None:
    with cluster(IPIP) as here:
        one, two = here.nodes(1, 2)
        cross(one, two)
        assert one.env["FLANNEL_MTU"] == "1480"
        _sends(one, two)
        pod, other = one.pods[0], two.pods[0]
        with nothing_lost(pod, other, other.ips[0], every=EVERY):
            one.stop()
            one.start()


def check_udp_by_another_kernel() -> None:
    """Debian's takes the programs as well, and carries the packets of both directions by them."""
    with cluster(UDP) as here:
        one, two = here.nodes(1, 2)
        one.says("the kernel carries packets itself")
        cross(one, two)
        pod, other = one.pods[0], two.pods[0]
        with nothing_lost(pod, other, other.ips[0], every=EVERY):
            one.stop()
            one.start()
        programs = two.netns.call(lambda: Programs.find("flannel0"))
        assert programs
        assert min(programs.packets().values()) > 50, programs.packets()
        programs.close()


def check_ipsec_in_the_kernel() -> None:
    """Packets go as ESP, also while the daemon starts again; none is lost, nor while neither it nor a charon runs."""
    with cluster(IPSEC) as here:
        one, two = here.nodes(1, 2)
        try:
            agreed([one, two], seconds=SECONDS)
            assert counts(one) == {"connections": 1, "sessions": 1, "in user space": 0}
            assert "replay_window 1024" in one.netns.run("ip xfrm state")
            assert one.env["FLANNEL_MTU"] == "1423"
            with closing(Capture(two.netns, "eth0")) as capture:
                cross(one, two)
                seen = capture.packets()
            _goes_as_esp(seen, one, two)
            _sends(one, two)
            _outlives_its_daemon_and_charon(one, two)
            _policies_come_back(one, two)
        finally:
            end_charons(here)


def _goes_as_esp(seen: Sequence[Packet], one: Daemon, two: Daemon) -> None:
    """Of what passed between two nodes while pods talked, all that may be a pod's is ESP.

    Meanwhile nodes may agree on keys again and the store's packets be seen, on a busy machine more than on others. What
    the receiver's kernel has decrypted it shows once more at the same link, with the pods' addresses.
    """
    between = [packet for packet in seen if (packet.source, packet.target) == (one.public_v4, two.public_v4)]
    carrying = [packet for packet in between if not (packet.protocol == _UDP and _IKE & set(packet.ports))]
    assert {packet.protocol for packet in carrying if packet.protocol != _ICMP} == {_ESP}


def _outlives_its_daemon_and_charon(one: Daemon, two: Daemon) -> None:
    pod, other, before = one.pods[0], two.pods[0], charon(one)
    with nothing_lost(pod, other, other.ips[0], every=EVERY):
        one.stop()
        one.start()
        assert charon(one) == before
        one.kill()
        os.kill(before, signal.SIGKILL)
        eventually(lambda: not charon(one), seconds=SECONDS)
    # While a new one agrees on keys, packets are lost: the peer uses them before they are here.
    one.start()
    assert charon(one) not in (0, before)
    agreed([one, two], seconds=SECONDS)
    eventually(lambda: reaches(pod, other.ips[0]), seconds=SECONDS)


def _policies_come_back(one: Daemon, two: Daemon) -> None:
    one.netns.run("ip xfrm policy flush")
    eventually(lambda: one.netns.run("ip xfrm policy").count("reqid 11") == 3, seconds=SECONDS)
    one.says("FDB-001.*IPsec policy out", seconds=SECONDS)
    eventually(lambda: reaches(one.pods[0], two.pods[0].ips[0]), seconds=SECONDS)


def _without(module: str, conf: dict[str, Any], says: str) -> None:
    """A node whose kernel lacks a module says so, and is ready once it is there."""
    [file] = Path("/usr/lib/modules").rglob(f"{module}.ko*")
    hidden = file.with_name("hidden")
    subprocess.run(["busybox", "rmmod", module], check=True)
    file.rename(hidden)
    try:
        with cluster(conf) as here:
            node = here.node(1).spawn()
            node.says(says, seconds=SECONDS)
            assert node.get("/readyz")[0] == 503
            hidden.rename(file)
            node.wait_ready(SECONDS)
    finally:
        if hidden.exists():
            hidden.rename(file)


def check_without_wireguard() -> None:
    _without("wireguard", WG, "VTEP-002 link flannel-wg wireguard .*the kernel refuses it.*see `modprobe wireguard`")


def check_without_ipip() -> None:
    _without("ipip", IPIP, "VTEP-002 link flannel.ipip ipip .*the kernel refuses it.*see `modprobe ipip`")
