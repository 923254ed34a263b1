"""The admission policy: a daemon works under it, and weft's account writes to nothing but its own node."""

import itertools
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.kubeapi import Api, ApiError
from tests.support.kubernetes.kubecluster import MANIFEST, RULES, KubeCluster
from tests.support.kubernetes.kubeobjects import NODES, PREFIX
from tests.support.weftd import eventually

DEPLOY = MANIFEST.parent


@pytest.fixture(scope="module")
def policy(shared_apiserver) -> Iterator[None]:
    """The admission policy, once: the server takes and forgets one some time after it is told."""
    file = str(DEPLOY / "admission.yaml")
    shared_apiserver.kubectl("apply", "-f", file)
    yield
    shared_apiserver.kubectl("delete", "-f", file)


@pytest.fixture
def guarded(apiserver, policy: None) -> tuple[Api, Api]:
    """A cluster with the admission policy; the API as weft's pod on node `own`, and as its account without a pod."""
    api = apiserver.admin
    for name, subnet in (("own", "10.244.77.0/24"), ("other", "10.244.78.0/24")):
        kubeobjects.add_node(api, name, subnet, labels={"zone": "a"}, annotations={"theirs": "1", "others": "2"})
        api.patch(f"{NODES}/{name}/status", {"status": _status()})
    kubeobjects.add_namespace(api, "kube-flannel")
    kubeobjects.service_account(api, "kube-flannel", "flannel")
    pod = kubeobjects.add_pod(api, "kube-flannel", "weft-on-own", "own", account="flannel")
    kubeobjects.grant(api, "admission", kubeobjects.account("kube-flannel", "flannel"), RULES)
    bound = apiserver.api(kubeobjects.service_account(api, "kube-flannel", "flannel", pod=pod))
    free = apiserver.api(kubeobjects.service_account(api, "kube-flannel", "flannel"))
    eventually(
        lambda: "weft's token is of a pod on another" in _refused(bound, _annotating(PREFIX), "other"), seconds=20
    )
    return bound, free


def test_a_daemon_works_under_the_admission_policy(cluster: KubeCluster):
    server = cluster.server
    node = cluster.node(1).register()
    kubeobjects.add_namespace(server.admin, "kube-flannel")
    kubeobjects.service_account(server.admin, "kube-flannel", "flannel")
    kubeobjects.grant(server.admin, "admission", kubeobjects.account("kube-flannel", "flannel"), RULES)
    pod = kubeobjects.add_pod(server.admin, "kube-flannel", "weft-on-node1", "node1", account="flannel")
    node.token = kubeobjects.service_account(server.admin, "kube-flannel", "flannel", pod=pod)
    server.kubectl("apply", "-f", str(DEPLOY / "admission.yaml"))
    try:
        bound, tries = server.api(node.token), itertools.count()
        eventually(lambda: _refused(bound, _annotating("theirs", value=str(next(tries))), "node1"), seconds=20)
        cluster.configure()
        node.start()
        assert node.said["public-ip"]
        eventually(lambda: "NetworkUnavailable" in str(node.object["status"].get("conditions")), seconds=20)
        assert "API-001" not in node.log
    finally:
        server.kubectl("delete", "-f", str(DEPLOY / "admission.yaml"))


def _status() -> dict[str, Any]:
    """What a kubelet says of a node, as far as it matters; large as a real one's."""
    return {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "own"}],
        "capacity": {"cpu": "2", "pods": "110"},
        "images": [{"names": [f"registry.test/image{number}@sha256:{'a' * 64}"]} for number in range(50)],
        "conditions": [_condition("Ready", "True"), _condition("MemoryPressure", "False")],
    }


def _condition(kind: str, status: str, reason: str = "tried") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def _annotating(*names: str, value: str | None = "tried") -> dict[str, Any]:
    return {"metadata": {"annotations": {f"{name}x" if name == PREFIX else name: value for name in names}}}


def _refused(api: Api, change: dict[str, Any], node: str = "own") -> str:
    """Why a change of a node's status is refused; empty if it is not."""
    try:
        api.patch(f"{NODES}/{node}/status", change)
    except ApiError as error:
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        return str(error)
    return ""


def test_the_admission_policy_lets_weft_publish_on_its_own_node_alone(apiserver, guarded: tuple[Api, Api]):
    bound, free = guarded
    own = f"{NODES}/own"
    kubeobjects.annotate(bound, "own", **kubeobjects.flannel("10.0.0.1"))
    kubeobjects.annotate(bound, "own", **{f"{PREFIX}backend-data": None})
    for status in ("True", "False"):  # made, then changed
        bound.patch(f"{own}/status", {"status": {"conditions": [_condition("NetworkUnavailable", status)]}})
    assert {each["type"] for each in bound.get(own)["status"]["conditions"]} >= {"Ready", "NetworkUnavailable"}
    assert "or of none" in _refused(free, _annotating(PREFIX))
    kubeobjects.annotate(apiserver.admin, "other", others="are not asked")


CHANGES: dict[str, dict[str, Any]] = {
    "an annotation of others": _annotating("theirs"),
    "an annotation that was not there": _annotating("new"),
    "an annotation of others taken away": _annotating("theirs", value=None),
    "an annotation that begins almost as ours": _annotating("flannel.alpha.coreos.computer/x"),
    "a label": {"metadata": {"labels": {"zone": "b"}}},
    "a new label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    "a label taken away": {"metadata": {"labels": {"zone": None}}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
    "InternalIP": {"status": {"addresses": [{"type": "InternalIP", "address": "6.6.6.6"}]}},
    "another address": {"status": {"addresses": [{"type": "ExternalIP", "address": "6.6.6.6"}]}},
    "the kubelet's port": {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 6666}}}},
    "capacity": {"status": {"capacity": {"pods": "1000"}}},
    "allocatable": {"status": {"allocatable": {"cpu": "100"}}},
    "images": {"status": {"images": [{"names": ["a"]}]}},
    "what the node is": {"status": {"nodeInfo": {"kubeletVersion": "v0"}}},
    "volumes": {"status": {"volumesInUse": ["a"]}},
    "Ready": {"status": {"conditions": [_condition("Ready", "False")]}},
    "a condition of its own": {"status": {"conditions": [_condition("Mine", "True")]}},
    "a condition taken away": {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_admission_policy_refuses_whatever_else_a_pod_of_weft_would_write(guarded: tuple[Api, Api], what: str):
    bound, _ = guarded
    before = bound.get(f"{NODES}/own")
    assert re.search("weft may( not)? change", _refused(bound, CHANGES[what]))
    both = {**_annotating(PREFIX), **CHANGES[what]}  # hidden in what is allowed
    both["metadata"] = {**_annotating(PREFIX)["metadata"], **CHANGES[what].get("metadata", {})}
    assert re.search("weft may( not)? change", _refused(bound, both))
    assert bound.get(f"{NODES}/own") == before


def test_taints_of_a_node_cannot_be_changed_by_its_status(guarded: tuple[Api, Api]):
    """The API itself passes over what a patch of the status says of the spec."""
    bound, _ = guarded
    before = bound.get(f"{NODES}/own")["spec"]
    bound.patch(f"{NODES}/own/status", {"spec": {"taints": [], "unschedulable": True}})
    assert bound.get(f"{NODES}/own")["spec"] == before
