"""NetworkPolicies of the API on Kubernetes nodes: turned on in a running cluster, audit first, and by the lab."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kubepods import PORT, answering
from tests.lab.test_lab_kubernetes import MANIFEST, Cluster
from tests.lab.test_lab_policy import allows, written
from tests.lab.test_lab_policy import policy as asked
from tests.support.kubernetes import apiserver
from tests.support.kubernetes.kubeapi import Json
from tests.support.kubernetes.kubenodes import pod
from tests.support.lab import lab
from tests.support.weftd import eventually
from weft.lab.kubernetes import images

pytestmark = pytest.mark.timeout(1800)  # for a machine that is busy with other work

_DAEMON_SET = ("-n", "kube-flannel", "daemonset", "kube-flannel-ds")
_ARGS = "/spec/template/spec/containers/0/args/"
# From its first instruction a pod tries to connect for some seconds; its exit code says whether it ever did.
_TRYING = f"""
import socket, sys, time
until, made = time.monotonic() + 4, 0
while time.monotonic() < until and not made:
    try:
        socket.create_connection((sys.argv[1], {PORT}), 0.5).close()
        made = 1
    except OSError:
        pass
sys.exit(10 + made)
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("WEFT_KUBERNETES", str(apiserver.programs()))
    with lab("--kubernetes", "--nodes", "2") as running:
        yield Cluster(running)


def create(cluster: Cluster, made: Json, **labels: str) -> None:
    made["metadata"].setdefault("labels", {}).update(labels)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", **made}))


def policy(cluster: Cluster, name: str, app: str, **rules: Any) -> None:
    types = [each.capitalize() for each in rules]
    spec = {"podSelector": {"matchLabels": {"app": app}}, "policyTypes": types, **rules}
    made = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))


def turn(cluster: Cluster, mode: str) -> None:
    """Have all daemons started again with policies in this mode."""
    [container] = cluster.get(*_DAEMON_SET)["spec"]["template"]["spec"]["containers"]
    there = [number for number, each in enumerate(container["args"]) if each.startswith("--network-policy=")]
    operation, place = ("replace", str(there[0])) if there else ("add", "-")
    step = {"op": operation, "path": f"{_ARGS}{place}", "value": f"--network-policy={mode}"}
    cluster.kubectl("patch", *_DAEMON_SET, "--type=json", "-p", json.dumps([step]))
    cluster.kubectl("rollout", "status", *_DAEMON_SET[:2], "daemonset/kube-flannel-ds", "--timeout=110s")


def connected(cluster: Cluster, name: str, node: str, target: str, **labels: str) -> bool:
    """Start a pod that tries to connect from its first instruction, and tell whether it ever did."""
    made = pod(name, node=node, image=images.WEFT)
    made["spec"]["restartPolicy"] = "Never"
    made["spec"]["containers"][0]["command"] = ["/opt/weft/bin/python3", "-c", _TRYING, target]
    create(cluster, made, **labels)

    def code() -> int:
        [status] = cluster.get("pod", name)["status"].get("containerStatuses", [{}])
        return int(status.get("state", {}).get("terminated", {}).get("exitCode", 0))

    found = eventually(code, seconds=60)
    assert found in (10, 11)
    return found == 11


def test_policies_are_turned_on_in_a_running_cluster_and_hold_from_a_pods_first_packet(cluster: Cluster):
    create(cluster, answering("web", "node1"), app="web")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=100s")
    web = cluster.get("pod", "web")["status"]["podIP"]
    allowed = [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": PORT}]}]
    policy(cluster, "only-a", "web", ingress=allowed)
    policy(cluster, "shut-c", "c", egress=[])
    assert connected(cluster, "off", "node2", web), "nobody enforces it"

    cluster.kubectl("apply", "-f", str(MANIFEST.with_name("network-policy.yaml")))
    turn(cluster, "audit")
    assert connected(cluster, "audited", "node2", web)
    counted = cluster.lab.run("node1", "nft", "list", "set", "inet", "weft-policy", "denied-in4")
    assert f"{web} . tcp . {PORT}" in counted

    turn(cluster, "enforce")
    assert not connected(cluster, "b1", "node2", web), "on another node"
    assert not connected(cluster, "b2", "node1", web), "on the same"
    assert connected(cluster, "a", "node2", web, app="a")
    policy(cluster, "only-a", "web", ingress=[{"from": [{"podSelector": {}}]}])
    assert not connected(cluster, "c", "node2", web, app="c"), "what may not leave"
    assert connected(cluster, "b3", "node2", web), "the policy is another by now"


def test_policies_of_the_api_are_applied_listed_explained_and_deleted_by_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEFT_KUBERNETES", str(apiserver.programs()))
    shut = written(tmp_path / "shut.yaml", allows("shut", {"app": "web"}))
    free = written(tmp_path / "free.yaml", allows("free", {"app": "web"}, {"podSelector": {}}))
    with lab("--kubernetes", "--nodes", "1", "--policy", shut) as running:
        cluster = Cluster(running)
        create(cluster, answering("web", "node1"), app="web")
        create(cluster, pod("b", node="node1"))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "pod/b", "--timeout=100s")
        web = cluster.get("pod", "web")["status"]["podIP"]
        [there] = json.loads(asked(running, "list", "-o", "json"))
        assert there == {"kind": "NetworkPolicy", "namespace": "default", "name": "shut", "pods": ["default/web"]}
        assert asked(running, "list", "default/b") == "no policies\n"
        assert "no rule of default/shut allows it" in asked(running, "explain", "b", f"web:{PORT}", status=1)
        assert not connected(cluster, "before", "node1", web)

        assert "default/b → default/web" in asked(running, "preview", free)
        assert asked(running, "apply", free) == "NetworkPolicy default/free is in effect\n"
        assert "default/free" in running.run("node1", "weft", "policy", "list"), "it has waited for that"
        assert "default/free allows it" in asked(running, "explain", "b", f"web:{PORT}")
        assert connected(cluster, "after", "node1", web)
        assert "default/shut" in asked(running, "denied")

        assert asked(running, "delete", "free") == "NetworkPolicy default/free is gone\n"
        assert "no policy of this name; expected one of NetworkPolicy default/shut" in asked(
            running, "delete", "free", status=2
        )
        listed = running.run("node1", "weft", "policy", "list")
        assert "default/free" not in listed
        assert "In effect since " in listed
        assert not connected(cluster, "again", "node1", web)
