"""weft as a DaemonSet on nodes of containerd 1.6, 1.7 and 2: pods, and what nodes say when weft cannot serve."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.lab.podpulse import pulse
from tests.runtime import builtruntimes
from tests.support.kubernetes.kubenodes import (
    DAEMON_SET,
    NAMESPACE,
    NODES,
    PODS,
    SECONDS,
    WEFT,
    KubeNodes,
    kube_nodes,
    pod,
    wait_gone,
)
from tests.support.weftd import eventually

DEBIAN: Final = "containerd 1.6"

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module", params=[DEBIAN, "containerd-1.7", "containerd-2"])
def nodes(request: pytest.FixtureRequest) -> Iterator[KubeNodes]:
    first = [] if request.param == DEBIAN else [builtruntimes.folder(request.param)]
    with kube_nodes(2, path=first) as made:
        made.install(WEFT)
        yield made


@contextmanager
def readiness(nodes: KubeNodes) -> Iterator[list[str]]:
    """What nodes say of themselves while the block runs, whenever it is not that they are ready."""
    said: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            said.extend(each["message"] for each in nodes.conditions().values() if each["status"] != "True")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield said
    finally:
        over.set()
        thread.join()


def test_pods_start_and_end_in_a_rolling_restart_and_no_node_is_unready(
    nodes: KubeNodes, request: pytest.FixtureRequest
):
    wanted = request.node.callspec.params["nodes"].removeprefix("containerd").strip("- ")
    versions = {node["status"]["nodeInfo"]["containerRuntimeVersion"] for node in nodes.api.get(NODES)["items"]}
    assert all(version.removeprefix("containerd://").removeprefix("v").startswith(wanted) for version in versions)
    for node in nodes.inits:
        nodes.api.post(PODS, pod(f"stays-{node}", node=node))
    eventually(lambda: len(running(nodes, "stays-")) == len(nodes.inits), seconds=SECONDS)
    there = running(nodes, "stays-")
    with readiness(nodes) as said, pulse(nodes.api, list(nodes.inits)) as pods:
        eventually(lambda: len(pods.starts) >= 4, seconds=SECONDS)
        nodes.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{DAEMON_SET}")
        nodes.rolled_out()
        more = len(pods.starts) + 4
        eventually(lambda: len(pods.starts) >= more, seconds=SECONDS)
        time.sleep(3)  # a runtime asks twice a second
        pods.settle(SECONDS)
    assert said == []
    assert pods.errors == []
    assert [name for name, life in pods.lives.items() if life.gone == math.inf] == []
    assert running(nodes, "stays-") == there
    nodes.api.delete(PODS, gracePeriodSeconds=1)
    wait_gone(nodes.api, PODS)
    for node in nodes.inits:
        eventually(lambda node=node: not nodes.run(node, "ls", "/run/netns").split(), seconds=SECONDS)


def running(nodes: KubeNodes, names: str) -> dict[str, tuple[str, str]]:
    """The address and the container of each pod that runs, by name."""
    found = [each for each in nodes.api.get(PODS)["items"] if each["metadata"]["name"].startswith(names)]
    return {
        each["metadata"]["name"]: (each["status"]["podIP"], each["status"]["containerStatuses"][0]["containerID"])
        for each in found
        if each["status"].get("phase") == "Running"
    }


@pytest.mark.parametrize("nodes", ["containerd-2"], indirect=True)  # which asks networks how they are
def test_a_node_that_cannot_attach_pods_says_why_and_is_ready_again_afterwards(nodes: KubeNodes):
    node = next(iter(nodes.inits))
    nodes.delete(WEFT)
    nodes.run(node, "rm", "-f", "/run/flannel/subnet.env")
    eventually(lambda: node not in nodes.ready(), seconds=SECONDS)
    assert "weft" in nodes.conditions()[node]["message"]
    nodes.install(WEFT)
    assert nodes.ready() == set(nodes.inits)
