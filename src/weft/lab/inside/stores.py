"""What a lab asks of its store, and the store of a lab without one: the mesh of its nodes."""

import os
from typing import Final, Protocol

from weft.lab.inside import filesystem, underlay
from weft.lab.spec import Lab, Node
from weft.model.errors import ConfigError, Problem
from weft.wire.meshpassword import SIZE, made

_NET_CONF: Final = "net-conf.json"
_PASSWORD_FILE: Final = "password"  # noqa: S105 - a name
_DIALLED: Final = 3  # nodes that each other one dials first, of those that it reaches


class Store(Protocol):
    """Where the lab's leases are, at the client URL `where`."""

    where: str

    async def start(self) -> None:
        """Do not wait for anything. `ConfigError` if the machine lacks a program."""
        ...

    async def ready(self) -> None:
        """Wait until it answers and has the network configuration. `Unavailable` if it never does."""
        ...

    async def state(self) -> str:
        """`ready`, `not ready` or `silent` as it answers, or `exited N`."""
        ...

    async def configuration(self) -> str:
        """`Unavailable` if it does not answer."""
        ...

    async def configure(self, network: str) -> None:
        """`Unavailable` if it does not answer."""
        ...

    def flags(self, node: Node) -> list[str]:
        """By which a node's daemon finds it."""
        ...

    def prepare(self, node: Node) -> None:
        """Put what those flags name into a node's directories."""
        ...


class MeshStore:
    """The first node creates it."""

    where = "mesh"

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._apart = lab.apart
        self._password = made(os.urandom(SIZE)) if lab.password else None

    async def start(self) -> None:
        """There is nothing to start."""

    async def ready(self) -> None:
        """It is once the nodes are."""

    async def state(self) -> str:
        return "ready"

    async def configuration(self) -> str:
        return self._lab.network

    async def configure(self, network: str) -> None:  # noqa: ARG002 - whatever it is
        seen = "the network configuration of a mesh is settled when the mesh is made"
        hint = "Make another lab: 'weft lab up --store mesh'."
        raise ConfigError(Problem(code="LAB-001", where="weft lab config set", seen=seen, hint=hint))

    def flags(self, node: Node) -> list[str]:
        """The first node makes the ring at once; it is alone in its list."""
        first = self._lab.nodes[0]
        sealed = [f"--password-file={filesystem.KUBE_FLANNEL / _PASSWORD_FILE}"] if self._password else []
        if node.index == first.index:
            return ["--mesh", *sealed, "--mesh-create", f"--net-config-path={filesystem.KUBE_FLANNEL / _NET_CONF}"]
        family = self._lab.families[0]
        hidden = self._lab.nat.keys() - {node.segment}
        far = {node.name, *(cut.target for cut in self._apart if cut.source == node.name)}
        near = [each for each in self._lab.nodes if each.name not in far and each.segment not in hidden]
        return ["--mesh", *sealed, *(f"--peer={underlay.address_of(each, family)}" for each in near[:_DIALLED])]

    def prepare(self, node: Node) -> None:
        directory = filesystem.node_directory(node.name, "kube-flannel")
        (directory / _NET_CONF).write_text(self._lab.network)
        if self._password:
            (directory / _PASSWORD_FILE).touch(0o600)
            (directory / _PASSWORD_FILE).write_text(f"{self._password.reveal()}\n")
