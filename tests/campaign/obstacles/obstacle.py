"""What is put into a world: shell commands at one place, and the truth about them."""

from collections.abc import Callable
from random import Random

from tests.campaign.obstacles.world import Backend
from weft.model.net import Family
from weft.model.value import Value


class Scene(Value):
    """Where an obstacle shall be: packets of `family` are to be lost, or none if it is `harmless`."""

    chance: Random
    backend: Backend
    family: Family
    harmless: bool = False

    @property
    def node(self) -> str:
        return self.chance.choice(("node1", "node2"))

    @property
    def pod(self) -> str:
        return self.chance.choice(("pod1-1", "pod2-1"))

    @property
    def ip(self) -> str:
        return f"ip -{self.family}"

    @property
    def unused(self) -> str:
        """An address that nobody has (RFC 5737, RFC 3849), with the length of a single one."""
        return f"198.51.100.7/{self.whole}" if self.family == 4 else f"2001:db8::7/{self.whole}"

    @property
    def whole(self) -> int:
        """The prefix length of a single address."""
        return 32 if self.family == 4 else 128


class Obstacle(Value):
    """`cause` is a regular expression: a finding that has it in its code, place or words has named the cause.

    Only packets of `size` bytes are lost, if it is not 0.
    """

    name: str
    place: str
    commands: str
    cause: str
    size: int = 0


Constructor = Callable[[Scene], Obstacle]


def other(node: str) -> str:
    return "node2" if node == "node1" else "node1"
