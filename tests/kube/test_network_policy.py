"""NetworkPolicies of a real API, enforced on real nodes: what is read of it, when, and what becomes of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.plugincalls import Runtime
from tests.node.policyworld import PORT, connects, listen
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.kubeapi import Api
from tests.support.kubernetes.kubecluster import POLICY_RULES, RULES, KubeCluster
from tests.support.netns import Netns
from tests.support.weftd import eventually
from weft.cni import build
from weft.cni.install.executables import install

POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
FROM_A = [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": PORT}]}]


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def api(cluster: KubeCluster) -> Iterator[Api]:
    """The API of a cluster whose daemons have the rights that policies need."""
    admin = cluster.server.admin
    kubeobjects.grant(admin, "weft", kubeobjects.user("nobody"), [*RULES, *POLICY_RULES])
    cluster.configure()
    yield admin
    for space in ("default", "other"):
        kubeobjects.add_namespace(admin, space)
        admin.delete(POLICIES.format(space))


def policy(api: Api, name: str, selects: dict[str, str], *, namespace: str = "default", **rules: Any) -> None:
    spec = {"podSelector": {"matchLabels": selects}, "policyTypes": [each.capitalize() for each in rules], **rules}
    api.post(POLICIES.format(namespace), {"metadata": {"name": name}, "spec": spec})


def begin(cluster: KubeCluster, tmp_path: Path, bin_dir: Path, *flags: str) -> Runtime:
    node = cluster.node(1).register().start("--ip-masq", *(flags or ("--network-policy=enforce",)))
    return Runtime(node, tmp_path, bin_dir)


def attach(runtime: Runtime, name: str) -> tuple[Netns, str]:
    """A pod that the API knows, and its address, which nobody has told the API yet."""
    pod = Netns()
    runtime.node.pods.append(pod)
    answer = runtime.ask("ADD", name, pod)
    assert "ips" in answer, answer
    listen(pod)
    return pod, answer["ips"][0]["address"].split("/")[0]


def run(runtime: Runtime, api: Api, name: str, **labels: str) -> tuple[Netns, str]:
    kubeobjects.add_pod(api, "default", name, runtime.node.name, **labels)
    return attach(runtime, name)


def test_a_policy_of_the_api_holds_from_a_pods_start_and_changes_take_effect(cluster, api, tmp_path, bin_dir):
    policy(api, "only-a", {"app": "web"}, ingress=FROM_A)
    runtime = begin(cluster, tmp_path, bin_dir)
    (web, ip), (a, _), (b, _) = (run(runtime, api, name, app=name) for name in ("web", "a", "b"))
    listen(web, 81)
    assert connects(a, ip)
    assert not connects(b, ip)
    assert not connects(a, ip, 81), "another port"
    api.patch("/api/v1/namespaces/default/pods/b", {"metadata": {"labels": {"app": "a"}}})
    eventually(lambda: connects(b, ip))
    policy(api, "shut-b", {"app": "a"}, egress=[])
    eventually(lambda: not connects(b, ip))
    api.delete(POLICIES.format("default"))
    eventually(lambda: connects(b, ip, 81))
    assert "API-001" not in runtime.node.log
