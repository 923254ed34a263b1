"""Back end udp: a device, a relay that outlives the daemon, and what becomes of them."""

import json
import os
import re
import signal
import socket
import sys
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from tests.node.test_plan_cleanup import plan, weft
from tests.node.test_status import ask, asked
from tests.support.crossing import cross
from tests.support.squatter import taking
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import DUAL, ONLY_V6, VXLAN, Cluster, Daemon, eventually
from weft.forward.build import PROGRAM
from weft.forward.control import SOCKET, Call
from weft.kernel import tun
from weft.kernel.tun import is_unserved
from weft.model.net import Ip, Net

# Where the kernel has a path of its own, the relay has little to do: what is about the relay asks for it alone.
UDP = {**VXLAN, "Backend": {"Type": "udp", "KernelPath": False}}
BOTH = {**VXLAN, "Backend": {"Type": "udp"}}


@pytest.fixture(params=["the relay", "the kernel"])
def way(cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A cluster whose packets go by the relay, or by the kernel's own path."""
    cluster.configure(UDP if request.param == "the relay" else BOTH)
    return cluster


def connect(node: Daemon) -> Call | None:
    """Connect to the relay of a node; None if there is none."""
    return next(filter(None, map(Call.to, node.state_dir.glob(f"*/{SOCKET}"))), None)


def routes(node: Daemon) -> dict[Net, Ip]:
    """What the relay of a node knows."""
    call = connect(node)
    assert call, f"no relay:\n{node.log}"
    try:
        return call.routes()
    finally:
        call.close()


def relay(node: Daemon) -> int:
    """The process of a node's relay; 0 if there is none."""
    call = connect(node)
    if call is None:
        return 0
    try:
        return call.state().pid
    except OSError:
        return 0
    finally:
        call.close()


@pytest.mark.spec("flannel.md §6.5/device", "flannel.md §6.5/lease", "flannel.md §6.1/mtu-udp")
def test_pods_reach_each_other(cluster: Cluster):
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    cross(one, two)
    assert one.env["FLANNEL_MTU"] == "1472"
    [link] = json.loads(one.ip("-d -j link show flannel0"))
    assert (link["linkinfo"]["info_kind"], link["mtu"], link["ifalias"]) == ("tun", 1472, "weft:vtep")
    assert f"inet {one.v4[0]}/32 scope global flannel0" in one.ip("address show flannel0")
    assert "10.5.0.0/16 dev flannel0 proto 165 scope link" in one.ip("route")
    assert json.loads(cluster.lease_of(one).value) == {"PublicIP": str(one.public_v4), "PublicIPv6": None}


@pytest.mark.parametrize("conf", [UDP, BOTH], ids=["the relay", "the kernel"])
def test_pods_reach_each_other_in_both_families(cluster: Cluster, conf: dict[str, Any]):
    cluster.configure({**conf, **DUAL})
    one, two = cluster.nodes(1, 2)
    cross(one, two)
    assert one.env["FLANNEL_MTU"] == "1472"
    assert f"inet6 {one.v6[0]}/128 scope global" in one.ip("address show flannel0")
    assert "fd05::/48 dev flannel0 proto 165" in one.ip("-6 route")
    assert routes(one) == {two.v4: two.public_v4, two.v6: two.public_v4}
    said = json.loads(cluster.lease_of(one).value)
    assert said.keys() - {"BackendData"} == {"PublicIP", "PublicIPv6"}, "as upstream's, which has no data of IPv6"


def test_pods_reach_each_other_without_ipv4(cluster: Cluster):
    cluster.configure({**BOTH, **ONLY_V6})
    one, two = cluster.nodes(1, 2)
    cross(one, two)
    assert one.env["FLANNEL_MTU"] == "1452"
    assert routes(one) == {two.v6: two.public_v6}
    assert "inet " not in one.ip("address show flannel0")
    assert plan(one).stdout.splitlines()[-1] == "# nothing to do"


def test_a_pod_is_told_what_is_wrong_with_ipv6(cluster: Cluster):
    cluster.configure({**UDP, **DUAL})
    node = cluster.node(1).start()
    pod = node.pod()
    nowhere = pod.run("ping -6 -c 1 -W 2 fd05:0:0:1fe::1 || true")
    assert f"From {node.v6[0]} icmp_seq=1 Destination unreachable: No route" in nowhere


@pytest.mark.parametrize("lease", ["10.5.50.0-24", "10.5.50.0-24&fd05:0:0:150::-64"])
def test_an_upstream_node_beside_those_with_ipv6(cluster: Cluster, lease: str):
    """It may have an IPv6 subnet, but no public IPv6 address, and its relay garbles IPv6 packets."""
    cluster.configure({**UDP, **DUAL})
    node = cluster.node(1).start()
    cluster.peer(50, lease=lease, BackendType="", data=None)
    eventually(lambda: routes(node) == {IPv4Network("10.5.50.0/24"): IPv4Address("172.31.0.50")})
    assert not node.lines("WARN|ERROR")


@pytest.mark.spec("flannel.md §6.5/Port")
def test_the_port_is_that_of_the_configuration_and_of_all_peers(cluster: Cluster):
    cluster.configure(UDP, Backend={"Type": "udp", "Port": 9999, "KernelPath": False})
    one, two = cluster.nodes(1, 2)
    assert reaches(one.pod(), two.pod().ips[0])
    assert f"{one.public_v4}:9999" in one.netns.run("ss -Hnul")


@pytest.mark.spec("flannel.md §6.5/peer-added", "flannel.md §6.5/peer-removed")
def test_peers_come_and_go(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1).start()
    cluster.peer(50, BackendType="", data=None)
    cluster.peer(51, BackendType="vxlan", data={"VNI": 1, "VtepMAC": "02:00:00:00:00:51"})
    there = {IPv4Network("10.5.50.0/24"): IPv4Address("172.31.0.50")}
    eventually(lambda: routes(node) == there)
    node.says("peer ignored: ADDR-002 .*10.5.51.0-24.*backend 'vxlan'; expected udp")
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    eventually(lambda: routes(node) == {})


def test_status_tells_what_the_relay_has_counted(cluster: Cluster):
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    assert reaches(one.pod(), two.pod().ips[0])
    stranger = cluster.node(3)
    stranger.netns.run(["bash", "-c", f"echo strange >/dev/udp/{one.public_v4}/8285"])

    def counted() -> dict[str, int]:
        counts: dict[str, int] = asked(one)["loops"]["relay"]["counts"]
        return counts if "dropped, unknown peer" in counts else {}

    counts = eventually(counted)
    assert counts["dropped, unknown peer"] == 1
    assert counts["packets sent"] == counts["packets received"] > 0
    assert "relay      0 repairs; packets sent " in ask(one).stdout


def test_another_address_of_the_uplink_is_another_relay(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1).start()
    cluster.peer(50, BackendType="", data=None)
    eventually(lambda: routes(node))
    before, known = relay(node), routes(node)
    node.ip("address add 172.31.0.77/24 dev eth0")
    node.ip("address delete 172.31.0.1/24 dev eth0")
    eventually(lambda: "172.31.0.77:8285" in node.netns.run("ss -Hnul"))
    eventually(lambda: relay(node) not in (0, before))
    eventually(lambda: routes(node) == known)


def test_ipv6_is_turned_on_and_off(cluster: Cluster):
    """Another relay, which knows the same peers, and nothing of IPv6 stays."""
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    relays = {relay(one)}
    for conf in ({**UDP, **DUAL}, UDP):
        for node in (one, two):
            node.stop()
        cluster.configure(conf)
        for node in (one, two):
            node.start()
        relays.add(eventually(lambda: relay(one)))
        cross(one, two)
    assert len(relays) == 3
    assert routes(one) == {two.v4: two.public_v4}
    assert "fd05:" not in one.ip("-6 route show dev flannel0") + one.ip("-6 address show dev flannel0")
    assert plan(one).stdout.splitlines()[-1] == "# nothing to do"


@pytest.mark.parametrize("families", [{}, DUAL, ONLY_V6], ids=["IPv4", "dual", "IPv6"])
@pytest.mark.parametrize("conf", [UDP, BOTH], ids=["the relay", "the kernel"])
def test_a_restart_of_the_daemon_loses_no_packet(cluster: Cluster, conf: dict[str, Any], families: dict[str, Any]):
    cluster.configure({**conf, **families})
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[-1])
    before = relay(one)
    known = routes(one)
    with nothing_lost(here, there, there.ips[-1]):
        one.stop()
        one.start()
        one.kill()
        one.start()
    assert relay(one) == before
    assert routes(one) == known
    assert len(known) == len(there.ips)


def test_a_relay_that_dies_is_started_again_and_knows_its_peers(cluster: Cluster):
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    before = relay(one)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: relay(one) not in (0, before))
    eventually(lambda: routes(one) == {two.v4: two.public_v4})
    assert reaches(here, there.ips[0])
    one.says("VTEP-004.*relay of flannel0", seconds=3)


def test_a_name_that_another_has_taken_keeps_no_relay_from_starting(cluster: Cluster):
    """A container in the host's network namespace has the same abstract names, so the relay has none."""
    cluster.configure(UDP)
    node = cluster.node(1)
    with node.netns.call(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as taken:
        taken.bind("\0weft/relay/flannel0")
        taken.listen()
        node.start()
        assert eventually(lambda: relay(node))
    [path] = node.state_dir.glob(f"*/{SOCKET}")
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_relay_that_answers_elsewhere_is_replaced(cluster: Cluster):
    """As one that an older weft has started: it would get its share of the packets."""
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    before, others = relay(one), relay(two)
    one.stop()
    [path] = one.state_dir.glob(f"*/{SOCKET}")
    path.rename(path.with_name("elsewhere"))
    one.start()
    assert eventually(lambda: relay(one)) != before
    assert not Path(f"/proc/{before}/task").exists()
    assert relay(two) == others
    assert reaches(here, there.ips[0])


def thief(node: Daemon, address: str = "", option: int | None = socket.SO_REUSEPORT, port: int = 8285) -> socket.socket:
    """A socket of the node's at a port, as a container's root without any capability can make it."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if option is not None:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            made.bind((address or str(node.public_v4), port))
        except OSError:
            made.close()
            raise
        return made

    return node.netns.call(make)


@pytest.mark.parametrize("option", [socket.SO_REUSEPORT, socket.SO_REUSEADDR, None], ids=["port", "address", "plain"])
def test_nobody_gets_a_share_of_the_datagrams(way: Cluster, option: int | None):
    one, _ = way.nodes(1, 2)
    for address in (str(one.public_v4), "0.0.0.0"):  # noqa: S104 - that is what is tried
        with pytest.raises(OSError, match="Address already in use"):
            thief(one, address, option)


@pytest.mark.parametrize(
    "conf, port, says",
    [
        (UDP, 8285, r"VTEP-004 relay of flannel0 .*"),
        (VXLAN, 8472, r"VTEP-002 link flannel\.1 vxlan .*"),
    ],
    ids=["udp", "vxlan"],
)
def test_who_has_the_port_already_is_named_and_not_joined(cluster: Cluster, conf: dict[str, Any], port: int, says: str):
    cluster.configure(conf)
    node = cluster.node(1)
    with taking(node.netns, port) as pid:
        node.spawn()
        node.says(rf"{says}UDP port {port} is held by process {pid} \(.*\)")
        assert not node.ready
    node.wait_ready()


def test_a_holder_that_cannot_be_seen_is_told_as_that(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1)
    with closing(thief(node)):
        node.spawn()
        node.says(
            r"UDP port 8285 is held by a process of user 0, which cannot be seen from here: `ss -ulpn sport = :8285`"
        )


def test_a_relay_of_another_network_namespace_is_not_believed(cluster: Cluster):
    """A node that is a namespace is made anew, its files are kept, and the relay of before still answers."""
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    before = relay(one)
    one.stop()
    again = cluster.node(3)
    again.state_dir, again.subnet_file = one.state_dir, one.subnet_file
    again.start()
    assert eventually(lambda: relay(again) not in (0, before))
    assert not Path(f"/proc/{before}/task").exists()
    assert "NO-CARRIER" not in again.ip("link show flannel0")
    cross(again, two)


def test_a_device_without_a_queue_is_unserved(cluster: Cluster):
    """It is up and has no carrier; what is down on purpose is another matter."""
    netns = cluster.node(1).netns

    def seen() -> list[bool]:
        tun.create("flannel0")
        found = [is_unserved("flannel0")]
        netns.run("ip link set flannel0 up")
        found.append(is_unserved("flannel0"))
        queue = tun.open_queue("flannel0")
        found.append(is_unserved("flannel0"))
        os.close(queue)
        return [*found, is_unserved("flannel0"), is_unserved("nothing")]

    assert netns.call(seen) == [False, True, False, True, False]


def test_a_relay_that_the_kernel_does_not_confine_is_told_once(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1)
    code = "import os, sys; from tests.support.oldkernel import refuse; refuse('seccomp', 1); "
    node.spawn(wrap=[sys.executable, "-c", f"{code}os.execvp(sys.argv[1], sys.argv[1:])"]).wait_ready()
    assert eventually(lambda: relay(node))
    assert node.log.count("the kernel refuses to take from it the system calls that it does not need") == 1


def test_without_the_relays_program_it_is_refused_before_anything_is_made(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1)
    hide = f'mount --bind /dev/null {PROGRAM.path} && exec "$@"'
    assert node.spawn(wrap=["unshare", "--mount", "sh", "-ec", hide, "sh"]).wait() == 1
    assert "HOST-002 back end udp: this weft was built without its relay. Build it: apt-get install" in node.log
    assert "flannel0" not in node.netns.run("ip link")
    assert not node.subnet_file.exists()


def test_the_last_word_says_how_the_relay_ends(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1).start()
    node.stop()
    assert re.search(
        r"the relay of flannel0, .* goes on and serves pods; `weft cleanup` ends it", node.log.splitlines()[-1]
    )
    cluster.configure(VXLAN)
    node.start()
    node.stop()
    assert "goes on and serves" not in node.log


def test_a_directory_with_a_long_name_has_room_for_the_socket(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1)
    node.state_dir = node.state_dir / ("long" * 25)
    node.start()
    assert eventually(lambda: relay(node))


def test_a_device_that_is_deleted_comes_back_with_its_relay(way: Cluster):
    one, two = way.nodes(1, 2)
    here, there = one.pod(), two.pod()
    before = relay(one)
    one.ip("link del flannel0")
    eventually(lambda: relay(one) not in (0, before))
    eventually(lambda: routes(one) == {two.v4: two.public_v4})
    eventually(lambda: reaches(here, there.ips[0]))
    assert not Path(f"/proc/{before}/task").exists()
    one.ip("link set flannel0 mtu 1300")
    eventually(lambda: "mtu 1472" in one.ip("link show flannel0"))


def test_another_port_is_another_relay_and_another_back_end_is_none(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1).start()
    before = relay(node)
    node.stop()
    cluster.configure(UDP, Backend={"Type": "udp", "Port": 9999, "KernelPath": False})
    node.start()
    after = relay(node)
    assert after not in (0, before)
    assert node.netns.run("ss -Hnul").count(":9999") == node.netns.run("ss -Hnul").count("\n")
    node.stop()
    cluster.configure(VXLAN)
    node.start()
    eventually(lambda: "flannel0" not in node.ip("-br link show"))
    eventually(lambda: relay(node) == 0)
    assert "10.5.0.0/16" not in node.ip("route show proto 165")


def test_another_daemons_device_of_the_name_is_replaced(cluster: Cluster):
    """As upstream's, which is no longer there when it is not served."""
    cluster.configure(UDP)
    node = cluster.node(1)
    node.ip("tuntap add dev flannel0 mode tun")
    node.start()
    [link] = json.loads(node.ip("-d -j link show flannel0"))
    assert link["linkinfo"]["info_data"]["multi_queue"] is True
    assert relay(node)


def test_a_plan_has_nothing_to_do_and_a_cleanup_leaves_nothing(cluster: Cluster):
    cluster.configure(UDP)
    node = cluster.node(1).start()
    cluster.peer(50, BackendType="", data=None)
    eventually(lambda: routes(node))
    assert plan(node).stdout.splitlines()[-1] == "# nothing to do"
    assert not node.lines("WARN|ERROR")
    before = relay(node)
    node.stop()
    assert "relay of flannel0" not in plan(node).stdout
    os.kill(before, signal.SIGKILL)
    eventually(lambda: relay(node) == 0)
    assert "+ relay of flannel0 from 172.31.0.1 port 8285" in plan(node).stdout
    node.start()
    node.stop()
    removed = weft(node, "cleanup", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}")
    assert removed.returncode == 0, removed.stderr
    assert "flannel0" not in node.ip("-br link show")
    eventually(lambda: relay(node) == 0)
