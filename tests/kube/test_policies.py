"""NetworkPolicies that nobody enforces are told (POL-001), on a real API and by real rules."""

from collections.abc import Iterator

import pytest

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ApiServer
from tests.support.kubernetes.kubecluster import RULES, KubeCluster
from tests.support.weftd import eventually

SPACES = ("default", "policies")
PATH = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
TOLD = r"POL-001 NetworkPolicies: the cluster has 3 NetworkPolicies, and no rules of a program that enforces them"


@pytest.fixture
def policies(cluster: KubeCluster) -> Iterator[ApiServer]:
    """A cluster with three policies, in two namespaces."""
    api = cluster.server.admin
    kubeobjects.add_namespace(api, "policies")
    for space, name in zip((*SPACES, SPACES[0]), "abc", strict=True):
        api.post(PATH.format(space), {"metadata": {"name": name}, "spec": {"podSelector": {}}})
    yield cluster.server
    for space in SPACES:
        api.delete(PATH.format(space))


def test_policies_that_nobody_enforces_are_told(cluster: KubeCluster, policies: ApiServer):
    cluster.configure()
    node = cluster.node(1).register().start()
    node.says(TOLD, seconds=40)
    assert 'weft_problems{code="POL-001"} 1.0' in node.get("/metrics")[1]
    assert node.get("/readyz")[0] == 200
    eventually(lambda: "Warning  POL-001" in policies.kubectl("describe", "node", "node1"), seconds=20)
    assert node.log.count("POL-001") == 1


def test_nothing_is_said_where_another_program_has_rules(cluster: KubeCluster, policies: ApiServer):
    cluster.configure()
    open_node, guarded = cluster.node(1).register(), cluster.node(2).register()
    guarded.netns.run("nft add table inet kube-network-policies")
    guarded.netns.run("nft add chain inet kube-network-policies forward")
    guarded.start()
    guarded.says("ready:")
    open_node.start()  # which looks ten seconds after its start: the other has looked by then
    open_node.says(TOLD, seconds=40)
    assert "POL-001" not in guarded.log


def test_without_the_right_to_know_nothing_is_said(cluster: KubeCluster, policies: ApiServer):
    cluster.configure()
    few = [rule for rule in RULES if rule["apiGroups"] == [""]]
    kubeobjects.grant(policies.admin, "weft", kubeobjects.user("nobody"), few)
    node = cluster.node(1).register().start()
    kubeobjects.grant(policies.admin, "weft", kubeobjects.user("nobody"), few)
    other = cluster.node(2).register()
    other.token = policies.admin.token  # who may do everything
    other.start()
    other.says(TOLD, seconds=40)
    assert not {"POL-001", "API-001"} & set(node.log.split())
