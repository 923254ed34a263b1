"""What CRI-O alone does: it asks STATUS until the network is ready, CHECK after each ADD, GC once it starts."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from grpclib import GRPCError

from tests.runtime import traces
from tests.runtime.conflist import Attachment, Runner
from tests.runtime.crio import Crio
from tests.runtime.runtimenode import Node
from tests.support.weftd import DUAL, VXLAN, Cluster, Underlay, eventually

LIST = "etc/cni/net.d/10-flannel.conflist"


@pytest.fixture(scope="module")
def made(underlay: Underlay, tmp_path_factory: pytest.TempPathFactory, image: Path) -> Iterator[Node]:
    """A node of which the first pod has made what all share."""
    folder = tmp_path_factory.mktemp("crio")
    cluster = Cluster(underlay, folder)
    cluster.configure(VXLAN, DUAL)
    node = Node(underlay, folder / "node", 22, prefix=cluster.prefix, image=image, runtime=Crio)
    try:
        node.remove(node.ready().pod("first").id)
        yield node
    finally:
        node.cut_power()


@pytest.fixture
def node(made: Node) -> Iterator[Node]:
    """The node; once its pods are removed, nothing may be left of what the test did."""
    before = traces.look(made.machine)
    yield made
    made.revive()
    made.remove_all(made.cri.sandboxes())
    traces.gone_back(made.machine, before)


def lose_lease(node: Node) -> None:
    """End weftd, and take from the stand-in what it would serve with."""
    node.daemon.kill()
    node.daemon.subnet_file.unlink()


def test_the_newest_list_is_checked_once_a_pod_is_attached(node):
    node.pod("checked")
    assert "Checking CNI network cbr0 (config version=1.1.0)" in node.runtime.log


def test_the_network_is_not_ready_until_pods_can_be_attached_and_pods_wait_for_it(node):
    lose_lease(node)
    node.runtime.kill()
    node.runtime.start()
    assert not node.cri.conditions()["NetworkReady"]
    eventually(lambda: "LEASE-001" in node.cri.reasons())
    with ThreadPoolExecutor(1) as thread:
        pod = thread.submit(node.pod, "waits")
        eventually(lambda: "Waiting to create" in node.runtime.log)
        node.daemon.start()
        ips = pod.result().sandbox.ips
    assert set(ips) == node.reserved()
    assert node.cri.conditions()["NetworkReady"]


def test_a_pod_is_refused_with_the_reason_though_the_network_was_ready(node):
    lose_lease(node)
    with pytest.raises(GRPCError, match="LEASE-001"):
        node.pod("refused")
    assert node.cri.conditions()["NetworkReady"]  # CRI-O asks no more
    assert not node.reserved()
    node.daemon.start()
    node.pod("taken")


def test_a_restart_frees_what_belongs_to_no_pod(node):
    pod = node.pod("stays")
    stale = Attachment(id="stale", netns="/run/stale")
    node.machine.run("touch", stale.netns)
    node.machine.run("unshare", f"--net={stale.netns}", "true")
    Runner(node.machine, node.bin_dir).add(json.loads((node.machine.root / LIST).read_text()), stale)
    assert len(node.reserved()) == 4
    node.runtime.kill()
    node.runtime.start()
    eventually(lambda: node.reserved() == set(pod.sandbox.ips))
    node.machine.run("umount", stale.netns)


def test_pods_keep_their_addresses_when_crio_restarts_without_weftd(node):
    pod = node.pod("keeps")
    node.daemon.kill()
    node.runtime.kill()
    node.runtime.start()
    assert node.cri.ready(pod.id)
    eventually(lambda: node.cri.ips(pod.id) == pod.sandbox.ips)
    assert "1 packets received" in node.exec(pod, "ping", "-c", "1", "-W", "3", str(node.daemon.v4[1]))
    node.remove(pod.id)
    assert not node.reserved()
