"""`weft peers`: each peer with its state, for how long, and its packets."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.node.test_status import run
from tests.support.crossing import cross
from tests.support.weftd import VXLAN, Cluster, Daemon, eventually

WEFT = str(Path(sys.executable).with_name("weft"))
UDP = {**VXLAN, "Backend": {"Type": "udp", "KernelPath": False}}


def listed(node: Daemon) -> "dict[str, dict[str, object]]":
    return {row["id"]: row for row in json.loads(run(node, WEFT, "peers", "-o", "json").stdout)}


def watch(node: Daemon, *words: str) -> "tuple[subprocess.Popen[str], Path]":
    """A watch, and the file of what it prints."""
    file = node.folder / f"{words[0]}.txt"
    with file.open("wb") as out:
        return node.netns.popen([WEFT, *words], stdout=out, stderr=out, text=True), file


def interrupted(process: "subprocess.Popen[str]") -> int:
    """The exit status of a command after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return process.wait(100)


def test_each_peer_with_its_state(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    cluster.peer(50)
    cluster.peer(7)
    cluster.peer(51, data={"VtepMAC": "none"})
    cluster.peer(52, lease="10.6.52.0-24")
    cluster.etcd.put(cluster.key("10.5.53.0-24"), "no JSON")
    found = eventually(lambda: len(rows := listed(node)) == 5 and rows["10.5.50.0-24"]["state"] == "served" and rows)
    assert {name: row["state"] for name, row in found.items()} == {
        "10.5.7.0-24": "served",
        "10.5.50.0-24": "served",
        "10.5.51.0-24": "unusable",
        "10.6.52.0-24": "refused",
        "10.5.53.0-24": "refused",
    }
    said = run(node, WEFT, "peers").stdout
    assert [line.split()[0] for line in said.splitlines()[1:]] == [
        "10.5.7.0/24",
        "10.5.50.0/24",
        "10.5.51.0/24",
        "10.6.52.0/24",
        "10.5.53.0-24",
    ]
    assert "refused ADDR-002 lease 10.6.52.0-24: " in said
    assert "refused ADDR-002 lease 10.5.53.0-24: " in said
    assert "lease 10.5.53.0-24" in run(node, WEFT, "doctor").stdout
    assert "SENT" not in said
    assert 0 <= float(str(found["10.5.7.0-24"]["seconds"])) < 60


def test_a_peer_lacks_what_is_refused_and_the_time_begins_anew_when_it_is_there(cluster: Cluster, tmp_path: Path):
    command = f"test $SUBNET != 10.5.50.0/24 || test -e {tmp_path}/may"
    cluster.configure({**VXLAN, "Backend": {"Type": "extension", "SubnetAddCommand": ["sh", "-c", command]}})
    cluster.peer(50, BackendType="extension", data="words")
    cluster.peer(51, BackendType="extension", data="words")
    node = cluster.node(1).start()
    rows = eventually(lambda: (rows := listed(node))["10.5.51.0-24"]["state"] == "served" and rows)
    assert rows["10.5.50.0-24"]["state"] == "lacks"
    assert "  lacks commands for 10.5.50.0/24: SubnetAddCommand " in run(node, WEFT, "peers").stdout
    eventually(lambda: float(str(listed(node)["10.5.50.0-24"]["seconds"])) > 3)
    (tmp_path / "may").touch()
    rows = eventually(lambda: (rows := listed(node))["10.5.50.0-24"]["state"] == "served" and rows, seconds=10)
    assert float(str(rows["10.5.50.0-24"]["seconds"])) < 3 < float(str(rows["10.5.51.0-24"]["seconds"]))


def test_the_relays_packets_of_each_peer(cluster: Cluster):
    cluster.configure(UDP)
    one, two = cluster.nodes(1, 2)
    cross(one, two)
    [row] = listed(one).values()
    assert int(str(row["sent"])) > 0
    assert int(str(row["received"])) > 0
    assert run(one, WEFT, "peers").stdout.splitlines()[0].split()[-3:] == ["SENT", "RECEIVED", "STATE"]
    assert all(number.isdigit() for number in run(one, WEFT, "peers").stdout.splitlines()[1].split()[-3:-1])


def test_a_watch_tells_of_each_change_until_it_is_interrupted(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    process, file = watch(node, "peers", "-w")
    eventually(lambda: "SUBNET" in file.read_text())
    cluster.peer(50)
    eventually(lambda: "10.5.50.0/24  came, public IP 172.31.0.50, served\n" in file.read_text())
    cluster.peer(50, public="172.31.0.60")
    eventually(lambda: "10.5.50.0/24  public IP 172.31.0.60, was 172.31.0.50\n" in file.read_text())
    node.stop()
    eventually(lambda: "waiting for it" in file.read_text())
    node.start()
    cluster.peer(51)
    eventually(lambda: "10.5.51.0/24  came" in file.read_text())
    assert interrupted(process) == 130
    assert "Traceback" not in file.read_text()
