"""A back end that weft has not, with a device of another kind and a process, needs no change of weft's source."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.weftd import VXLAN, Cluster, Daemon, eventually

RELAY = {"Network": "10.5.0.0/16", "Backend": {"Type": "relay", "Word": "hello"}}


def relays(node: Daemon) -> dict[int, str]:
    """The processes of the back end that run in a node: their ids, and the word that each was told."""
    found = {}
    for child in " ".join(map(Path.read_text, Path("/proc", str(node.pid)).glob("task/*/children"))).split():
        with suppress(FileNotFoundError):  # it has ended since
            words = Path("/proc", child, "cmdline").read_bytes().split(b"\0")
            if b"relay" in words:
                found[int(child)] = words[words.index(b"relay") + 1].decode()
    return found


def test_its_device_its_process_and_its_peers_are_kept(cluster: Cluster):
    cluster.configure(RELAY)
    cluster.peer(50, BackendType="relay", data=None)
    node = cluster.node(1)
    node.program = "tests.node.namedbackend"
    node.start()
    [link] = json.loads(node.ip("-d -j link show relay0"))
    assert (link["linkinfo"]["info_kind"], link["mtu"], link["ifalias"]) == ("ifb", 1472, "weft:vtep")
    eventually(lambda: "10.5.50.0/24 dev relay0" in node.ip("route show proto 165"))
    assert list(relays(node).values()) == ["hello"]
    assert "FLANNEL_MTU=1472" in node.subnet_file.read_text()

    node.ip("link del relay0")
    eventually(lambda: "10.5.50.0/24 dev relay0" in node.ip("route show proto 165"))
    node.ip("link set relay0 mtu 1400")
    eventually(lambda: json.loads(node.ip("-j link show relay0"))[0]["mtu"] == 1472)
    [before] = relays(node)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: relays(node) and before not in relays(node))
    node.says("process for relay0", seconds=3)

    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    eventually(lambda: "10.5.50.0/24" not in node.ip("route show proto 165"))
    node.stop()


def test_a_node_that_goes_back_to_a_backend_of_wefts_removes_its_device(cluster: Cluster):
    cluster.configure(RELAY)
    node = cluster.node(1)
    node.program = "tests.node.namedbackend"
    node.start()
    node.stop()
    assert "relay0" in node.ip("-br link show")
    cluster.configure(VXLAN)
    node.start()
    eventually(lambda: "relay0" not in node.ip("-br link show"))
