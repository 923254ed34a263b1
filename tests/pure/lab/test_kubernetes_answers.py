"""What a lab reads of the API's answers."""

import msgspec

from weft.lab.kubernetes.kubelets import Nodes, Pods


def pods(status: str) -> Pods:
    return msgspec.json.decode(f'{{"items": [{{"spec": {{"nodeName": "n1"}}, "status": {status}}}]}}', type=Pods)


def test_a_pod_says_how_its_containers_are():
    waits = '{"name": "init", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}}'
    ended = '{"name": "main", "state": {"terminated": {"reason": "Error", "exitCode": 3}}}'
    runs = '{"name": "side", "state": {"running": {"startedAt": "now"}}}'
    [pod] = pods(f'{{"initContainerStatuses": [{waits}], "containerStatuses": [{ended}, {runs}]}}').items
    assert pod.spec.node_name == "n1"
    assert pod.status.words == "init: ErrImagePull: no such host; main: Error, status 3; side: runs"


def test_a_pod_without_containers_says_its_phase():
    assert pods('{"phase": "Pending"}').items[0].status.words == "Pending"
    assert pods('{"containerStatuses": [{"name": "main"}]}').items[0].status.words == "main: not started"


def test_another_restart_is_another_status():
    first, second = (pods(f'{{"containerStatuses": [{{"name": "a", "restartCount": {n}}}]}}').items for n in (1, 2))
    assert first != second


def test_a_node_says_why_it_is_not_ready():
    condition = '{"type": "Ready", "status": "False", "message": "cni plugin not initialized"}'
    answer = f'{{"items": [{{"metadata": {{"name": "n1"}}, "status": {{"conditions": [{condition}]}}}}]}}'
    [node] = msgspec.json.decode(answer, type=Nodes).items
    assert (node.ready, node.words) == (False, "cni plugin not initialized")
