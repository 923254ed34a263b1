"""What befalls nodes of Kubernetes, in any order, while pods come and go: none is stuck, and nothing is left.

A pod counts as stuck by a measure that goes with the machine: once the cause is gone, a pod of the node's own network,
which needs no plugin, is started on each node; 30 seconds after these run, all others have run and are gone.
"""

import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.lab.podpulse import Pulse, pulse
from tests.support.kubernetes.kubenodes import (
    DAEMON_SET,
    NAMESPACE,
    PODS,
    SECONDS,
    WEFT,
    KubeNodes,
    kube_nodes,
    pod,
    wait_gone,
)
from tests.support.waiting import looks
from tests.support.weftd import eventually

STUCK: Final = 30.0  # seconds
_MISSING: Final = "localhost/none:1"
_FILES: Final = "/var/lib/cni /var/lib/weft /run/cni /run/netns /run/weft"
# What comes and goes by itself: caches, locks, history, and what containers of weft's own are called.
_UNSTEADY: Final = ("last_reserved_ip", "/lock", "history", "/.lock", "/cache/")
# Those of iptables as it writes them: nft shows some of them now one way and now another.
_RULES: Final = """
iptables-save | grep ^-A; ip6tables-save | grep ^-A
nft list tables | grep -v -e ' nat$' -e ' filter$' -e ' mangle$' -e ' raw$' |
    while read -r _ family name; do nft --stateless list table $family $name; done
"""
Undo = Callable[[], object]
Fault = Callable[[KubeNodes, str], Undo]


def kill_daemon(nodes: KubeNodes, node: str) -> Undo:
    nodes.kill_daemon(node, container=False)
    return lambda: None


def kill_container(nodes: KubeNodes, node: str) -> Undo:
    nodes.kill_daemon(node)
    return lambda: None


def stop_daemon(nodes: KubeNodes, node: str) -> Undo:
    stopped = nodes.daemons(node)
    _signal(stopped, signal.SIGSTOP)
    return lambda: _signal(stopped, signal.SIGCONT)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _killed(name: str) -> Fault:
    def fault(nodes: KubeNodes, node: str) -> Undo:
        nodes.kill(node, name)
        return lambda: nodes.start(node, name)

    fault.__name__ = f"kill {name}"
    return fault


def _stopped(name: str) -> Fault:
    def fault(nodes: KubeNodes, node: str) -> Undo:
        nodes.kill(node, name, signal.SIGSTOP)
        return lambda: nodes.kill(node, name, signal.SIGCONT)

    fault.__name__ = f"stop {name}"
    return fault


def update(nodes: KubeNodes, _: str) -> Undo:
    nodes.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{DAEMON_SET}")
    return lambda: None


def lose_image(nodes: KubeNodes, _: str) -> Undo:
    nodes.set_image(_MISSING)
    nodes.drop_daemon_pods()

    def undo() -> None:
        nodes.apply(WEFT)
        nodes.drop_daemon_pods()

    return undo


def reboot(nodes: KubeNodes, node: str) -> Undo:
    nodes.reboot(node)
    return lambda: None


def delete(nodes: KubeNodes, _: str) -> Undo:
    nodes.delete(WEFT)
    return lambda: nodes.apply(WEFT)


FAULTS: Final[tuple[Fault, ...]] = (
    *(kill_daemon, kill_container, stop_daemon, update, lose_image, reboot, delete),
    *(_killed("kubelet"), _killed("containerd"), _stopped("kubelet"), _stopped("containerd")),
)


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> Iterator[KubeNodes]:
    with kube_nodes(request.param) as made:
        made.install(WEFT)
        yield made


def look(nodes: KubeNodes, node: str) -> dict[str, list[str]]:
    """What is on a node of pods that are gone, if anything."""
    links = [line.split(":")[1].split("@")[0].strip() for line in nodes.run(node, "ip", "-o", "link").splitlines()]
    files = nodes.run(node, "sh", "-c", f"find {_FILES} -type f 2>/dev/null", check=False).splitlines()
    rules = nodes.run(node, "sh", "-c", _RULES).splitlines()
    found = Counter(nodes.run(node, "ps", "-e", "-o", "comm=").split("\n"))
    # `ps` itself, what the node's first process waits for, and shims that a containerd forgets when it is killed
    del found["ps"], found["sleep"], found["containerd-shim"]
    return {
        "links": sorted(links),
        "files": sorted(file for file in files if not any(part in file for part in _UNSTEADY)),
        "rules": [line.strip() for line in rules if "KUBE-" not in line],
        "processes": sorted(found.elements()),
    }


def left(before: dict[str, dict[str, list[str]]], nodes: KubeNodes) -> list[str]:
    """What is on nodes that was not. After a reboot rules are there again in another order."""
    found = []
    for node, parts in before.items():
        now = look(nodes, node)
        for part, lines in parts.items():
            found += [f"{node} {part}: {line}" for line in (Counter(now[part]) - Counter(lines)).elements()]
    return found


def hosts_pod_runs(nodes: KubeNodes, label: str) -> None:
    """Start a pod of the node's own network on each node, and wait until it runs."""
    for node in nodes.inits:
        nodes.api.post(PODS, pod(f"{label}-{node}", node=node, host=True, control=label))

    def run() -> bool:
        found = nodes.api.get(PODS, labelSelector=f"control={label}")["items"]
        return all(each["status"].get("phase") == "Running" for each in found)

    eventually(run, seconds=2 * SECONDS)
    nodes.api.delete(PODS, labelSelector=f"control={label}", gracePeriodSeconds=1)


def stuck(pods: Pulse) -> list[str]:
    """Pods that were made and are there still, or never ran."""
    return [
        f"{name} on {life.node}, {'which never ran' if life.ran == math.inf else 'which does not end'}"
        for name, life in pods.lives.items()
        if life.gone == math.inf
    ]


def campaign(nodes: KubeNodes, seed: int, steps: int) -> None:
    chance = random.Random(seed)
    print(f"WEFT_SEED={seed}")
    with pulse(nodes.api, list(nodes.inits)) as warm:  # what the first pods of a node make
        time.sleep(2)
        warm.settle(SECONDS)
    wait_gone(nodes.api, PODS)
    before = {node: look(nodes, node) for node in nodes.inits}
    faults: list[Fault] = []
    for step in range(steps):
        if not faults:  # each comes as often as the others
            faults = chance.sample(FAULTS, len(FAULTS))
        fault, node = faults.pop(), chance.choice(list(nodes.inits))
        print(f"{step}: {fault.__name__} on {node}", flush=True)
        with pulse(nodes.api, list(nodes.inits)) as pods:
            time.sleep(chance.uniform(0, 2))
            undo = fault(nodes, node)
            time.sleep(chance.uniform(0, 5))
            undo()
            time.sleep(chance.uniform(0, 2))
            pods.enough()
            hosts_pod_runs(nodes, f"control{step}")
            pods.settle(STUCK)
            assert not stuck(pods), f"after {fault.__name__}: {stuck(pods)}\n{nodes.words()}"
    wait_gone(nodes.api, PODS)
    nodes.rolled_out()
    eventually(lambda: nodes.ready() == set(nodes.inits), seconds=SECONDS)
    for _ in looks(SECONDS):
        if not (more := left(before, nodes)):
            return
    raise AssertionError("\n".join(more))


def seed() -> int:
    return int(os.environ.get("WEFT_SEED", "0")) or random.randrange(1 << 31)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_pods_come_and_go_whatever_befalls_their_nodes(nodes: KubeNodes):
    campaign(nodes, seed(), 4)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("nodes", [3], indirect=True)
def test_pods_come_and_go_whatever_befalls_their_nodes_for_long(nodes: KubeNodes):
    campaign(nodes, seed(), 6 * len(FAULTS))
