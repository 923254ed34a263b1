"""The nodes of a simulated mesh, their links, and how bad these are."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from weft.mesh.core import Core
from weft.model.lease import WayKind
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Message
from weft.model.mesh.records import Layout, Member


@dataclass(eq=False)
class End:
    """One side of a link."""

    node: "Node"
    life: int
    number: int
    peer: "End" = None  # type: ignore[assignment]
    last: float = 0.0  # when what was sent last arrives
    open: bool = True
    early: list[Message] | None = field(default_factory=list)  # what came before our side was done with the handshake


@dataclass(eq=False)
class Node:
    name: str
    key: bytes
    address: str
    peers: tuple[str, ...] = ()
    founding: Layout | None = None
    skew: float = 0.0  # its clock against the world's
    core: Core | None = None
    life: int = 0
    disk: do.Kept = field(default_factory=do.Kept)
    disks: list[do.Kept] = field(default_factory=list)  # all that it ever was
    late: do.Recalled = field(default_factory=do.Recalled)
    file: do.Recalled = field(default_factory=do.Recalled)  # the content of members.bin
    paths: tuple[do.PathFound, ...] = ()
    links: dict[int, End] = field(default_factory=dict)
    waiting: deque[do.Effect] = field(default_factory=deque)
    untold: list[do.Effect] = field(default_factory=list)  # leases that wait for members.bin
    writing: bool = False
    wakes: float = inf
    own: do.Own | None = None
    leases: dict[bytes, Member] = field(default_factory=dict)
    served: dict[bytes, Member] = field(default_factory=dict)  # as its kernel does, whatever daemon runs
    said: list[do.Say] = field(default_factory=list)
    sent: int = 0
    attrs: bytes = b"{}"
    takes: tuple[WayKind, ...] = ("vxlan",)
    relays: bool = True

    @property
    def up(self) -> bool:
        return self.core is not None

    @property
    def published(self) -> do.Publish:
        """What its daemon has it say."""
        tunnels = (self.address,) if "direct" in self.takes else ()
        return do.Publish(
            attrs=self.attrs,
            endpoints=(self.address,),
            tunnels=tunnels,
            clear="vxlan" in self.takes,
            relays=self.relays,
        )

    def show(self, effect: do.Effect) -> None:
        """What people and the daemon would see of it."""
        if isinstance(effect, do.Own):
            self.own = effect
        elif isinstance(effect, do.Leases):
            changed = {member.key: member for member in effect.changed}
            self.leases |= changed
            self.served |= changed
            for key in effect.gone:
                self.leases.pop(key, None)
        elif isinstance(effect, do.Agreed) and effect.so:
            self.served = dict(self.leases)
        elif isinstance(effect, do.Say):
            self.said.append(effect)
        elif isinstance(effect, do.Rekey):
            self.said.append(do.Say(text="rekey", problem=effect.why))


@dataclass
class Weather:
    """How bad links and disks are."""

    delay: float = 0.01
    disk: float = 0.002
    loss: float = 0.0
    twice: float = 0.0
    reorder: float = 0.0
    late: float = 0.0  # how often a node's loop sleeps for seconds
