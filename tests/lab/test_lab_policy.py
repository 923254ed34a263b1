"""Policies in a lab: its nodes enforce them, `check` judges by them, and commands change and explain them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.lab import Lab, lab, weft


def allows(name: str, target: dict[str, str], *peers: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "spec": {"podSelector": {"matchLabels": target}, "ingress": [{"from": list(peers)}] if peers else []},
    }


def written(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def pods(**labels: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": labels}}


def checked(running: Lab) -> Any:
    ran = running.weft("check", "-o", "json", "--quick", check=False)
    assert ran.stdout, ran.stderr
    return json.loads(ran.stdout)


def well(running: Lab) -> Any:
    found = checked(running)
    assert not found["failed"], found["conclusion"]
    return found


def refused(found: Any) -> set[tuple[str, str]]:
    trials = [each["trial"] for each in found["trials"] if each["trial"].get("forbidden")]
    return {(each["source"], each["target"]) for each in trials}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    file = tmp_path_factory.mktemp("policies") / "only-one.yaml"
    policy = written(file, allows("only-one", {"pod": "pod2-1"}, pods(pod="pod1-1")))
    with lab("--nodes", "2", "--pods", "2", "--family", "46", "--policy", policy) as running:
        yield running


def test_who_was_refused_is_told_by_names(running: Lab):
    running.weft("check", "--quick", check=False)
    assert "On this node: In effect since " in running.run(
        "node1", "weft", "policy", "explain", "lab/pod1-1", "lab/pod2-1"
    )
    found = {each["node"]: each["seen"] for each in json.loads(policy(running, "denied", "-o", "json"))}
    assert list(found) == ["node1", "node2"]
    flows = found["node2"]["flows"]
    refused = {(each["source_pod"], each["target_pod"], *each["policies"]) for each in flows}
    assert ("lab/pod2-2", "lab/pod2-1", "lab/only-one") in refused
    assert "lab/pod2-2 (" in policy(running, "denied")


def test_what_policies_forbid_is_lost_and_that_is_right(running: Lab):
    found = well(running)
    assert found["conclusion"].startswith("everything reaches everything that policies allow, and nothing else: ")
    # `--quick` tries one pod of each node, and two on one node.
    assert refused(found) == {("pod2-2", "pod2-1"), ("node1", "pod2-1")}
    assert running.reached("pod1-1", "pod2-1") == {4: True, 6: True}
    assert running.reached("pod1-2", "pod2-1") == {4: False, 6: False}


def test_a_trace_names_the_policy_and_the_rule_that_decide(running: Lab):
    """As it is foretold, and as the kernel tells of the probes."""

    def traced(source: str, target: str) -> tuple[str, list[str]]:
        found = json.loads(running.weft("trace", "-o", "json", source, target, check=False).stdout)
        hops = [hop for leg in found["legs"] for hop in leg["way"]["hops"]]
        problem = found["problem"] or {}
        return problem.get("seen", ""), [hop["seen"] for hop in hops if hop["what"] == "policies"]

    problem, said = traced("pod2-2", "pod2-1")
    assert problem.startswith(
        "ingress refused: no rule of lab/only-one allows it, by rule of inet weft-policy denied-in"
    )
    assert "as the kernel tells" in problem
    assert any("ingress refused: no rule of lab/only-one allows it" in each for each in said)
    problem, said = traced("pod1-1", "pod2-1")
    assert not problem
    assert "ingress allowed: ingress[0].from[0] of lab/only-one allows it" in said


def test_pings_are_judged_by_what_policies_allow(running: Lab):
    said = running.weft("pingall").stdout
    assert "were refused, as policies say" in said
    assert "refused, as policies say" in running.weft("ping", "-c", "1", "pod2-2", "pod2-1", check=False).stdout


def test_one_that_arrives_though_it_is_forbidden_is_a_fault(running: Lab):
    running.weft("kill", "node2/weftd")
    try:
        for table in ("inet weft-policy", "bridge weft-policy"):
            running.run("node2", "nft", "delete", "table", *table.split())
        found = checked(running)
        assert "though policies forbid it" in running.weft("pingall", check=False).stdout
    finally:
        running.weft("start", "node2/weftd")
    faults = {(each["trial"]["source"], each["trial"]["target"]) for each in found["trials"] if each["fault"]}
    assert faults == {("pod2-2", "pod2-1"), ("node1", "pod2-1")}
    assert {each["fault"] for each in found["trials"]} == {"", "forbidden"}
    assert "though policies forbid it" in found["conclusion"]
    well(running)


def test_a_policy_is_applied_listed_explained_and_deleted(running: Lab, tmp_path: Path):
    file = written(tmp_path / "none.yaml", allows("none", {"node": "node1"}))
    policy(running, "apply", file)
    assert [(each["name"], each["pods"]) for each in json.loads(policy(running, "list", "-o", "json"))] == [
        ("only-one", ["pod2-1"]),
        ("none", ["pod1-1", "pod1-2"]),
    ]
    assert running.reached("pod2-1", "pod1-1") == {4: False, 6: False}
    assert "refused: no rule of lab/none allows it" in policy(running, "explain", "pod2-1", "pod1-1:80", status=1)
    assert "allowed" in policy(running, "explain", "pod1-1", "pod2-1:80").splitlines()[0]
    assert policy(running, "delete", "none") == "NetworkPolicy lab/none is gone\n"
    assert running.reached("pod2-1", "pod1-1") == {4: True, 6: True}
    assert "no policy of this name; expected one of NetworkPolicy lab/only-one" in policy(
        running, "delete", "none", status=2
    )


def policy(running: Lab, command: str, *arguments: str, status: int = 0) -> str:
    ran = weft("lab", "policy", command, "--lab", running.name, *arguments, check=False)
    assert ran.returncode == status, (ran.stdout, ran.stderr)
    return ran.stdout or ran.stderr


# What is typed for each, and what the answer says.
TASKS = {
    "why does A not reach B": ("policy explain", ["pod2-2", "pod2-1:80"], "no rule of lab/only-one allows it"),
    "which policies hold for this pod": ("policy list", ["pod2-1"], "only-one"),
    "who was refused in the last ten minutes": ("policy denied", [], "lab/pod2-2 ("),
    "what would this file break": ("policy preview", ["{file}"], "lab/pod1-1 → lab/pod1-2: no more"),
    "what is not enforced": ("exec", ["node1", "weft", "doctor"], "POL-005"),
}
WRONG = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}


def test_five_tasks_are_one_command_each(running: Lab, tmp_path: Path):
    preview = written(tmp_path / "shut.yaml", allows("shut", {"pod": "pod1-2"}))
    running.weft("check", "--quick", check=False)  # who is refused
    policy(running, "apply", written(tmp_path / "wrong.yaml", allows("wrong", {"pod": "pod2-2"}, WRONG)))
    try:
        for task, (command, words, answer) in TASKS.items():
            given = (word.format(file=preview) for word in words)
            said = weft("lab", *command.split(), "--lab", running.name, *given, check=False)
            assert answer in said.stdout, (task, said.stdout, said.stderr)
    finally:
        policy(running, "delete", "wrong")
    assert "only-one" not in policy(running, "list", "pod1-1")


def test_a_pod_that_comes_is_judged_from_its_start_and_one_that_leaves_is_forgotten(running: Lab):
    running.weft("run", "late", "--node", "node1")
    try:
        assert running.reached("late", "pod2-1") == {4: False, 6: False}
        assert running.reached("pod2-1", "late") == {4: True, 6: True}
    finally:
        running.weft("rm", "late")
    running.weft("restart", "node2/weftd")
    well(running)


FILE = """
nodes: 2
store: mesh
pods:
- {name: web, node: node1, namespace: shop, labels: {app: web}}
- {name: client, node: node2, namespace: shop, labels: {app: client}}
- {name: other, node: node2, labels: {app: client}}
policies:
- from-client.yaml
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
"""


def test_a_lab_file_says_namespaces_labels_and_policies_on_a_mesh_and_export_says_them_again(tmp_path: Path):
    written(tmp_path / "from-client.yaml", allows("c", {"app": "web"}, pods(app="client"), namespace="shop"))
    (tmp_path / "lab.yaml").write_text(FILE)
    with lab(str(tmp_path / "lab.yaml")) as shop:
        assert refused(well(shop)) == {("node2", "web"), ("other", "web")}
        assert shop.reached("client", "web") == {4: True}
        assert shop.reached("other", "web") == {4: False}
        exported = yaml.safe_load(shop.weft("export").stdout)
    assert exported["pods"][0] | {"ip": ""} == {
        "name": "web",
        "node": "node1",
        "namespace": "shop",
        "labels": {"app": "web"},
        "ip": "",
    }
    assert [each["kind"] for each in exported["policies"]] == ["NetworkPolicy", "Namespace"]


def test_services_lead_to_pods_that_policies_shut(tmp_path: Path):
    policy_file = written(tmp_path / "shut.yaml", allows("shut", {"pod": "pod2-1"}))
    with lab("--nodes", "2", "--pods", "1", "--policy", policy_file) as shut:
        shut.weft("expose", "web", "--port", "80", "--node-port", "30080", "pod2-1")
        shut.weft("expose", "free", "--port", "80", "--node-port", "30081", "pod1-1")
        assert {("pod1-1", "web"), ("node1", "web"), ("outside", "web")} <= refused(well(shut))


def test_without_policies_nothing_is_enforced_and_nothing_can_be_applied(tmp_path: Path):
    file = written(tmp_path / "none.yaml", allows("none", {}))
    with lab("--nodes", "1", "--pods", "1") as plain:
        said = policy(plain, "apply", file, status=2)
        assert "nodes of this lab enforce no policies" in said
        assert "network-policy" not in plain.run("node1", "cat", f"/proc/{plain.node('node1')['pid']}/cmdline")
        assert plain.run("node1", "ls", "/etc/kube-flannel") == ""


def test_with_pods_that_the_api_does_not_know_it_is_refused_in_words(tmp_path: Path):
    file = written(tmp_path / "none.yaml", allows("none", {}))
    ran = weft("lab", "up", "--dry-run", "--store", "kubernetes", "--policy", file, check=False)
    assert ran.returncode == 2
    assert "policies, and nodes whose pods Kubernetes' API does not know" in ran.stderr
