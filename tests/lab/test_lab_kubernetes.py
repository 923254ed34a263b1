"""Labs whose store is Kubernetes' API, and labs of Kubernetes nodes, where weft is a DaemonSet of its own manifest."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.etcd import free_ports
from tests.support.kubernetes import apiserver
from tests.support.lab import WEFT, Lab, lab, weft
from tests.support.weftd import eventually
from weft.lab import cgroups

pytestmark = pytest.mark.timeout(1800)  # for a machine that is busy with other work

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes.yaml"
PLUGIN = MANIFEST.with_name("kubectl-weft")
NET_ADMIN, NET_RAW = 12, 13  # linux/capability.h
TUNED = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys")


@dataclass(frozen=True)
class Cluster:
    """A lab and the way to its API from the machine."""

    lab: Lab

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        config = Path("/run/weft-lab", self.lab.name, "kubeconfig")
        command = [str(apiserver.programs() / "kubectl"), f"--kubeconfig={config}", *arguments]
        ran = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
        assert not check or ran.returncode == 0, ran.stderr
        return ran.stdout

    def get(self, *what: str) -> Any:
        return json.loads(self.kubectl("get", "-o", "json", *what))

    def create_node(self, name: str, subnet: str, **annotations: str) -> None:
        spec = {"podCIDR": subnet, "podCIDRs": [subnet]}
        meta = {"name": name, "annotations": annotations}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
        self.kubectl("create", "-f", "-", stdin=json.dumps(node))

    def run_pod(self, name: str) -> None:
        """Start a pod on node1, and wait until it is ready."""
        pinned = json.dumps({"spec": {"nodeName": "node1"}})
        self.kubectl("run", name, "--image=localhost/pause:1", f"--overrides={pinned}")
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def peers(self, node: str) -> set[str]:
        """The subnets of other nodes that a node has routes to."""
        routes = json.loads(self.lab.run(node, "ip", "-j", "route", "show", "dev", "flannel.1"))
        return {route["dst"] for route in routes}


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_KUBERNETES", str(apiserver.programs()))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    os.environ["WEFT_KUBERNETES"] = str(apiserver.programs())
    try:
        with lab("--kubernetes", "--nodes", "3") as running:
            yield Cluster(running)
        assert not [*cgroups.ROOT.glob(f"**/weft-lab/{running.name}")]
    finally:
        del os.environ["WEFT_KUBERNETES"]


@pytest.mark.parametrize("family", ["4", "46", "6"])
@pytest.mark.parametrize("backend", ["vxlan", "host-gw"])
def test_pods_of_nodes_on_the_api_reach_each_other(backend: str, family: str):
    with lab("--store", "kubernetes", "--backend", backend, "--family", family, "--pods", "1") as running:
        report = running.ps()
        assert report["store"].startswith("https://")
        assert report["store_state"] == "ready"
        pinged = running.json("pingall")
        assert pinged["reached"] == pinged["tried"] > 0
        # The lease is what Kubernetes has given the node.
        given = {node["metadata"]["name"]: node["spec"]["podCIDRs"] for node in Cluster(running).get("nodes")["items"]}
        assert {node["name"]: node["subnets"] for node in report["nodes"]} == given


def test_a_node_that_is_deleted_disappears_and_returns():
    with lab("--store", "kubernetes", "--pods", "0") as running:
        cluster = Cluster(running)
        gone = cluster.get("node", "node3")
        [subnet] = gone["spec"]["podCIDRs"]
        assert subnet in cluster.peers("node1") & cluster.peers("node2")
        cluster.kubectl("delete", "node", "node3")
        eventually(lambda: subnet not in cluster.peers("node1") | cluster.peers("node2"))
        cluster.create_node("node3", subnet)
        eventually(lambda: subnet in cluster.peers("node1") & cluster.peers("node2"), seconds=30)


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_an_api_server_that_is_away_loses_no_packet_and_what_changed_meanwhile_arrives(seconds: int):
    with lab("--store", "kubernetes", "--pods", "1") as running:
        cluster = Cluster(running)
        pid = _process(running.supervisor(), "kube-apiserver")
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
        target = running.pod("pod3-1")["addresses"][0].split("/")[0]
        ping = ["ping", "-i", "0.1", "-c", str(seconds * 10), "-W", "1", target]
        with subprocess.Popen(
            [WEFT, "lab", "exec", "--lab", running.name, "pod1-1", "--", *ping], stdout=subprocess.PIPE, text=True
        ) as traffic:
            os.kill(pid, signal.SIGKILL)
            said = traffic.communicate(timeout=seconds + 30)[0]
        assert f"{seconds * 10} packets transmitted, {seconds * 10} received, 0% packet loss" in said
        inside = ["nsenter", f"--target={running.supervisor()}", "--mount", "--net", "--pid", "--", *command]
        with subprocess.Popen(inside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            eventually(lambda: cluster.kubectl("get", "--raw=/readyz", check=False) == "ok", seconds=30)
            cluster.create_node("far", "10.244.99.0/24", **_annotations())
            eventually(lambda: "10.244.99.0/24" in cluster.peers("node1") & cluster.peers("node2"), seconds=40)
            weft("lab", "down", running.name)


def test_weft_is_a_pod_with_two_rights_on_each_node(nodes: Cluster):
    daemons = nodes.get("pods", "-n", "kube-flannel")["items"]
    assert sorted(pod["spec"]["nodeName"] for pod in daemons) == ["node1", "node2", "node3"]
    for node in ("node1", "node2", "node3"):
        held = nodes.lab.run(node, "sh", "-c", "grep Cap /proc/$(pgrep -x flanneld)/status")
        rights = {line.split(":")[0]: int(line.split(":")[1], 16) for line in held.splitlines()}
        assert rights["CapBnd"] == rights["CapEff"] == rights["CapPrm"] == 1 << NET_ADMIN | 1 << NET_RAW, held
    assert {node["daemon"] for node in nodes.lab.ps()["nodes"]} == {"ready"}


def test_pods_of_a_deployment_run_on_all_nodes_and_reach_each_other(nodes: Cluster):
    nodes.kubectl("create", "deployment", "web", "--image=localhost/pause:1", "--replicas=6")
    nodes.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    pods = nodes.get("pods", "-l", "app=web")["items"]
    where = {pod["status"]["podIP"]: pod["spec"]["nodeName"] for pod in pods}
    assert set(where.values()) == {"node1", "node2", "node3"}
    for node in set(where.values()):
        for sandbox in nodes.lab.run(node, "ls", "/run/netns").split():
            for address in where:
                nodes.lab.run(node, "nsenter", f"--net=/run/netns/{sandbox}", "ping", "-c1", "-W2", address)
    nodes.kubectl("delete", "deployment", "web", "--wait")
    eventually(lambda: not nodes.get("pods", "-l", "app=web")["items"], seconds=60)
    for node in set(where.values()):
        eventually(lambda node=node: not nodes.lab.run(node, "ls", "/run/netns").split(), seconds=30)


@pytest.fixture
def daemon(nodes: Cluster) -> str:
    """Weft's pod on node1."""
    [pod] = nodes.get("pods", "-n", "kube-flannel", "--field-selector=spec.nodeName=node1")["items"]
    name: str = pod["metadata"]["name"]
    return name


@dataclass(frozen=True)
class Answer:
    """How a program in a pod ended."""

    code: int
    out: str
    err: str
    raw: bytes


def in_pod(nodes: Cluster, pod: str, *words: str) -> Answer:
    config = Path("/run/weft-lab", nodes.lab.name, "kubeconfig")
    command = [apiserver.programs() / "kubectl", f"--kubeconfig={config}", "-n", "kube-flannel", "exec", pod, "--"]
    ran = subprocess.run([*command, *words], capture_output=True, check=False, timeout=120)
    return Answer(ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace"), ran.stdout)


def test_commands_in_the_pod_see_the_node_and_the_daemons_store(nodes: Cluster, daemon: str, tmp_path: Path):
    planned = in_pod(nodes, daemon, "weft", "plan")
    assert (planned.code, planned.err) == (0, "")
    assert "# answered by the weftd that runs here" in planned.out
    assert "# our lease is node1\n# leases from the store\n# nothing to do" in planned.out
    checked = in_pod(nodes, daemon, "weft", "cni", "install", "--check")
    assert checked.code == 0
    assert re.search(r"^cbr0 +portmap +/host/opt/cni/bin/portmap +weft ", checked.out, re.MULTILINE)
    doctor = json.loads(in_pod(nodes, daemon, "weft", "doctor", "-o", "json").out)
    assert doctor["findings"] == []
    assert {check["check"] for check in doctor["checks"] if check["unseen"]} == {"link-managers"}, "they are the host's"
    bundle = in_pod(nodes, daemon, "weft", "bundle")
    assert bundle.code == 0, bundle.err
    file = tmp_path / "node1.tar.gz"
    file.write_bytes(bundle.raw)
    assert "0 faults" in weft("doctor", "--from", str(file)).stdout
    with tarfile.open(file) as archive:
        assert "weft-bundle/cni/10-flannel.conflist" in archive.getnames()


def test_each_command_of_the_page_works_in_the_pod(nodes: Cluster, daemon: str):
    page = (MANIFEST.parents[1] / "docs" / "howto" / "run-weftd-in-kubernetes.md").read_text()
    typed = re.findall(r"^kubectl -n kube-flannel exec POD -- (weft [^>\n]*)", page, re.MULTILINE)
    assert len(typed) >= 10
    for command in typed:
        ran = in_pod(nodes, daemon, *command.split())
        assert ran.code in (0, 3), f"{command}: {ran.out}{ran.err}"  # 3: something was found
        assert ran.out, command


def test_what_a_pod_cannot_do_is_said_with_what_can(nodes: Cluster, daemon: str):
    hidden = "/opt/cni/bin/portmap", "/opt/cni/bin/.portmap-away"
    nodes.lab.run("node1", "mv", *hidden)
    try:
        doctor = in_pod(nodes, daemon, "weft", "doctor")
    finally:
        nodes.lab.run("node1", "mv", *reversed(hidden))
    assert f"'kubectl -n kube-flannel delete pod {daemon}' puts weft's there" in doctor.out
    installed = in_pod(nodes, daemon, "weft", "cni", "install")
    assert installed.code == 1
    assert "Read-only file system. weft's pod only reads its node's directories" in installed.err


def test_the_plugin_of_kubectl_runs_weft_on_nodes_and_across_two(nodes: Cluster, tmp_path: Path):
    config = Path("/run/weft-lab", nodes.lab.name, "kubeconfig")
    environ = {**os.environ, "PATH": f"{apiserver.programs()}:{PLUGIN.parent}:{os.environ['PATH']}"}

    def kubectl_weft(*words: str) -> "subprocess.CompletedProcess[str]":
        command = ["kubectl", "weft", f"--kubeconfig={config}", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=180
        )

    nodes.kubectl("create", "namespace", "shop")
    where = {"web": ("default", "node1"), "db": ("shop", "node2")}
    for name, (space, node) in where.items():
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "localhost/pause:1"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}, "spec": spec}
        nodes.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        nodes.kubectl("-n", space, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    status = kubectl_weft("status")
    assert status.returncode == 0, status.stderr
    assert re.findall(r"^== (\w+)\nweftd .* ready", status.stdout, re.MULTILINE) == ["node1", "node2", "node3"]
    one = kubectl_weft("status", "shop/db", "--", "-o", "json")
    assert json.loads(one.stdout)["lease"]["id"] == "node2"
    assert "0 faults" in kubectl_weft("doctor", "node3").stdout
    checked = kubectl_weft("check", "web", "shop/db")
    assert re.findall(r"^== (\w+)", checked.stdout, re.MULTILINE) == ["node1", "node2"], checked.stderr
    assert checked.returncode == 0, checked.stdout
    traced = kubectl_weft("trace", "web", "shop/db:80")
    assert traced.returncode == 0, traced.stdout + traced.stderr
    assert re.findall(r"^== (\w+)", traced.stdout, re.MULTILINE) == ["node1", "node2"]
    assert "flannel.1" in traced.stdout
    assert kubectl_weft("-n", "shop", "bundle", "db", "node1").stdout == (
        "weft-bundle-node2.tar.gz\nweft-bundle-node1.tar.gz\n"
    )
    assert "0 faults" in weft("doctor", "--from", str(tmp_path / "weft-bundle-node2.tar.gz")).stdout
    assert {file.name for file in tmp_path.iterdir()} == {"weft-bundle-node1.tar.gz", "weft-bundle-node2.tar.gz"}
    for words, said in (
        (("doctor", "nowhere"), 'pods "nowhere" not found'),
        (("trace", "web"), "two ends"),
        (("trace", "10.0.0.1", "10.0.0.2"), "one end at least has to be a pod"),
        (("bundle",), "whose bundle?"),
    ):
        failed = kubectl_weft(*words)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert said in failed.stderr
    nodes.kubectl("delete", "pod", "web", "--now")
    nodes.kubectl("delete", "namespace", "shop")


def test_a_restart_of_the_daemon_set_keeps_leases_and_the_vteps_address(nodes: Cluster):
    before = {node["metadata"]["name"]: node["metadata"]["annotations"] for node in nodes.get("nodes")["items"]}
    nodes.kubectl("-n", "kube-flannel", "rollout", "restart", "daemonset/kube-flannel-ds")
    nodes.kubectl("-n", "kube-flannel", "rollout", "status", "daemonset/kube-flannel-ds", "--timeout=120s")
    after = {node["metadata"]["name"]: node["metadata"]["annotations"] for node in nodes.get("nodes")["items"]}
    ours = "flannel.alpha.coreos.com/backend-data"
    assert {name: each[ours] for name, each in after.items()} == {name: each[ours] for name, each in before.items()}


def test_metrics_answer_in_the_image(nodes: Cluster):
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8081/metrics').read().decode())"
    assert "weft_ready 1.0" in nodes.lab.run("node1", sys.executable, "-c", ask)


def test_a_weftd_that_is_killed_is_started_again_in_its_container(nodes: Cluster):
    nodes.lab.run("node1", "sh", "-c", "kill -9 $(pgrep -x weftd)")
    eventually(lambda: {node["daemon"] for node in nodes.lab.ps()["nodes"]} == {"ready"}, seconds=60)
    [daemon] = [pod for pod in nodes.get("pods", "-n", "kube-flannel")["items"] if pod["spec"]["nodeName"] == "node1"]
    assert [each["restartCount"] for each in daemon["status"]["containerStatuses"]] == [0]
    said = nodes.kubectl("-n", "kube-flannel", "logs", daemon["metadata"]["name"])
    assert "weft-init: weftd was ended by signal 9 (Killed)" in said


def test_without_weftd_pods_start_and_end_and_the_next_one_knows_them(nodes: Cluster):
    daemon_set = nodes.get("-n", "kube-flannel", "daemonset", "kube-flannel-ds")
    nodes.run_pod("before")
    nodes.kubectl("-n", "kube-flannel", "delete", "daemonset", "kube-flannel-ds", "--wait")
    eventually(lambda: not nodes.get("pods", "-n", "kube-flannel")["items"], seconds=60)
    nodes.run_pod("meanwhile")
    nodes.kubectl("delete", "pod", "before", "--grace-period=1", "--wait", "--timeout=60s")
    daemon_set["metadata"] = {key: daemon_set["metadata"][key] for key in ("name", "namespace", "labels")}
    del daemon_set["status"]
    nodes.kubectl("create", "-f", "-", stdin=json.dumps(daemon_set))
    nodes.kubectl("-n", "kube-flannel", "rollout", "status", "daemonset/kube-flannel-ds", "--timeout=120s")
    [address] = [pod["status"]["podIP"] for pod in nodes.get("pods")["items"]]
    nodes.lab.run("node2", "ping", "-c1", "-W5", address)
    assert address in nodes.lab.run("node1", "weft", "ipam", "list")
    nodes.kubectl("delete", "pod", "meanwhile", "--grace-period=1", "--wait", "--timeout=60s")
    eventually(lambda: address not in nodes.lab.run("node1", "weft", "ipam", "list"), seconds=30)


def test_settings_of_the_machine_stay_as_they_are(nodes: Cluster):
    shown = {name: nodes.lab.run("node1", "cat", f"/proc/sys/{name}").strip() for name in TUNED}
    assert shown["vm/overcommit_memory"] == "1"  # what its kubelet wants to see
    machine = {name: Path("/proc/sys", name).read_text().strip() for name in TUNED}
    assert machine["kernel/panic"] != shown["kernel/panic"]


def test_a_cluster_file_of_kind_makes_a_second_lab_beside_the_first(nodes: Cluster, tmp_path: Path):
    [port] = free_ports(1)
    mapping = {"containerPort": 8081, "hostPort": port}
    file = tmp_path / "cluster.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "kind": "Cluster",
                "apiVersion": "kind.x-k8s.io/v1alpha4",
                "networking": {"podSubnet": "10.60.0.0/16", "disableDefaultCNI": True, "kubeProxyMode": "nftables"},
                "nodes": [{"role": "control-plane"}, {"role": "worker", "extraPortMappings": [mapping]}],
            }
        )
    )
    with lab(str(file)) as running:
        cluster = Cluster(running)
        names = {node["metadata"]["name"]: node["spec"]["podCIDR"] for node in cluster.get("nodes")["items"]}
        assert names.keys() == {f"{running.name}-control-plane", f"{running.name}-worker"}
        assert all(subnet.startswith("10.60.") for subnet in names.values())
        # The port of the health of weft on one of the nodes, from the machine.
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            assert answer.status == HTTPStatus.OK
        cluster.kubectl("create", "deployment", "web", "--image=localhost/pause:1", "--replicas=2")
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        assert {node["daemon"] for node in nodes.lab.ps()["nodes"]} == {"ready"}
        ran = weft("lab", "up", str(file), "--name", "other", check=False)
        assert ran.returncode == 1
        assert f"127.0.0.1 port {port}, for other-worker: cannot be listened on: Address already in use" in ran.stderr
    listed = {one["name"] for one in json.loads(weft("lab", "list", "-o", "json").stdout)}
    assert nodes.lab.name in listed
    assert not {"other", running.name} & listed


def test_an_event_says_a_command_that_works_where_it_is_read(nodes: Cluster, daemon: str):
    before = nodes.get("-n", "kube-flannel", "configmap", "kube-flannel-cfg")["data"]
    changed = {**before, "net-conf.json": before["net-conf.json"].replace("10.244.", "10.245.")}
    assert changed != before
    patch = ("-n", "kube-flannel", "patch", "configmap", "kube-flannel-cfg", "--patch")
    nodes.kubectl(*patch, json.dumps({"data": changed}))
    # A kubelet writes a ConfigMap's files when it looks at the pod: each minute or two, and when the pod has changed.
    nodes.kubectl("-n", "kube-flannel", "annotate", "pod", daemon, "seen=now")
    try:
        command = f"`kubectl -n kube-flannel exec {daemon} -- weft plan`"
        eventually(lambda: command in nodes.kubectl("get", "events", "-A", "-o", "json"), seconds=150)
        planned = in_pod(nodes, daemon, "weft", "plan")
        assert planned.code == 1
        assert "LEASE-002 node node1: podCIDR 10.244." in planned.err
    finally:
        nodes.kubectl(*patch, json.dumps({"data": before}))


def test_the_image_in_the_manifest_is_the_one_that_is_made():
    from weft.lab.kubernetes.images import WEFT as OURS

    [daemon] = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "DaemonSet"]
    pod = daemon["spec"]["template"]["spec"]
    assert {each["image"] for each in [*pod["initContainers"], *pod["containers"]]} == {OURS}


def test_programs_that_are_missing_are_named_before_anything_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("WEFT_KUBERNETES", str(tmp_path))
    ran = weft("lab", "up", "--kubernetes", "--name", "none", check=False)
    assert ran.returncode == 2
    for name in ("kube-apiserver", "kubelet", "kube-proxy"):
        assert f"HOST-002 {name}: no such program on PATH" in ran.stderr


def _annotations() -> dict[str, str]:
    prefix = "flannel.alpha.coreos.com"
    return {
        f"{prefix}/kube-subnet-manager": "true",
        f"{prefix}/backend-type": "vxlan",
        f"{prefix}/backend-data": '{"VNI":1,"VtepMAC":"02:00:00:00:00:63"}',
        f"{prefix}/public-ip": "172.31.0.99",
    }


def _process(supervisor: int, name: str) -> int:
    tasks = Path(f"/proc/{supervisor}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text().split()]
    [found] = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == name[:15]]
    return found
