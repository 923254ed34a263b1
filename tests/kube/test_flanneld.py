"""Nodes of upstream's own daemon beside ours, with Kubernetes as the store, and one in the place of the other."""

from typing import Any

import pytest

from tests.support import flanneld
from tests.support.crossing import cross
from tests.support.flanneld import Flanneld
from tests.support.kubernetes.kubecluster import DUAL, HOST_GW, ONLY_V6, VXLAN, KubeCluster, KubeDaemon
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import eventually

pytestmark = pytest.mark.skipif(
    flanneld.built() is None, reason=f"{flanneld.HINT} builds upstream's daemon, on an x86-64 machine"
)
# Upstream's ends in a panic where a node has no annotation at all; one with a kubelet has some.
KUBELETS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
BACKENDS = pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
FAMILIES = pytest.mark.parametrize("family", [{}, DUAL, ONLY_V6], ids=["v4", "dual", "v6"])


class KubeFlanneld(Flanneld, KubeDaemon):
    """A node of Kubernetes with upstream's daemon."""


@BACKENDS
@FAMILIES
def test_pods_of_either_reach_those_of_the_other(cluster: KubeCluster, backend: dict[str, Any], family: dict[str, Any]):
    cluster.configure(backend, family)
    ours, theirs = cluster.node(1), cluster.node(2, kind=KubeFlanneld)
    for node in (ours, theirs):
        node.register(annotations=KUBELETS).spawn("--ip-masq")
    for node in (ours, theirs):
        node.wait_ready()
    here, there = ours.pod(), theirs.pod()
    eventually(lambda: all(reaches(there, ip) for ip in here.ips))
    cross(ours, theirs)
    assert not ours.lines("ERROR")


@BACKENDS
@FAMILIES
def test_one_takes_the_place_of_the_other(cluster: KubeCluster, backend: dict[str, Any], family: dict[str, Any]):
    cluster.configure(backend, family)
    peer = cluster.node(1).register().start()
    node = cluster.node(2, kind=KubeFlanneld).register(annotations=KUBELETS).start()
    here, there = peer.pod(), node.pod()
    eventually(lambda: all(reaches(here, ip) for ip in there.ips))
    before = published(node)
    for ours in (True, False):
        with nothing_lost(here, there, there.ips[-1]):
            node.stop()
            node.ours = ours
            node.start()
        assert published(node) == before


def published(node: KubeDaemon) -> dict[str, str]:
    """What it says of itself, without what says nothing, as upstream's does of IPv4 where there is none."""
    return {name: value for name, value in node.said.items() if value not in ("null", "0.0.0.0")}  # noqa: S104 - no socket
