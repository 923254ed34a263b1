"""What a daemon knows of its mesh, as values, which `weft mesh` prints as JSON. Keys and ring ids are in hex."""

from typing import Final, Literal

from weft.model.errors import Problem
from weft.model.value import Value, field

_KEY_BEGINS: Final = 8  # characters of a key that name a peer, at least
PathState = Literal["taken", "answers", "silent", "unknown", "barred"]


class MeshPath(Value):
    """A path to a peer itself. `state` is `taken` by pods' packets, `answers`, `silent`, `unknown` or `barred`.

    `why` says why it is one of the last three. An echo came back last so many seconds ago. `mtu` is the largest packet
    that passes, 0 the largest that pods send.
    """

    kind: str
    state: PathState
    why: str = ""
    answered: float | None = None
    mtu: int = 0


class MeshPeer(Value):
    """A peer of the ring. `id` is its lease's; `subnets` are those of the lease, `blocks` how many it owns in all.

    `addresses` are where it can be dialled, `links` the ids of those that it is linked with. `linked`: with us. `way`
    is how packets go to its pods, by the `relays`; empty if it has none, and for us.
    """

    id: str
    name: str
    key: str
    us: bool
    linked: bool
    subnets: tuple[str, ...] = ()
    blocks: int = 0
    addresses: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    way: str = ""
    relays: tuple[str, ...] = ()
    paths: tuple[MeshPath, ...] = ()


class MeshRing(Value):
    """`blocks` are all that can be given, `resting` those that we have inherited and do not give yet.

    `removed` are the ids of peers whose blocks others have, by the id of who has them.
    """

    id: str
    network: str
    blocks: int
    unknown: int
    resting: int = 0
    removed: dict[str, list[str]] = field(default_factory=dict)


class MeshOwner(Value):
    """A peer and what it owns: the subnets of its pods, and how many blocks beside them."""

    id: str
    home: tuple[str, ...]
    reserve: int


class MeshOwners(Value):
    ring: MeshRing
    owners: tuple[MeshOwner, ...]


class MeshSaid(Value):
    """What was said of the mesh so many seconds ago, and the fault if it was one."""

    seconds: float
    text: str
    problem: Problem | None = None


class MeshState(Value):
    """This node in its mesh. `agreed`: a neighbour has told us all that it knows of blocks.

    `strangers` are peers without our ring that were linked with us, by their ring or under an empty name. `unreached`
    are addresses that were dialled in vain, and why. `waits` says what the own block waits for, or another one;
    `removing` are the ids of those whom we have proposed to remove. `unwritten` is why the disk takes nothing.
    `refused` counts links that were closed: by what was hostile in them, and for another `password`. `ways` counts
    peers by the kind of the way to them, `vxlan`, `direct` or `via`, and `moves` the changes to each.
    """

    id: str
    key: str
    ring: MeshRing | None
    usable: bool
    agreed: bool
    peers: tuple[MeshPeer, ...] = ()
    strangers: dict[str, list[str]] = field(default_factory=dict)
    unreached: dict[str, Problem] = field(default_factory=dict)
    waits: Problem | None = None
    removing: tuple[str, ...] = ()
    unwritten: Problem | None = None
    said: tuple[MeshSaid, ...] = ()
    refused: dict[str, int] = field(default_factory=dict)
    ways: dict[str, int] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)

    def named(self, name: str) -> list[MeshPeer]:
        """By name, by id, or by the beginning of its key."""
        found = [peer for peer in self.peers if name in (peer.name, peer.id)]
        return found or [peer for peer in self.peers if len(name) >= _KEY_BEGINS and peer.key.startswith(name)]


class MeshAsk(Value):
    """What an operator has the mesh of a node do; without `sure` it says what that would do.

    `names` are peers, a ring or an address. `force`: without waiting for peers that are away.
    """

    verb: Literal["create", "connect", "forget", "leave", "rmpeer", "withdraw", "adopt"]
    names: tuple[str, ...] = ()
    force: bool = False
    sure: bool = False


class MeshDone(Value):
    """What a command has done, or would do, in lines; or why it was refused."""

    lines: tuple[str, ...] = ()
    unable: tuple[Problem, ...] = ()
