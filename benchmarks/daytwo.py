"""What befalls a node of Kubernetes on day two, with weft and with flannel: how long pods take to start and to end.

Two labs of three nodes are up at once, one with each network, and are tried in turns: what else the machine does falls
on both. `inf` is a pod that never started, or never ended.
"""

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Final

from benchmarks.figures import Figure
from tests.lab.podpulse import Pulse, pulse
from tests.support import flanneld, upstream
from tests.support.kubernetes.kubenodes import (
    DAEMON_SET,
    FLANNEL,
    NAMESPACE,
    PODS,
    WEFT,
    KubeNodes,
    kube_nodes,
    wait_gone,
)
from tests.support.weftd import eventually

ROUNDS: Final = 3
AWAY: Final = 60.0  # seconds in which the image cannot be pulled
CRASHES: Final = 3
WATCHED: Final = 45.0  # seconds after the last crash
DELETED: Final = 15.0  # seconds after `kubectl delete -f`
AT_ONCE: Final = 30
_STRAGGLERS: Final = 90.0  # seconds
_LOST: Final = 15.0  # seconds until a pod counts as one that never starts, where nothing mends it
_FLOOR: Final = ", without a network"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"

Samples = dict[str, list[float]]
Case = Callable[[KubeNodes], Samples]


def measure() -> list[Figure]:
    flanneld.built() or flanneld.build()
    found: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        labs = [(network, stack.enter_context(kube_nodes())) for network in (WEFT, FLANNEL)]
        for network, nodes in labs:
            nodes.install(network)
            with pulse(nodes.api, list(nodes.inits)) as warm:  # what the first pods of a node make
                time.sleep(3)
                warm.settle(_STRAGGLERS)
        for case, rounds in CASES.items():
            for number in range(rounds):
                for network, nodes in labs if number % 2 else reversed(labs):
                    for what, samples in case(nodes).items():
                        print(f"{network.name}: {what}: {samples[0]:.2f}", file=sys.stderr, flush=True)
                        found.setdefault(what, {}).setdefault(network.name, []).extend(samples)
    floors = {what.removesuffix(_FLOOR): samples["weft"] for what, samples in found.items() if what.endswith(_FLOOR)}
    return [
        _figure(what, samples["weft"], samples["flannel"], floors.get(what, []))
        for what, samples in found.items()
        if not what.endswith(_FLOOR)
    ]


def _figure(what: str, ours: list[float], theirs: list[float], floor: list[float]) -> Figure:
    unit, target, ratio, upstream_took = REACH.get(what, ("s", None, None, ""))
    if floor:  # flannel shows, too, what the machine can do
        floor = max(floor, theirs, key=median)
    return Figure(
        what=what,
        unit=unit,
        ours=ours,
        theirs=theirs,
        floor=floor,
        peer=f"flannel {upstream.VERSION[1:]}",
        target=target,
        ratio=ratio,
        upstream=upstream_took,
    )


def _samples(what: str, seen: Pulse) -> Samples:
    """The pods' times: the usual one, and the slowest, beside that of pods without a network; and what was refused."""
    starts = seen.starts or [math.inf]
    slowest = f"{what}: new pods, slowest"
    return {
        f"{what}: new pods, median": [median(starts)],
        slowest: [max(starts)],
        slowest + _FLOOR: [max(seen.floor, default=0.0)],
        f"{what}: sandboxes refused": [float(len(seen.errors))],
    }


def _image_away(nodes: KubeNodes) -> Samples:
    """All daemons' pods are lost, and their image cannot be pulled."""
    nodes.set_image("localhost/none:1")
    nodes.drop_daemon_pods()
    eventually(lambda: not any(nodes.daemons(node) for node in nodes.inits), seconds=60)
    with pulse(nodes.api, list(nodes.inits)) as pods:
        time.sleep(AWAY)
        pods.settle(_LOST)
    nodes.apply(nodes.network)
    nodes.drop_daemon_pods()
    nodes.rolled_out()
    _quiet(nodes)
    return _samples("the image cannot be pulled", pods)


def _crashes(nodes: KubeNodes) -> Samples:
    """A node's daemon is killed again and again, the last time while pods come."""
    node = next(iter(nodes.inits))
    for _ in range(CRASHES - 1):
        killed = nodes.kill_daemon(node)
        eventually(lambda killed=killed: set(nodes.daemons(node)) - set(killed), seconds=120)
        time.sleep(3)
    with pulse(nodes.api, [node]) as pods:
        time.sleep(1)
        nodes.kill_daemon(node)
        time.sleep(WATCHED)
        pods.settle(_STRAGGLERS)
    nodes.rolled_out()
    _quiet(nodes)
    return _samples("the third kill -9", pods)


def _rolling(nodes: KubeNodes) -> Samples:
    """The daemons of all nodes are replaced, one by one."""
    with pulse(nodes.api, list(nodes.inits)) as pods:
        time.sleep(1)
        nodes.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{DAEMON_SET}")
        nodes.rolled_out()
        time.sleep(2)
        pods.settle(_STRAGGLERS)
    _quiet(nodes)
    return _samples("rolling update", pods)


def _deleted(nodes: KubeNodes) -> Samples:
    """The manifest is taken away while pods run: whether these end, and whether others start."""
    with pulse(nodes.api, list(nodes.inits)) as before:
        time.sleep(3)
        before.enough()
        eventually(lambda: all(life.ran < math.inf for life in before.lives.values()), seconds=60)
        nodes.delete(nodes.network)
        before.settle(_LOST)
        with pulse(nodes.api, list(nodes.inits)) as pods:
            time.sleep(DELETED)
            pods.settle(_LOST)
        unready = len(nodes.inits) - len(nodes.ready())
    nodes.install(nodes.network)
    _quiet(nodes)
    what = "after kubectl delete -f"
    return {
        **_samples(what, pods),
        f"{what}: pods end, slowest": [max([*before.ends, *pods.ends])],
        f"{what}: nodes NotReady": [float(unready)],
    }


def _at_once(nodes: KubeNodes) -> Samples:
    """A Deployment's pods, all at once, by the scheduler."""
    labels = {"app": "many"}
    container = {"name": "wait", "image": "localhost/pause:1", "imagePullPolicy": "IfNotPresent"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": AT_ONCE, "selector": {"matchLabels": labels}, "template": template}
    began = time.monotonic()
    nodes.api.post(_DEPLOYMENTS, {"metadata": {"name": "many"}, "spec": body})

    def running() -> bool:
        found = nodes.api.get(PODS, labelSelector="app=many")["items"]
        return sum(each["status"].get("phase") == "Running" for each in found) == AT_ONCE

    eventually(running, seconds=120)
    took = time.monotonic() - began
    nodes.kubectl("delete", "deployment", "many", "--wait=false")
    began = time.monotonic()
    _quiet(nodes)
    return {
        f"{AT_ONCE} pods at once: last Running": [took],
        f"{AT_ONCE} pods at once: all gone": [time.monotonic() - began],
    }


def _quiet(nodes: KubeNodes) -> None:
    """Wait until no pod is left, so that the next case begins as this one did."""
    wait_gone(nodes.api, PODS)


CASES: Final[dict[Case, int]] = {_at_once: ROUNDS, _rolling: ROUNDS, _crashes: 1, _image_away: 1, _deleted: 1}
# The unit, the bound, the ratio to flannel's, and what was measured on a machine that did nothing else.
REACH: Final[dict[str, tuple[str, float | None, float | None, str]]] = {
    f"{AT_ONCE} pods at once: last Running": ("s", None, 1.0, "5.5 s"),
    "the image cannot be pulled: new pods, slowest": ("s", 1.5, None, "1 s"),
    "the image cannot be pulled: sandboxes refused": ("", 0, None, "0"),
    "the third kill -9: new pods, slowest": ("s", 2.0, None, "unaffected"),
    "the third kill -9: sandboxes refused": ("", 0, None, "0"),
    "rolling update: new pods, slowest": ("s", 1.5, None, "1.4 s"),
    "rolling update: sandboxes refused": ("", 0, None, "0"),
    "after kubectl delete -f: new pods, slowest": ("s", None, None, "never"),
    "after kubectl delete -f: sandboxes refused": ("", None, None, "all"),
    "after kubectl delete -f: pods end, slowest": ("s", 5.0, None, "they end"),
    "after kubectl delete -f: nodes NotReady": ("", None, None, "0"),
}
