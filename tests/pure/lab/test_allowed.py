"""What policies of a lab say of a check's trials: what has to arrive, what has to be lost, and what may be either."""

from collections import defaultdict
from typing import Any

import msgspec
import pytest

from tests.pure import checks
from tests.pure.checks import service
from weft.desired.policy.judge import judged as decided
from weft.desired.policy.question import flows, question
from weft.diag.check.causes import causes
from weft.diag.check.judging import described, judged
from weft.diag.check.report import sentence
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Outcome
from weft.lab import allowed, manifests
from weft.lab.files import policyfile
from weft.lab.report import Cell, LabReport, PingReport
from weft.lab.spec import HostPort, Pod
from weft.lab.trials import by_family, trials
from weft.model.errors import ConfigError
from weft.model.value import replace


def policy(selects: dict[str, str], kind: str = "Ingress", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "lab"},
        "spec": {"podSelector": {"matchLabels": selects}, "policyTypes": [kind], **spec},
    }


def report(*policies: dict[str, Any], nodes: int = 2, pods: int = 1) -> LabReport:
    found = checks.report(nodes=nodes, pods=pods)
    subnets = [f"10.244.{number}.0/24" for number in range(1, nodes + 1)]
    return replace(
        found,
        network=msgspec.Raw(b'{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}'),
        nodes=[replace(node, subnets=[subnet]) for node, subnet in zip(found.nodes, subnets, strict=True)],
        policies=list(policies),
    )


def verdicts(found: LabReport, port: int = 40000) -> dict[str, set[tuple[str, str, bool | None]]]:
    """By scenario: source, target, and whether it is forbidden, of what is not simply allowed."""
    wanted = trials(found, quick=False)
    said = defaultdict[str, set[tuple[str, str, bool | None]]](set)
    for each in allowed.marked(wanted, [Outcome(answered=0, port=port)] * len(wanted), found):
        if each.forbidden is not False:
            said[each.scenario].add((each.source, each.target, each.forbidden))
    return dict(said)


def test_what_is_shut_is_reached_by_itself_and_its_own_node_alone():
    shut = verdicts(report(policy({"pod": "pod2-1"}), pods=2))
    from_pods = {"pod-pod-other", "pod-pod-mtu", "pod-pod-more", "pod-pod-many"}
    assert shut.keys() == from_pods | {"pod-pod-same", "node-pod-other"}
    assert shut["pod-pod-same"] == {("pod2-2", "pod2-1", True)}
    assert shut["node-pod-other"] == {("node1", "pod2-1", True)}
    assert all(shut[name] == {("pod1-1", "pod2-1", True), ("pod1-2", "pod2-1", True)} for name in from_pods)


def test_what_may_not_leave_reaches_its_own_node_alone():
    shut = verdicts(report(policy({"pod": "pod1-1"}, "Egress")))
    assert shut["pod-node-other"] == {("pod1-1", "node2", True)}
    assert shut["pod-pod-other"] == {("pod1-1", "pod2-1", True)}
    assert "pod-node-same" not in shut
    assert "node-pod-other" not in shut


def test_the_port_that_a_trial_went_to_counts():
    only = policy({"pod": "pod2-1"}, ingress=[{"ports": [{"port": 40000}]}])
    assert "pod-pod-many" in verdicts(report(only), port=40001)
    wanted = [each for each in trials(report(only), quick=True) if each.scenario == "pod-pod-other"]
    marked = allowed.marked(wanted, [Outcome(answered=0, port=40000)] * len(wanted), report(only))
    assert {each.protocol: each.forbidden for each in marked if each.target == "pod2-1"} == {
        "tcp": False,
        "udp": True,
        "icmp": True,
    }


def test_a_node_that_may_come_from_some_of_its_addresses_may_be_lost_or_not():
    some = policy({"pod": "pod2-1"}, ingress=[{"from": [{"ipBlock": {"cidr": "172.31.0.0/16"}}]}])
    assert verdicts(report(some))["node-pod-other"] == {("node1", "pod2-1", None)}


def with_service(found: LabReport, *pods: str) -> LabReport:
    return replace(found, services=[service(found, *pods)], outside=["172.31.0.1"])


def test_a_service_leads_to_what_policies_allow():
    found = verdicts(with_service(report(policy({"pod": "pod2-1"})), "pod2-1"))
    assert found["pod-service"] == {("pod1-1", "web", True)}
    assert found["node-service"] == {("node1", "web", True)}
    assert found["outside-node-port"] == {("outside", "web", True)}
    # node1 hands on what pods and others send to its port, and sends it as its own, which a block may allow.
    nodes = policy({"pod": "pod2-1"}, ingress=[{"from": [{"ipBlock": {"cidr": "172.31.0.11/32"}}]}])
    assert ("pod1-1", "web", None) in verdicts(with_service(report(nodes), "pod2-1"))["pod-node-port"]


def test_a_service_of_pods_that_policies_tell_apart_may_be_either():
    found = verdicts(with_service(report(policy({"pod": "pod2-1"})), "pod1-1", "pod2-1"))
    assert ("node1", "web", None) in found["node-service"]


def test_a_host_port_leads_to_what_policies_allow():
    found = report(policy({"pod": "pod2-1"}))
    ports = (HostPort(outside=8080, inside=80),)
    opened = replace(found, pods=[replace(pod, ports=ports) for pod in found.pods], outside=["172.31.0.1"])
    said = verdicts(opened)
    assert said["outside-host-port"] == {("outside", "pod2-1", True)}
    assert said["pod-host-port"] == {("pod1-1", "pod2-1", True)}


@pytest.mark.parametrize(
    "outcome, forbidden, fault",
    [
        (Outcome(answered=1, own="a", seen="a"), True, "forbidden"),
        (Outcome(answered=0, seen="a"), True, "forbidden"),
        (Outcome(answered=0), True, ""),
        (Outcome(answered=0), None, ""),
        (Outcome(answered=1, own="a", seen="a"), None, ""),
        (Outcome(answered=1, own="a"), None, "unseen"),
        (Outcome(answered=0), False, "lost"),
    ],
)
def test_what_is_forbidden_and_lost_is_right(outcome: Outcome, forbidden: bool | None, fault: str):
    trial = next(each for each in trials(report(), quick=True) if BY_NAME[each.scenario].name == "pod-pod-other")
    [tried] = judged([replace(trial, forbidden=forbidden)], [outcome])
    assert tried.fault == fault


def test_what_arrives_though_it_is_forbidden_has_a_cause_in_words():
    found = report(policy({"pod": "pod2-1"}))
    wanted = trials(found, quick=False)
    right = [Outcome(answered=each.flows, own="a", seen="a") for each in wanted]
    tried = judged(allowed.marked(wanted, right, found), right)
    [cause] = causes(tried, "forbidden")
    assert "though policies forbid it" in sentence(cause, alone=True)
    failed = next(each for each in tried if each.fault == "forbidden")
    assert described(failed).endswith(": it arrived, and policies forbid it")
    # Those that were lost by right are no sign that others like them pass, nor that they fail.
    assert causes([replace(each, outcome=Outcome(answered=0), fault="") for each in tried], "lost") == []


def test_pods_that_policies_select_are_named():
    cluster = {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "c"},
        "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}},
    }
    found = allowed.selected(allowed.world(report(policy({"node": "node1"}), cluster, pods=2)))
    assert {name: [pod.name for pod in pods] for name, pods in found.items()} == {
        "NetworkPolicy lab/p": ["pod1-1", "pod1-2"],
        "ClusterNetworkPolicy c": ["pod1-1", "pod1-2", "pod2-1", "pod2-2"],
    }


def test_a_pod_has_the_labels_of_its_name_and_node_unless_it_says_otherwise():
    pod = Pod(name="web", node="node1", labels={"app": "web", "node": "elsewhere"})
    assert manifests.of_spec(pod, ["10.244.1.2"])["metadata"] == {
        "name": "web",
        "namespace": "lab",
        "labels": {"pod": "web", "node": "elsewhere", "app": "web"},
    }


def test_a_file_of_policies_may_have_lists_and_its_policies_are_where_the_lab_has_its_pods():
    one = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}}}"
    other = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]}"
    found = policyfile.read(f"{one}\n---\n{other}\n---\n", "it")
    there = [manifests.at_home(each, in_api=False) for each in found]
    assert [manifests.name_of(each) for each in there] == ["NetworkPolicy lab/a", "Namespace shop"]
    assert manifests.at_home(there[0], in_api=True) == there[0]


@pytest.mark.parametrize(
    "text, words",
    [
        ("a: [", "LAB-001 it: "),
        ("{apiVersion: v1, kind: Pod, metadata: {name: a}}", "LAB-001 it: a Pod; expected NetworkPolicy"),
        ("{apiVersion: v1, kind: List, items: 3}", "POL-005 it: a document without apiVersion and kind"),
        ("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: 3}", "POL-005 it: "),
    ],
)
def test_what_is_no_policy_is_refused_in_words(text: str, words: str):
    with pytest.raises(ConfigError) as error:
        policyfile.read(text, "it")
    assert str(error.value).startswith(words)


def pinged(found: LabReport, *cells: tuple[str, str, str]) -> dict[tuple[str, str], tuple[str, bool]]:
    """By source and target: what is wrong, and whether it was refused, of pings that came back or were lost."""
    pods = {pod.name: by_family(pod.addresses)[4] for pod in found.pods}
    pods |= {node.name: node.underlay[0] for node in found.nodes}
    made = [Cell(source=one, target=two, family=4, address=pods[two], sent=1, fault=fault) for one, two, fault in cells]  # type: ignore[arg-type]
    report = allowed.pinged(PingReport(tried=len(made), reached=0, cells=made), found)
    assert report.reached == sum(not (cell.fault or cell.refused) for cell in report.cells)
    return {(cell.source, cell.target): (cell.fault, cell.refused) for cell in report.cells}


def test_a_ping_that_policies_forbid_is_right_if_it_is_lost():
    shut = report(
        policy({"pod": "pod2-1"}),
        {**policy({"pod": "pod1-1"}, "Egress"), "metadata": {"name": "q", "namespace": "lab"}},
        pods=2,
    )
    assert pinged(
        shut,
        ("pod2-2", "pod2-1", "lost"),
        ("node1", "pod2-1", ""),
        ("node2", "pod2-1", ""),
        ("pod1-1", "pod2-2", "lost"),
        ("pod1-1", "node1", ""),
        ("pod1-1", "node2", ""),
        ("pod2-1", "node1", ""),
        ("pod1-2", "pod2-2", "lost"),
    ) == {
        ("pod2-2", "pod2-1"): ("", True),
        ("node1", "pod2-1"): ("forbidden", False),
        ("node2", "pod2-1"): ("", False),
        ("pod1-1", "pod2-2"): ("", True),
        ("pod1-1", "node1"): ("", False),
        ("pod1-1", "node2"): ("forbidden", False),
        ("pod2-1", "node1"): ("", False),
        ("pod1-2", "pod2-2"): ("lost", False),
    }


def test_a_service_is_explained_by_the_pods_that_it_leads_to():
    found = report(policy({"pod": "pod2-1"}))
    found = replace(found, services=[service(found, "pod1-1", "pod2-1")])
    name, port = found.services[0].name, found.services[0].port
    known = allowed.world(found)
    to, asked = flows(question("lab/pod1-1", f"svc/lab/{name}:{port}"), known)
    assert (str(to), [each.port for each in asked]) == (f"lab/{name}", [found.services[0].target_port] * 2)
    assert [decided(each, known).allowed for each in asked] == [True, False]
    by_address, _ = flows(question("lab/pod1-1", f"{found.services[0].addresses[0]}:{port}"), known)
    assert by_address == to
    nobody = replace(found, services=[replace(found.services[0], endpoints=[])])
    with pytest.raises(ValueError, match="leads to no pod"):
        flows(question("lab/pod1-1", f"svc/lab/{name}:{port}"), allowed.world(nobody))
