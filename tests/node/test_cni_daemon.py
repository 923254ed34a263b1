"""weftd and the CNI plugins together: what its start frees, and what STATUS says of it."""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.node.plugincalls import Runtime
from tests.node.test_ready import says
from tests.node.test_status import ask, asked
from tests.node.test_store import change_memory
from tests.support.netns import Netns
from tests.support.traffic import reaches
from tests.support.weftd import Cluster, Daemon, eventually
from weft.cni import build
from weft.cni.host.state import chosen
from weft.cni.install.executables import install


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


def attach(runtime: Runtime, *names: str) -> dict[str, Netns]:
    pods = {name: Netns() for name in names}
    runtime.node.pods += pods.values()
    for name, pod in pods.items():
        assert "ips" in runtime.ask("ADD", name, pod)
    return pods


def without_lease(cluster: Cluster, tmp_path: Path, bin_dir: Path) -> Runtime:
    """The runtime of a node whose daemon has just started, and whose store is away."""
    cluster.configure()
    cluster.etcd.stop()
    node = cluster.node(1)
    node.spawn()
    eventually((node.folder / "cni" / "cni.sock").exists)
    return Runtime(node, tmp_path, bin_dir)


def test_calls_of_plugins_are_counted(cluster: Cluster, tmp_path: Path, bin_dir: Path):
    cluster.configure()
    node = cluster.node(1).start()
    runtime = Runtime(node, tmp_path, bin_dir)
    attach(runtime, "c1")
    call = eventually(lambda: asked(node)["calls"].get("flannel ADD"))  # it is counted after its answer
    assert (call["count"], call["failed"]) == (1, 0)
    assert 0 < call["median_ms"] <= call["worst_ms"]
    assert "calls      flannel ADD 1, " in ask(node).stdout


def test_what_pods_send_and_receive_is_counted_by_their_names(cluster: Cluster, tmp_path: Path, bin_dir: Path):
    cluster.configure()
    node = cluster.node(1).start()
    runtime = Runtime(node, tmp_path, bin_dir)
    web = attach(runtime, "web", "db")["web"]
    assert "weft_pod_bytes" not in node.get("/metrics")[1]
    node.stop()
    node.start("--pod-metrics")
    web.run(f"ping -q -c 5 -i 0.01 -s 1000 {node.v4[1]}")
    assert carried(node, "web", "sent") >= 5 * 1028
    assert carried(node, "web", "received") >= 5 * 1028
    assert carried(node, "db", "sent") < 5 * 1028
    runtime.ask("DEL", "db", None)
    eventually(lambda: 'pod="db"' not in node.get("/metrics")[1], seconds=20)


def carried(node: Daemon, pod: str, direction: str) -> float:
    page = node.get("/metrics")[1]
    [line] = re.findall(rf'^weft_pod_bytes_total{{direction="{direction}",.*pod="{pod}"}} (\S+)$', page, re.MULTILINE)
    return float(line)


def test_at_its_start_it_frees_what_is_proved_to_be_leaked(cluster: Cluster, tmp_path: Path, bin_dir: Path):
    cluster.configure()
    node = cluster.node(1).start()
    runtime = Runtime(node, tmp_path, bin_dir)
    pods = attach(runtime, "c1", "c2", "c3")
    node.stop()
    pods["c2"].run("ip link del eth0")
    for path in (node.state_dir / "cni").glob("*/*.json"):
        known = json.loads(path.read_text())
        if known["container"] == "c3":
            path.write_text(json.dumps({**known, "boot": "another"}))
    (tmp_path / "nets" / "cbr0" / "10.5.0.9").write_text("stranger\r\neth0")
    node.start()
    eventually(lambda: runtime.owners == {"c1", "stranger"})
    assert node.says("leaked attachment freed: network=cbr0 container=c2 interface=eth0 proof=host end veth")
    assert node.says("leaked attachment freed: network=cbr0 container=c3 interface=eth0 proof=made in an earlier boot")
    assert {path.name for path in (tmp_path / "flannel").iterdir()} == {"c1"}


def test_status_tells_which_store_is_missed_and_whether_pods_are_attached(
    own_cluster: Cluster, tmp_path: Path, bin_dir: Path
):
    own_cluster.configure()
    node = own_cluster.node(1).start()
    runtime = Runtime(node, tmp_path, bin_dir)
    assert runtime.ask("STATUS") is None
    node.stop()
    own_cluster.etcd.stop()
    change_memory(node, expires=time.time() - 5)
    node.spawn()
    node.says("STORE-001")

    def status() -> Any:
        answer = runtime.ask("STATUS")
        return answer if answer and "STORE-001" in answer["msg"] else None

    answer = eventually(status)
    assert answer["code"] == 50
    assert own_cluster.etcd.url in answer["msg"]
    own_cluster.etcd.start()
    node.wait_ready()
    attach(runtime, "c1")
    node.stop()
    own_cluster.etcd.stop()
    change_memory(node, expires=time.time() - 5)
    node.spawn()
    node.says("STORE-001")
    assert eventually(status)["code"] == 51
    node.subnet_file.unlink()
    absent = runtime.ask("STATUS")
    assert absent["code"] == 51
    assert "LEASE-001" in absent["msg"]
    assert "STORE-001" in absent["details"]


def test_the_first_pods_wait_for_the_lease_of_a_daemon_that_starts(own_cluster: Cluster, tmp_path: Path, bin_dir: Path):
    runtime = without_lease(own_cluster, tmp_path, bin_dir)
    with ThreadPoolExecutor() as pool:
        attached = pool.submit(attach, runtime, "c1")
        with pytest.raises(TimeoutError):
            attached.result(0.5)
        own_cluster.etcd.start()
        attached.result(30)


def test_a_stop_ends_their_wait(own_cluster: Cluster, tmp_path: Path, bin_dir: Path):
    """They are told what was missing, and not cut off when the stop has lasted too long."""
    runtime = without_lease(own_cluster, tmp_path, bin_dir)
    with ThreadPoolExecutor() as pool, Netns() as pod:
        attached = pool.submit(runtime.ask, "ADD", "c1", pod)
        with pytest.raises(TimeoutError):
            attached.result(0.5)
        runtime.node.stop()
        refused = attached.result(10)
    assert refused["code"] == 11
    assert "LEASE-001" in refused["msg"]


def test_without_the_daemon_plugins_work_in_its_state_directory(cluster: Cluster, tmp_path: Path, bin_dir: Path):
    """Two places would be two sets of locks, and records that no sweep finds."""
    cluster.configure()
    node = cluster.node(1)
    node.state_dir = node.folder / "elsewhere"
    node.start()
    runtime = Runtime(node, tmp_path, bin_dir)
    published = node.folder / "cni" / "state-dir"
    eventually(published.exists)
    before = set(Path("/var/lib/weft").glob("cni/*/*"))
    node.stop()
    pod = attach(runtime, "c1")["c1"]
    assert len(list((node.state_dir / "cni" / "attachments").glob("*.json"))) == 1
    listed = node.netns.popen(
        [str(Path(sys.executable).with_name("weft")), "ipam", "list"],
        env={"PATH": os.environ["PATH"], "WEFT_CNI_SOCKET": str(node.folder / "cni" / "cni.sock")},
        stdout=subprocess.PIPE,
    )
    assert b"attached" in listed.communicate(timeout=200)[0]
    assert runtime.ask("DEL", "c1", pod) is None
    assert set(Path("/var/lib/weft").glob("cni/*/*")) == before
    os.chown(published, 65534, 65534)
    assert chosen({"WEFT_CNI_SOCKET": str(node.folder / "cni" / "cni.sock")}) == "/var/lib/weft"


def test_a_disk_that_takes_no_records_costs_readiness_and_new_pods_and_no_other(
    cluster: Cluster, tmp_path: Path, bin_dir: Path
):
    cluster.configure()
    node = cluster.node(1).start()
    runtime = Runtime(node, tmp_path, bin_dir)
    pods = attach(runtime, "before")
    node.stop()
    read_only = ["unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$1" "$1"; shift; exec "$@"', "sh"]
    node.spawn(wrap=[*read_only, str(node.state_dir)])
    says(node, 503, f"[-]records failed: STATE-002 {node.state_dir}/cni: cannot be written: Read-only file system")
    refused = runtime.ask("STATUS")
    assert (refused["code"], "STATE-002" in refused["msg"]) == (51, True)
    with Netns() as pod:
        refused = runtime.ask("ADD", "new", pod)
    assert (refused["code"], refused["msg"]) == (5, "STATE-002 locks below --state-dir: Read-only file system")
    assert reaches(pods["before"], node.v4[1])
    assert not node.lines("Traceback")
    node.stop()
    node.start()
    says(node, 200, "[+]records ok")
    attach(runtime, "new")
