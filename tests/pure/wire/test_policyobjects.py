"""Namespaces and pods become values, and files hold these and policies."""

from ipaddress import ip_address

import msgspec
import pytest

from weft.model.errors import ConfigError
from weft.model.policy import NAME_LABEL, NamedPort
from weft.wire.policyobjects import NamespaceObject, PodObject, namespace_of, pod_of, read_objects

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"}, "generation": 1},
    "spec": {
        "nodeName": "node1",
        "containers": [
            {"name": "a", "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 9090}]},
            {"name": "b"},
            {"name": "c", "ports": [{"containerPort": 53, "name": "dns", "protocol": "UDP"}]},
            {"name": "d", "ports": [{"containerPort": 1, "name": "odd", "protocol": "ICMP"}]},
        ],
        "initContainers": [
            {"name": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 15090, "name": "metrics"}]},
            {"name": "migrate", "ports": [{"containerPort": 9999, "name": "once"}]},
        ],
    },
    "status": {"phase": "Running", "podIPs": [{"ip": "10.244.1.2"}, {"ip": "fd00::2"}, {"ip": "none"}]},
}

FILE = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: odd}
spec: {podSelector: {}, ingress: [{from: [{}]}]}
---
# nothing
"""


def bent(**status):
    return pod_of(msgspec.convert({**POD, "status": status}, PodObject))


def test_a_pod():
    pod = pod_of(msgspec.json.decode(msgspec.json.encode(POD), type=PodObject))
    assert (str(pod), pod.uid, pod.node, pod.labels) == ("shop/web-1", "u-1", "node1", {"app": "web"})
    assert pod.ips == (ip_address("10.244.1.2"), ip_address("fd00::2"))
    assert pod.ports == (
        NamedPort("http", "tcp", 8080),
        NamedPort("dns", "udp", 53),
        NamedPort("metrics", "tcp", 15090),
    )
    assert pod.counts


def test_pods_that_policies_do_not_mean():
    assert bent(phase="Succeeded").ended
    assert bent(phase="Failed").ended
    assert not bent(phase="Pending").ended
    host = pod_of(msgspec.convert({"metadata": {"name": "x"}, "spec": {"hostNetwork": True}}, PodObject))
    assert (host.host_network, host.namespace) == (True, "default")


@pytest.mark.parametrize(
    "annotations, uid",
    [({"kubernetes.io/config.mirror": "file", "other": "x"}, "file"), ({"other": "x"}, "u-1"), (None, "u-1")],
)
def test_a_static_pod_has_the_uid_of_its_file(annotations, uid):
    """The runtime is given that, and the object in the API has another."""
    meta = {**POD["metadata"], "annotations": annotations}
    assert pod_of(msgspec.convert({**POD, "metadata": meta}, PodObject)).uid == uid


def test_pods_with_the_same_labels_share_them():
    assert bent().labels is bent(phase="Failed").labels


def test_a_namespace_has_the_label_of_its_name():
    found = namespace_of(
        msgspec.convert({"metadata": {"name": "shop", "labels": {NAME_LABEL: "other"}}}, NamespaceObject)
    )
    assert (str(found), found.labels) == ("shop", {NAME_LABEL: "shop"})


def test_a_file():
    found = read_objects({"a.yaml": FILE})
    assert [str(each) for each in (*found.pods, *found.policies)] == ["shop/web", "default/odd"]
    assert {each.name: each.labels for each in found.namespaces} == {
        "shop": {"team": "a", NAME_LABEL: "shop"},
        "default": {NAME_LABEL: "default"},
    }
    assert [each.where for each in found.problems] == ["NetworkPolicy default/odd: spec.ingress[0].from[0]"]


@pytest.mark.parametrize(
    "text, where, seen",
    [
        ("a: [", "a.yaml", "while parsing"),
        ("- 1", "a.yaml", "a document without"),
        ("kind: Pod", "a.yaml", "a document without"),
        ("{apiVersion: v1, kind: List}", "a.yaml", "a document without"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: A}}", "a.yaml: Pod: metadata.name", "A"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: 1}", "a.yaml: Pod", "Expected `object`"),
        ("{apiVersion: networking.k8s.io/v1, kind: NetworkPolcy}", "a.yaml: NetworkPolcy", "NetworkPolcy of netw"),
        ("{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy}", "a.yaml: Cilium", "CiliumNetworkPolicy of cil"),
        ("{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy}", "a.yaml: Ad", "AdminNetworkP"),
        ("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}}", "a.yaml: NetworkPol", "None"),
    ],
)
def test_what_a_file_may_not_hold(text, where, seen):
    with pytest.raises(ConfigError) as refused:
        read_objects({"a.yaml": text})
    (problem,) = refused.value.problems
    assert problem.code == "POL-005"
    assert problem.where.startswith(where)
    assert problem.seen.startswith(seen)


def test_an_object_that_two_files_hold():
    with pytest.raises(ConfigError, match=r"b\.yaml: Namespace shop a second time"):
        read_objects(dict.fromkeys(("a.yaml", "b.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"))


def test_objects_of_others_in_the_group_are_passed_over():
    assert not read_objects({"a.yaml": "{apiVersion: networking.k8s.io/v1, kind: Ingress}"}).policies


@pytest.mark.parametrize("value", ["2026-02-30", "!!int x", "!!bool x", "!!timestamp x", "1" * 5000, "[" * 500])
def test_what_the_library_of_yaml_stumbles_over_is_a_fault_of_the_file(value):
    with pytest.raises(ConfigError) as caught:
        read_objects({"a.yaml": FILE, "b.yaml": f"a: {value}\n"})
    [problem] = caught.value.problems
    assert (problem.code, problem.where, problem.expected) == ("POL-005", "b.yaml", "YAML")
