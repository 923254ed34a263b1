"""Back end wireguard, served by wireguard-go: this kernel has none (tests/vm has one that has; flannel.md §6.6)."""

import json
import os
import re
import signal
import sys
from itertools import combinations
from pathlib import Path
from threading import Event, Timer

import pytest

from tests.node import wgnode
from tests.node.test_plan_cleanup import plan, weft
from tests.node.test_status import asked
from tests.node.wgnode import inside, server, start
from tests.support.builders import key
from tests.support.crossing import cross
from tests.support.traffic import Pings, nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, eventually
from weft.daemon.planes.serving import wait_for_device
from weft.kernel import tun

WG = {**VXLAN, "Backend": {"Type": "wireguard"}}


def nodes(cluster: Cluster, *numbers: int) -> list[Daemon]:
    started = [start(cluster.node(number)) for number in numbers]
    for node in started:
        eventually(lambda node=node: len(peers(node)) == len(numbers) - 1)
    return started


def show(node: Daemon, device: str = "flannel-wg") -> list[list[str]]:
    """What `wg` says of a device: itself, and a line of words for each peer."""
    done = node.netns.run(["nsenter", f"--mount=/proc/{node.pid}/ns/mnt", "wg", "show", device, "dump"])
    return [line.split("\t") for line in done.splitlines()]


def peers(node: Daemon, device: str = "flannel-wg") -> dict[str, list[str]]:
    """The peers of a device by their keys: shared key, endpoint, allowed addresses, and what `wg` says besides."""
    return {line[0]: line[1:] for line in show(node, device)[1:]}


@pytest.fixture(autouse=True)
def ends_servers(cluster: Cluster):
    yield
    wgnode.end_servers(cluster)


@pytest.mark.spec("flannel.md §6.6/device", "flannel.md §6.6/published")
def test_pods_reach_each_other(cluster: Cluster):
    cluster.configure(WG, Backend={"Type": "wireguard", "PSK": key(9), "PersistentKeepaliveInterval": 300})
    one, two = nodes(cluster, 1, 2)
    cross(one, two)
    assert one.env["FLANNEL_MTU"] == "1420"
    [link] = json.loads(one.ip("-d -j link show flannel-wg"))
    assert (link["mtu"], link["ifalias"]) == (1420, "weft:vtep")
    assert f"inet {one.v4[0]}/32 scope global flannel-wg" in one.ip("address show flannel-wg")
    assert "10.5.0.0/16 dev flannel-wg proto 165 scope link" in one.ip("route")
    public = show(one)[0][1]
    assert json.loads(cluster.lease_of(one).value) == {
        "PublicIP": str(one.public_v4),
        "PublicIPv6": None,
        "BackendType": "wireguard",
        "BackendData": {"PublicKey": public, "Port": 51820},
    }
    [(seen, (psk, endpoint, allowed, *_, keepalive))] = peers(two).items()
    assert (seen, psk, endpoint, keepalive) == (public, key(9), f"{one.public_v4}:51820", "300")
    assert allowed == str(one.v4)
    counted = {"peers": 1, "sessions": 1}
    eventually(lambda: asked(one)["loops"]["wireguard"]["counts"] == counted, seconds=15)
    [peer] = asked(one)["peers"]
    assert 0 <= peer["heard"] < 60
    assert min(peer["sent_bytes"], peer["received_bytes"]) > 0
    assert peer["sent"] is None, "WireGuard counts no packets"
    for way in ("sent", "received"):
        series = rf'^weft_peer_bytes_total{{direction="{way}",peer="{two.v4}"}} [1-9]'.replace("/", "-")
        assert re.search(series, one.get("/metrics")[1], re.MULTILINE)


def test_each_of_two_peers_has_its_own_of_all(cluster: Cluster):
    """In what it is told, in what weftd reads of it, and in packets: whoever is mixed up with another gets none."""
    cluster.configure(WG)
    started = nodes(cluster, 1, 2, 3)
    keys = {node.number: show(node)[0][1] for node in started}
    assert len(set(keys.values())) == 3
    for node in started:
        others = [each for each in started if each is not node]
        wanted = {keys[each.number]: [f"{each.public_v4}:51820", str(each.v4)] for each in others}
        assert {seen: said[1:3] for seen, said in peers(node).items()} == wanted
    for one, two in combinations(started, 2):
        cross(one, two)
    for node in started:
        eventually(lambda node=node: asked(node)["loops"]["wireguard"]["counts"]["sessions"] == 2, seconds=15)
        assert not node.lines("repair|VTEP-00"), "what weftd reads is what it has told"


@pytest.mark.spec("flannel.md §6.6/one-device")
@pytest.mark.parametrize("mode", ["separate", "auto", "ipv4", "ipv6"])
def test_both_families(cluster: Cluster, mode: str):
    cluster.configure({**WG, **DUAL}, Backend={"Type": "wireguard", "Mode": mode})
    one, two = nodes(cluster, 1, 2)
    cross(one, two)
    devices = {"flannel-wg", "flannel-wg-v6"} if mode == "separate" else {"flannel-wg"}
    assert {name for name in ("flannel-wg", "flannel-wg-v6") if name in one.ip("-br link")} == devices


@pytest.mark.spec("flannel.md §6.6/peer-added", "flannel.md §6.6/peer-removed")
def test_peers_come_change_and_go(cluster: Cluster):
    cluster.configure(WG)
    node = start(cluster.node(1))
    cluster.peer(50, BackendType="wireguard", data={"PublicKey": key(50), "Port": 1234})
    cluster.peer(51, BackendType="wireguard", data={"PublicKey": key(51)})
    cluster.peer(52, BackendType="wireguard", data={"PublicKey": "none"})
    eventually(lambda: set(peers(node)) == {key(50), key(51)})
    assert peers(node)[key(50)][1:3] == ["172.31.0.50:1234", "10.5.50.0/24"]
    assert peers(node)[key(51)][1:3] == ["172.31.0.51:51820", "10.5.51.0/24"]
    node.says("peer ignored: ADDR-002 .*10.5.52.0-24.*PublicKey 'none'")
    cluster.etcd.delete(cluster.key("10.5.51.0-24"))
    eventually(lambda: set(peers(node)) == {key(50)})


@pytest.mark.spec("flannel.md §6.6/changed-key")
def test_a_changed_key_takes_the_old_ones_place_and_costs_no_other_peer(cluster: Cluster):
    cluster.configure(WG)
    one, two = nodes(cluster, 1, 2)
    cluster.peer(50, BackendType="wireguard", data={"PublicKey": key(50), "Port": 1})
    eventually(lambda: key(50) in peers(one))
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    with nothing_lost(here, there, there.ips[0]):
        cluster.peer(50, BackendType="wireguard", data={"PublicKey": key(60), "Port": 1})
        eventually(lambda: key(60) in peers(one) and key(50) not in peers(one))
    assert peers(one)[key(60)][2] == "10.5.50.0/24"


@pytest.mark.spec("flannel.md §6.6/reuse")
def test_a_restart_of_the_daemon_keeps_key_device_and_process_and_loses_no_packet(cluster: Cluster):
    cluster.configure(WG)
    one, two = nodes(cluster, 1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    before = server(one), show(one)[0]
    # No stream beside: wireguard-go carries packets, and on a busy machine may lose some of that, daemon or not.
    with Pings(here, there.ips[0], every=0.005) as pings:
        one.stop()
        start(one)
        one.kill()
        start(one)
    assert pings.sent > 50
    assert not pings.lost
    assert (server(one), show(one)[0]) == before
    assert not one.lines("ERROR")


def test_a_process_with_a_capability_more_than_the_daemon_is_found(cluster: Cluster):
    """Its namespace cannot be looked at; a process of another one is told apart all the same."""
    cluster.configure(WG)
    node = start(cluster.node(1))
    before = server(node)
    node.stop()
    node.spawn(wrap=[*inside(node), "setpriv", "--bounding-set=-chown"])
    node.wait_ready()
    assert server(node) == before
    assert not node.lines("ERROR")


def knows_peers(node: Daemon) -> bool:
    """As `peers`, also while the process that serves the device does not answer yet."""
    try:
        return bool(peers(node))
    except AssertionError:
        return False


def test_a_process_that_dies_is_started_again_and_knows_all(cluster: Cluster):
    cluster.configure(WG)
    one, two = nodes(cluster, 1, 2)
    here, there = one.pod(), two.pod()
    before, known = server(one), show(one)[0]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: server(one) not in (0, before), seconds=15)
    eventually(lambda: knows_peers(one))
    assert show(one)[0] == known
    eventually(lambda: reaches(here, there.ips[0]))
    one.says("VTEP-004.*wireguard-go for flannel-wg", seconds=3)


def test_what_another_program_changes_is_put_back(cluster: Cluster):
    cluster.configure(WG)
    node = start(cluster.node(1))
    cluster.peer(50, BackendType="wireguard", data={"PublicKey": key(50), "Port": 1})
    eventually(lambda: peers(node))
    wg = ["nsenter", f"--mount=/proc/{node.pid}/ns/mnt", "wg", "set", "flannel-wg"]
    node.netns.run([*wg, "listen-port", "7", "peer", key(50), "allowed-ips", "10.9.0.0/16"])
    node.netns.run([*wg, "peer", key(7), "allowed-ips", "10.8.0.0/16,10.5.50.0/24"])
    eventually(lambda: set(peers(node)) == {key(50)}, seconds=20)
    assert (show(node)[0][2], peers(node)[key(50)][2]) == ("51820", "10.5.50.0/24")


@pytest.mark.spec("flannel.md §1.4/wireguard-key-file", "flannel.md §6.6/key-file")
def test_the_key_is_kept_in_a_file_that_only_root_reads(cluster: Cluster, tmp_path: Path):
    cluster.configure(WG)
    node = start(cluster.node(1))
    [file] = node.state_dir.glob("*/wgkey")
    assert file.stat().st_mode & 0o7777 == 0o600
    assert file.read_text() == show(node)[0][0]
    assert file.read_text() not in node.log
    node.stop()
    named = tmp_path / "named"
    named.write_text(f"{key(3)}\n")
    start(node, env={"WIREGUARD_KEY_FILE": str(named)})
    assert show(node)[0][0] == "AAMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA0M=", "as the curve wants it"
    node.stop()
    for content, seen in (("secret!", "holds no key: no base64"), (key(3)[:-8], "holds no key: 27 bytes")):
        named.write_text(content)
        node.spawn(env={"WIREGUARD_KEY_FILE": str(named)})
        assert node.wait() == 1
        assert node.lines(rf"FLAG-001 WIREGUARD_KEY_FILE={named}: {seen}; expected a key in base64")
        assert content not in node.log


def test_a_plan_has_nothing_to_do_and_a_cleanup_leaves_nothing(cluster: Cluster):
    cluster.configure(WG)
    node = start(cluster.node(1))
    cluster.peer(50, BackendType="wireguard", data={"PublicKey": key(50), "Port": 1})
    eventually(lambda: peers(node))
    inside = node.folder / "wireguard"
    assert not node.lines("ERROR")
    assert plan(node).stdout.splitlines()[-1] == "# nothing to do"
    node.stop()
    assert inside.joinpath("flannel-wg.sock").exists()
    removed = weft(node, "cleanup", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}")
    assert removed.returncode == 0, removed.stderr
    assert "flannel-wg" not in node.ip("-br link show")
    eventually(lambda: server(node) == 0)
    assert "+ wireguard peer" in plan(node).stdout


def test_another_back_end_takes_the_device_away(cluster: Cluster):
    cluster.configure(WG)
    node = start(cluster.node(1))
    node.stop()
    cluster.configure(HOST_GW)
    node.start()
    eventually(lambda: "flannel-wg" not in node.ip("-br link show"))
    eventually(lambda: server(node) == 0)


NO_PROGRAM = """
import runpy, sys
from weft.daemon.backends.wireguard import inprocess

inprocess.SEARCH_PATH = "/nowhere"
sys.argv = sys.argv[3:]  # behind: python -m weft.daemon.main
runpy.run_module("weft.daemon.main", run_name="__main__")
"""


def test_without_the_program_the_node_says_what_is_missing(cluster: Cluster):
    cluster.configure(WG)
    node = cluster.node(1)
    node.spawn(wrap=[sys.executable, "-c", NO_PROGRAM])
    node.says("VTEP-002 link flannel-wg wireguard .*the kernel refuses it: .*see `modprobe wireguard`, or install")
    assert node.get("/readyz")[0] == 503


def test_a_process_waits_until_the_maker_of_its_device_has_let_go_of_it(cluster: Cluster):
    """A TUN device has a name before its maker closes it, and one queue, which the maker has for so long."""
    held = Event()

    def waited() -> None:
        tun.create("flannel-wg", for_relay=False)
        queue = tun._open("flannel-wg", tun._PLAIN)
        Timer(0.2, lambda: (held.set(), os.close(queue))).start()
        wait_for_device("flannel-wg", one_queue=True)

    cluster.node(1).netns.call(waited)
    assert held.is_set()
