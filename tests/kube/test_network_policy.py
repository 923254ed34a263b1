"""NetworkPolicies of a real API, enforced on real nodes: what is read of it, when, and what becomes of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.plugincalls import Runtime
from tests.node.policyworld import PORT, connects, listen, rules
from tests.support import etcd
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import running
from tests.support.kubernetes.kubeapi import Api, ApiError
from tests.support.kubernetes.kubecluster import POLICY_RULES, RULES, KubeCluster, clusters
from tests.support.netns import Netns
from tests.support.weftd import Underlay, eventually
from weft.cni import build
from weft.cni.install.executables import install

POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
KIND = {"apiVersion": "policy.networking.k8s.io/v1beta1", "kind": "ClusterNetworkPolicy"}
CLUSTER = "/apis/policy.networking.k8s.io/v1beta1/clusternetworkpolicies"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
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


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[KubeCluster, Api]]:
    """A cluster whose API server may go."""
    underlay = Underlay(tmp_path / "etcd", etcd.wheel())
    try:
        with running(tmp_path / "apiserver", underlay.etcd, netns=underlay.switch) as server:
            for cluster in clusters(underlay, server, tmp_path):
                kubeobjects.grant(server.admin, "weft", kubeobjects.user("nobody"), [*RULES, *POLICY_RULES])
                cluster.configure()
                yield cluster, server.admin
    finally:
        underlay.close()


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


@contextmanager
def cluster_policies(api: Api) -> Iterator[None]:
    """Have the API serve their kind."""
    api.post(CRDS, crd())
    try:
        eventually(lambda: serves(api, CLUSTER), seconds=20)
        yield
    finally:
        api.delete(f"{CRDS}/clusternetworkpolicies.policy.networking.k8s.io")
        eventually(lambda: not serves(api, CLUSTER), seconds=20)


@pytest.fixture
def kind(api: Api) -> Iterator[None]:
    with cluster_policies(api):
        yield


def serves(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError:
        return False
    return True


def crd() -> dict[str, Any]:
    """The kind, with a schema that takes everything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "clusternetworkpolicies", "kind": KIND["kind"]}
    meta = {
        "name": f"{names['plural']}.policy.networking.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    }
    group = "policy.networking.k8s.io"
    return {"metadata": meta, "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]}}


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


def test_a_pod_that_is_placed_here_has_its_chains_before_its_add(cluster, api, tmp_path, bin_dir):
    policy(api, "only-a", {"app": "web"}, ingress=FROM_A)
    node = begin(cluster, tmp_path, bin_dir).node
    assert "only-a" not in rules(node)
    kubeobjects.add_pod(api, "default", "web", node.name, app="web")
    eventually(lambda: "in/default/only-a" in rules(node))


def test_peers_elsewhere_are_known_by_their_namespaces(cluster, api, tmp_path, bin_dir):
    for name, team in ("shop", "a"), ("bank", "b"):
        kubeobjects.add_namespace(api, name)
        api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"team": team}}})
    kubeobjects.add_pod(api, "shop", "a", "node2", ip="10.5.2.7")
    kubeobjects.add_pod(api, "bank", "b", "node2", ip="10.5.2.8")
    policy(api, "team-a", {"app": "web"}, ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]}])
    runtime = begin(cluster, tmp_path, bin_dir)
    run(runtime, api, "web", app="web")
    assert peers(runtime) == {"10.5.2.7"}, "from the pod's first packet"
    api.patch("/api/v1/namespaces/bank", {"metadata": {"labels": {"team": "a"}}})
    eventually(lambda: peers(runtime) == {"10.5.2.7", "10.5.2.8"})
    api.delete("/api/v1/namespaces/shop/pods/a", gracePeriodSeconds=0)
    eventually(lambda: peers(runtime) == {"10.5.2.8"})


def peers(runtime: Runtime) -> set[str]:
    """Addresses in sets of peers."""
    shown = runtime.node.netns.run("nft list table inet weft-policy")
    sets = re.findall(r"set peers4-\w+ \{(.*?)\n\t\}", shown, re.DOTALL)
    return {ip for each in sets for ip in re.findall(r"[\d.]{7,}", each)}


def test_what_is_known_goes_on_while_the_api_is_away_and_a_new_pod_waits(own, tmp_path, bin_dir):
    cluster, api = own
    policy(api, "only-a", {"app": "web"}, ingress=FROM_A)
    runtime = begin(cluster, tmp_path, bin_dir)
    (_, ip), (a, _), (b, _) = (run(runtime, api, name, app=name) for name in ("web", "a", "b"))
    before = rules(runtime.node)
    cluster.server.kill()
    runtime.node.says("POL-003 policies: what is known may be old", seconds=60)
    assert connects(a, ip)
    assert not connects(b, ip)
    late = Netns()
    runtime.node.pods.append(late)
    answer = runtime.ask("ADD", "late", late)
    assert (answer["code"], "POL-003" in str(answer)) == (11, True)
    runtime.node.stop()
    runtime.node.spawn("--ip-masq", "--network-policy=enforce")
    runtime.node.says("POL-003", seconds=60)
    assert rules(runtime.node) == before, "by a daemon that knows nothing yet"
    cluster.server.start()
    runtime.node.wait_ready()
    assert connects(a, ip)
    assert not connects(b, ip)
    assert rules(runtime.node) == before, "nothing is written again"
    run(runtime, api, "late", app="late")


def test_a_cluster_network_policy_is_enforced_once_its_kind_is_there(cluster, api, tmp_path, bin_dir):
    runtime = begin(cluster, tmp_path, bin_dir)
    (_, ip), (a, _) = (run(runtime, api, name, app=name) for name in ("web", "a"))
    assert connects(a, ip)
    with cluster_policies(api):
        everything = {"namespaces": {}}
        rule = {"action": "Deny", "from": [everything]}
        spec = {"tier": "Admin", "priority": 1, "subject": everything, "ingress": [rule]}
        api.post(CLUSTER, {**KIND, "metadata": {"name": "shut"}, "spec": spec})
        eventually(lambda: not connects(a, ip), seconds=90)
    eventually(lambda: connects(a, ip), seconds=90)


def test_what_cannot_be_enforced_as_written_is_an_event_at_the_policy(cluster, api, kind, tmp_path, bin_dir):
    rule = {"action": "Accept", "to": [{"domainNames": ["example.com"]}]}
    spec = {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "egress": [rule]}
    api.post(CLUSTER, {**KIND, "metadata": {"name": "names"}, "spec": spec})
    node = begin(cluster, tmp_path, bin_dir).node
    node.says("POL-005 ClusterNetworkPolicy names: spec.egress")
    described = ("describe", "clusternetworkpolicy", "names")
    eventually(lambda: "Warning  POL-005" in cluster.server.kubectl(*described), seconds=90)
    assert "domainNames" in cluster.server.kubectl(*described)


def test_off_asks_for_nothing_and_makes_no_table(cluster, tmp_path, bin_dir):
    """Without the right to, anything that is asked for is refused, which the API counts."""
    cluster.configure()
    before = refusals(cluster)
    node = cluster.node(1).register().start("--ip-masq")
    runtime = Runtime(node, tmp_path, bin_dir)
    kubeobjects.add_pod(cluster.server.admin, "default", "web", node.name)
    attach(runtime, "web")
    assert refusals(cluster) == before
    assert "weft-policy" not in node.netns.run("nft list tables")
    node.stop()
    node.spawn("--ip-masq", "--network-policy=enforce")
    eventually(lambda: refusals(cluster) > before)


def refusals(cluster: KubeCluster) -> float:
    """Requests for which the API has found no right."""
    lines = cluster.server.admin.text("/metrics").splitlines()
    counts = (each for each in lines if re.match(r"authorization_attempts_total\{result=\"(denied|no-opinion)\"", each))
    return sum(float(each.split()[-1]) for each in counts)


@pytest.mark.parametrize(
    "resource, verb", [(each["resources"][0], verb) for each in POLICY_RULES for verb in each["verbs"] if verb != "get"]
)
def test_each_right_of_policies_is_needed_and_is_named_when_it_is_missing(cluster, api, kind, resource, verb):
    grant_all_but(api, resource, verb)
    node = cluster.node(1).register().spawn("--ip-masq", "--network-policy=enforce")
    node.says(rf'API-001 .*resources: \["{resource}"\], verbs: \["{verb}"\]}}', seconds=30)


def test_without_the_right_to_get_one_a_pod_is_known_by_the_watch_alone(cluster, api, tmp_path, bin_dir):
    runtime = begin(cluster, tmp_path, bin_dir)
    before = refusals(cluster)
    assert refused(runtime)["code"] == 11
    assert refusals(cluster) == before
    grant_all_but(api, "pods", "get")
    eventually(lambda: refused(runtime)["code"] == 11 and refusals(cluster) > before)
    run(runtime, api, "web")


def refused(runtime: Runtime) -> Any:
    """What is said to a pod that the API does not know."""
    pod = Netns()
    runtime.node.pods.append(pod)
    return runtime.ask("ADD", "nobody", pod)


def grant_all_but(api: Api, resource: str, verb: str) -> None:
    rules = [rule for rule in (*RULES, *POLICY_RULES) if rule["resources"] != [resource]]
    [whole] = [rule for rule in POLICY_RULES if rule["resources"] == [resource]]
    rules.append({**whole, "verbs": [each for each in whole["verbs"] if each != verb]})
    kubeobjects.grant(api, "weft", kubeobjects.user("nobody"), rules)


def test_all_pods_of_all_namespaces_are_meant_by_the_pod_network(cluster, api, tmp_path, bin_dir):
    policy(api, "pods-alone", {"app": "web"}, ingress=[{"from": [{"namespaceSelector": {}}]}])
    runtime = begin(cluster, tmp_path, bin_dir)
    (_, ip), (a, _) = (run(runtime, api, name, app=name) for name in ("web", "a"))
    assert connects(a, ip)
    assert peers(runtime) == set(), "and none is read for it"


def test_what_is_asked_for_policies_is_counted(cluster, api, tmp_path, bin_dir):
    node = begin(cluster, tmp_path, bin_dir).node
    counts = re.findall(r'weft_store_requests_total\{code="200",verb="(\w+)"\} (\S+)', node.get("/metrics")[1])
    assert float(dict(counts)["watch"]) >= 4, "nodes, policies, namespaces and pods"
