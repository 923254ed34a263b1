"""Nodes of a real mesh: `weftd --mesh`, each with a host name of its own, and `weft mesh …` on them."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from tests.node import wgnode
from tests.support.weftd import Cluster, Daemon, eventually, public_v4

WEFT = str(Path(sys.executable).parent / "weft")


class MeshNode(Daemon):
    """`peers` are the numbers of the nodes that its `--peer` flags name."""

    peers: tuple[int, ...] = ()
    more: tuple[str, ...] = ()  # flags of the mesh

    def store_flags(self) -> list[str]:
        return ["--mesh", *(f"--peer={public_v4(number)}" for number in self.peers), *self.more]

    @property
    def name(self) -> str:
        return f"node{self.number}"

    def spawn(self, *flags: str, env: dict[str, str] | None = None, wrap: Any = ()) -> "MeshNode":
        named = ("unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "--")
        super().spawn(*flags, env=env, wrap=(*named, *wgnode.inside(self), *wrap))
        return self

    def close(self) -> None:
        """What serves WireGuard outlives its daemon, which would start it again."""
        if self.running:
            self.kill()
        if pid := wgnode.server(self):
            os.kill(pid, signal.SIGKILL)
        super().close()

    def mesh(self, *words: str, check: bool = True) -> str:
        """What `weft mesh …` prints."""
        return self.netns.run(shlex.join((WEFT, "mesh", *words)), check=check)

    @property
    def state(self) -> dict[str, Any]:
        return json.loads(self.mesh("status", "-o", "json", check=False))

    def knows(self, count: int) -> bool:
        return len(self.state["peers"]) == count

    def routes(self) -> str:
        return self.ip("route show proto 165")


def mesh_of(
    cluster: Cluster, *numbers: int, peers: tuple[int, ...] = (1,), more: tuple[str, ...] = ()
) -> list[MeshNode]:
    """Nodes whose daemons are not started."""
    made = [cluster.node(number, kind=MeshNode) for number in numbers]
    for node in made:
        node.peers = tuple(number for number in peers if number != node.number)
        node.more = more
    return made


def created(cluster: Cluster, *numbers: int, **more: Any) -> list[MeshNode]:
    """A mesh that the first node has made, all of whose nodes serve each other."""
    return joined(mesh_of(cluster, *numbers, **more))


def joined(nodes: list[MeshNode]) -> list[MeshNode]:
    """The same of nodes that have no daemons yet."""
    for node in nodes:
        node.spawn()
    nodes[0].says("MESH-001", seconds=60)
    nodes[0].mesh("create", "--yes")
    for node in nodes:
        node.wait_ready()
    for node in nodes:
        eventually(lambda node=node: node.routes().count("/24 ") >= len(nodes) - 1, seconds=60)
    return nodes
