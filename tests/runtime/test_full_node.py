"""A node as full as a kubelet makes one: 110 pods, ten at a time, all of whom reach each other and are gone afterwards.

30 of them in the ordinary run.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.runtime import traces
from tests.runtime.cri import Sandbox
from tests.runtime.runtimenode import Node
from tests.support import namespaces
from tests.support.weftd import DUAL, ONLY_V6, VXLAN, Cluster, Underlay
from weft.kernel.rtnetlink import neigh
from weft.kernel.rtnetlink.rtnl import Rtnl

T = TypeVar("T")
AT_ONCE: Final = 10
PORT: Final = 7777
# The kernel keeps 1,024 neighbours for all namespaces together; two entries come of each pair that meets.
_NEIGHBOURS: Final = 400
_SECONDS: Final = 10.0


class Inside:
    """A pod's network namespace, with a UDP socket for each family that it has."""

    def __init__(self, path: Path, sandbox: Sandbox, stack: ExitStack) -> None:
        self.ips = sandbox.ips
        self.netns = namespaces.open_path(path)
        stack.callback(os.close, self.netns)
        self.rtnl: Rtnl = namespaces.rtnl_in(self.netns)
        stack.callback(self.rtnl.close)
        self.sockets = {
            ip: stack.enter_context(namespaces.run_in(self.netns, lambda ip=ip: _bound(ip))) for ip in self.ips
        }

    def reaches(self, other: "Inside") -> bool:
        """Send a datagram to each address of another, which must arrive there with our address."""
        for ours, theirs in zip(self.ips, other.ips, strict=True):
            self.sockets[ours].sendto(ours.encode(), (theirs, PORT))
            data, sender = other.sockets[theirs].recvfrom(100)
            if (data.decode(), sender[0]) != (ours, ours):
                return False
        return True

    def forget(self) -> None:
        """Delete the neighbours that it learnt."""
        link = self.rtnl.link("eth0")
        assert link is not None
        for neighbour in self.rtnl.neighbours(link.index):
            if not neighbour.ip.is_multicast:
                self.rtnl.request(neigh.delete_neighbour(link.index, neighbour.ip))


def _bound(ip: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(_SECONDS)
    sock.bind((ip, PORT))
    return sock


def side_by_side(function: Callable[[T], object], things: Sequence[T]) -> list[object]:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(function, things))


@pytest.fixture(params=[{}, DUAL, ONLY_V6], ids=["v4", "dual", "v6"])
def node(request, underlay: Underlay, tmp_path: Path, image: Path) -> Iterator[Node]:
    """A node of which the first pod has made what all share."""
    cluster = Cluster(underlay, tmp_path)
    cluster.configure(VXLAN, request.param)
    made = Node(underlay, tmp_path / "node1", 21, prefix=cluster.prefix, image=image)
    try:
        made.remove(made.ready().pod("first").id)
        yield made
    finally:
        made.cut_power()


def fill(node: Node, number: int) -> None:
    before = traces.look_without_pods(node.machine)
    names = [f"pod-{each}" for each in range(number)]
    sandboxes = side_by_side(lambda name: node.cri.run(name, cgroup=node.machine.cgroup), names)
    addresses = [ip for sandbox in sandboxes for ip in sandbox.ips]
    assert len(set(addresses)) == len(addresses) == number * len(node.daemon.subnets)
    assert set(addresses) == node.reserved()
    with ExitStack() as stack:
        pods = [Inside(node.machine.path(sandbox.netns), sandbox, stack) for sandbox in sandboxes]
        learnt = 0
        for step in range(1, number):
            for place, pod in enumerate(pods):
                other = pods[(place + step) % number]
                assert pod.reaches(other), (pod.ips, other.ips)
            learnt += 2 * len(addresses)
            if learnt > _NEIGHBOURS:
                learnt = 0
                for pod in pods:
                    pod.forget()
    side_by_side(lambda sandbox: node.remove(sandbox.id), sandboxes)
    traces.gone_back(node.machine, before)
    assert not node.reserved()
    assert not node.cri.sandboxes()
    assert node.daemon.ready


@pytest.mark.parametrize("node", [DUAL], indirect=True, ids=["dual"])
def test_thirty_pods_at_once_reach_each_other_and_leave_nothing(node: Node):
    fill(node, 30)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_hundred_and_ten_pods_at_once_reach_each_other_and_leave_nothing(node: Node):
    fill(node, 110)
