"""The mesh with real daemons: how soon a node joins and comes back, how long packets take for another way, and labs."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final

from benchmarks.figures import Figure
from benchmarks.lab import lab
from benchmarks.world import until
from tests.node.meshnode import MeshNode, created, mesh_of
from tests.support import etcd
from tests.support.traffic import reaches
from tests.support.weftd import Cluster, Daemon, Underlay, clusters
from weft.model.net import Ip

JOINS: Final = 20  # nodes that come one after the other
RESTARTS: Final = 10
LABS: Final = 5
BLOCKED: Final = 2  # times
VXLAN: Final = {"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}
BLOCK: Final = (
    "nft add table ip blocked;"
    " nft 'add chain ip blocked input { type filter hook prerouting priority -400; }';"
    " nft add rule ip blocked input udp dport 8472 drop"
)


def measure() -> list[Figure]:
    figures = list(_labs())
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir="/dev/shm") as folder:
        for part in (_starts, _ways):
            with _cluster(Path(folder) / part.__name__) as made:
                figures += part(made)
    return figures


@contextmanager
def _cluster(folder: Path) -> Iterator[Cluster]:
    underlay = Underlay(folder / "etcd", etcd.wheel())
    try:
        yield from clusters(underlay, folder)
    finally:
        underlay.close()


def _labs() -> Iterator[Figure]:
    ours, theirs = [], []
    for _ in range(LABS):  # in turns, so that both see the machine as it is
        for took, options in ((ours, ("--store", "mesh")), (theirs, ())):
            began = time.perf_counter()
            with lab("--nodes", "3", "--pods", "2", *options):
                took.append(time.perf_counter() - began)
    what = "lab up of a mesh, 3 nodes with 2 pods each"
    yield Figure(what=what, unit="s", ours=ours, target=1.2, peer="etcd", theirs=theirs)


def _starts(cluster: Cluster) -> Iterator[Figure]:
    created(cluster, 1, 2, 3)
    joined = [_to_subnet_env(node) for node in mesh_of(cluster, *range(4, 4 + JOINS))]
    what = "exec to subnet.env in a mesh, first join, 99 of 100"
    yield Figure(what=what, unit="s", ours=[quantiles(joined, n=100, method="inclusive")[-1]], target=1.5)
    cluster.configure(VXLAN)
    ours, theirs = cluster.daemons[1], cluster.node(200)
    theirs.start()
    again: dict[Daemon, list[float]] = {ours: [], theirs: []}
    for _ in range(RESTARTS):
        for node, took in again.items():
            node.stop()
            node.subnet_file.unlink()
            took.append(_to_subnet_env(node))
            node.wait_ready()
    what = "exec to subnet.env in a mesh, restart"
    yield Figure(what=what, unit="s", ours=again[ours], target=0.2, peer="etcd", theirs=again[theirs])


def _to_subnet_env(node: Daemon) -> float:
    began = time.perf_counter()
    node.spawn()
    until(node.subnet_file.exists, "subnet.env")
    return time.perf_counter() - began


def _ways(cluster: Cluster) -> Iterator[Figure]:
    """Vxlan is blocked between two, under traffic, and passes again."""
    one, other = created(cluster, 1, 2)
    here, there = one.pod(), other.pod()
    until(lambda: " answers " in other.mesh("ways", "node1"), "WireGuard, which is spare", step=0.5)
    away, back = [], []
    for _ in range(BLOCKED):
        with here.popen(["ping", "-q", "-i", "0.1", str(there.ips[0])], stdout=subprocess.DEVNULL) as pings:
            one.netns.run(BLOCK)
            away.append(_until_passes(one, other, there.ips[0], "flannel-wg"))
            one.netns.run("nft delete table ip blocked")
            back.append(_until_passes(one, other, there.ips[0], "flannel.1"))
            pings.terminate()
        time.sleep(60)  # a path that falls again within a minute of its return waits twice as long
    yield Figure(what="other way after a fault under traffic", unit="s", ours=away, target=8)
    yield Figure(what="the best way again after it", unit="s", ours=back, target=20)


def _until_passes(one: MeshNode, other: MeshNode, target: Ip, device: str) -> float:
    """Seconds until both send by this device, and what they send comes back."""

    def passes() -> bool:
        routed = (json.loads(node.ip(f"-j route show {far.v4}")) for node, far in ((one, other), (other, one)))
        by_it = all(routes and routes[0]["dev"] == device for routes in routed)
        return by_it and reaches(one.netns, target, seconds=0.2)

    began = time.perf_counter()
    return until(passes, f"a way by {device}", step=0.05) - began
