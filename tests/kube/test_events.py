"""Events of a node in the API, as kubectl shows them."""

import asyncio

import pytest

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ADMIN, NOBODY, ApiServer
from tests.support.kubernetes.kubecluster import KubeCluster
from tests.support.weftd import eventually
from weft.cluster.kube.access import Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.kubeconfig import find
from weft.cluster.kube.own import KubeTenure
from weft.config.kubernetes import Surroundings
from weft.model.errors import Unavailable
from weft.plan.announce import Event

GONE = Event(kind="Warning", reason="ROUTE-002", message="flannel.1: gone")


def tenure(server: ApiServer, tmp_path, token: str) -> KubeTenure:
    config = kubeobjects.write_kubeconfig(tmp_path / "kubeconfig", server.api(token))
    client = Client(find("", str(config), around=Surroundings()))
    return KubeTenure(client, Surroundings(node="node1"), "", events=client, tells=False, timing=Timing())


def test_an_event_is_what_kubectl_describes_of_a_node(apiserver: ApiServer, tmp_path):
    kubeobjects.add_node(apiserver.admin, "node1", "10.5.1.0/24")
    asyncio.run(tenure(apiserver, tmp_path, ADMIN).tell(GONE))
    assert "Warning  ROUTE-002" in apiserver.kubectl("describe", "node", "node1")


def test_an_event_that_is_not_allowed_names_the_rule(apiserver: ApiServer, tmp_path):
    with pytest.raises(Unavailable, match=r"API-001 .*resources: \[\"events\"\], verbs: \[\"create\"\]"):
        asyncio.run(tenure(apiserver, tmp_path, NOBODY).tell(GONE))


def test_a_node_whose_network_became_ready_says_so(cluster: KubeCluster):
    cluster.configure()
    cluster.node(1).register().start()
    eventually(lambda: "NetworkReady" in cluster.server.kubectl("describe", "node", "node1"), seconds=20)


def test_a_problem_of_a_node_is_a_warning_of_its_object(cluster: KubeCluster):
    cluster.configure()
    node = cluster.node(1).register()
    node.start()
    node.subnet_file.unlink()
    (node.subnet_file / "in the way").mkdir(parents=True)
    eventually(lambda: "Warning  LEASE-001" in cluster.server.kubectl("describe", "node", "node1"), seconds=30)
