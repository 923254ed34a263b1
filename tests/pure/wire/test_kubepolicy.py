"""Policies, namespaces and pods of the API: what is read of them, and when."""

import json
import re
from datetime import UTC, datetime

import pytest

from weft.model.policy import NAME_LABEL, Policy
from weft.wire import kubepolicy
from weft.wire.kubelist import NotTheApiError
from weft.wire.kubepolicy import PolicyText, policy_of
from weft.wire.policy import Unreadable

META = {"name": "shut", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "managedFields": [{"a": 1}]}
SHUT = {"metadata": META, "spec": {"podSelector": {}, "ingress": []}}
POD = {
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "8", "labels": {"app": "web"}},
    "spec": {"nodeName": "node1", "containers": []},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.244.1.2"}]},
}


def text(spec: str = '{"podSelector": {}}', **changes: str) -> PolicyText:
    fields = {"kind": "policy", "namespace": "shop", "name": "shut", "uid": "u-1", **changes}
    return PolicyText(**fields, spec=spec.encode())  # type: ignore[arg-type]


def test_a_policy_stays_text_until_it_is_asked_for():
    page = kubepolicy.POLICIES.page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": [SHUT]}).encode())
    [found] = page.items
    assert found.id == ("policy", "shop", "shut")
    assert json.loads(found.spec) == SHUT["spec"]
    policy, problems = policy_of(found)
    assert isinstance(policy, Policy)
    assert (str(policy), policy.uid, policy.ingress, problems) == ("shop/shut", "u-1", (), ())


def test_a_cluster_policy_is_in_no_namespace():
    spec = {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}}
    made = {"metadata": {"name": "first"}, "spec": spec}
    found = kubepolicy.CLUSTER_POLICIES.event(json.dumps({"type": "ADDED", "object": made}).encode()).item
    assert found is not None
    assert found.id == ("clusterpolicy", "", "first")
    policy, _ = policy_of(found)
    assert policy.id == found.id


@pytest.mark.parametrize("spec", ["{", "[" * 100_000, "{}", "5"], ids=["cut", "deep", "empty", "number"])
def test_what_selects_nobody_knows_which_pods_is_said(spec):
    with pytest.raises(Unreadable) as said:
        policy_of(text(spec))
    assert said.value.problem.code == "POL-005"
    assert "NetworkPolicy shop/shut" in said.value.problem.where


def test_namespaces_come_as_their_metadata_alone():
    made = {"kind": "PartialObjectMetadata", "metadata": {"name": "shop", "labels": {"team": "a"}}}
    assert kubepolicy.NAMESPACES.one(json.dumps(made).encode()).labels == {"team": "a", NAME_LABEL: "shop"}


def test_of_a_pod_elsewhere_it_does_not_matter_where():
    body = json.dumps(POD).encode()
    own, version = kubepolicy.PODS.versioned(body)
    peer = kubepolicy.PEERS.one(body)
    assert (version, own.node, peer.node) == ("8", "node1", "")
    assert (own.ips, own.labels) == (peer.ips, peer.labels)


def test_the_path_of_a_pod_is_made_of_names_alone():
    assert kubepolicy.path_of("pods", "shop", "web-1") == "/api/v1/namespaces/shop/pods/web-1"
    for namespace, name in (("..", "web"), ("shop", "../../x"), ("shop", "a?b"), ("shop", "")):
        with pytest.raises(Unreadable):
            kubepolicy.path_of("pods", namespace, name)


def test_which_kinds_a_group_has():
    body = b'{"kind": "APIResourceList", "resources": [{"name": "clusternetworkpolicies"}]}'
    assert kubepolicy.has_resource(body, "clusternetworkpolicies")
    assert not kubepolicy.has_resource(body, "adminnetworkpolicies")
    assert not kubepolicy.has_resource(b'{"resources": null}', "x")
    with pytest.raises(NotTheApiError):
        kubepolicy.has_resource(b"<html>", "x")


def test_an_event_at_a_policy():
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    namespace, body = kubepolicy.event_of_policy(text(), "n1", now, "odd")
    event = json.loads(body)
    assert namespace == event["metadata"]["namespace"] == "shop"
    wanted = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": "shut", "uid": "u-1"}
    assert event["involvedObject"] == {**wanted, "namespace": "shop"}
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "POL-005", "odd")
    namespace, body = kubepolicy.event_of_policy(text(kind="clusterpolicy", namespace=""), "n1", now, "odd")
    assert (namespace, json.loads(body)["involvedObject"]["kind"]) == ("default", "ClusterNetworkPolicy")


def test_all_nodes_ask_for_the_same_event_at_a_policy():
    def name(policy: PolicyText, node: str = "n1", hour: int = 3, message: str = "odd") -> str:
        now = datetime(2026, 1, 2, hour, 4, 5, tzinfo=UTC)
        return json.loads(kubepolicy.event_of_policy(policy, node, now, message)[1])["metadata"]["name"]

    first = name(text())
    assert re.fullmatch(r"shut\.[0-9a-f]{16}", first)
    assert name(text(), "n2") == first
    others = {name(text(), hour=4), name(text(), message="odder"), name(text(uid="u-2"))}
    assert len(others - {first}) == 3
    assert re.fullmatch(r"a{199}\.[0-9a-f]{16}", name(text(name="a" * 199 + ".b" * 20))), "253 at most"


def test_what_kubectl_has_put_is_known_by_its_form():
    """Another object of the name and another spec have another form; another label of a policy has not."""
    policy = {"kind": "NetworkPolicy", **SHUT, "metadata": {**META, "generation": 3}}
    tier = {"kind": "ClusterNetworkPolicy", "metadata": {"name": "first", "uid": "u-2", "generation": 1}, "spec": {}}
    space = {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}}
    other = {"kind": "ConfigMap", "metadata": {"name": "x"}}
    whole = {"kind": "List", "items": [policy, tier, space, other]}
    assert kubepolicy.forms_in(json.dumps(whole).encode()) == {
        "NetworkPolicy shop/shut": "u-1 3",
        "ClusterNetworkPolicy first": "u-2 1",
        "Namespace shop": f"{NAME_LABEL}=shop,team=a",
    }
    assert kubepolicy.forms_in(json.dumps(policy).encode()) == {"NetworkPolicy shop/shut": "u-1 3"}
    with pytest.raises(NotTheApiError):
        kubepolicy.forms_in(b"error: no such thing")
