"""What a lab's store is to the lab: a few processes that start, answer, and tell how they are."""

from typing import Protocol

from weft.lab.spec import Node


class Store(Protocol):
    """Where the lab's leases are. `where` is its client URL."""

    where: str

    async def start(self) -> None:
        """Start it, without waiting for anything. `ConfigError` if the machine lacks a program."""
        ...

    async def ready(self) -> None:
        """Wait until it answers and has the network configuration. `Unavailable` if it never does."""
        ...

    async def state(self) -> str:
        """Return `ready` or `silent` as it answers, or `exited N` if it has ended."""
        ...

    async def configuration(self) -> str:
        """Return the network configuration that it holds. `Unavailable` if it does not answer."""
        ...

    async def configure(self, network: str) -> None:
        """Hold another network configuration. `Unavailable` if it does not answer."""
        ...

    def flags(self) -> list[str]:
        """Return the flags by which a node's daemon finds it."""
        ...

    def prepare(self, node: Node) -> None:
        """Put into a node's directories what those flags name."""
        ...
