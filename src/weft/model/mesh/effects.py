"""What goes into the core of a mesh, what it keeps on disk and what it asks for.

A link is a number of the I/O side's choice, never used twice.
"""

from typing import Literal

from weft.model.errors import Problem
from weft.model.lease import WayKind
from weft.model.mesh.messages import Grant, Message, Promise
from weft.model.mesh.records import Layout, Member, Removal, Ring, Token
from weft.model.value import Value

# --- On disk ---------------------------------------------------------------------------------------------------------


class Kept(Value):
    """The file mesh.json, beside the private key and the machine's print: whole, and on disk before what depends on it.

    `version` is of our own record, not below any that was ever sent. `promise` is ours to another, `proposal` our own.
    Numbers of removals: `number` is the highest ever seen or used, and of our own those up to `over` are over,
    of which `done` was the last that came about.
    `settled`: our first block has its witness, or needs none; `grant` is what has none yet. `resting` are runs of
    inherited blocks, from start up to stop.
    """

    version: int = 0
    ring: Ring | None = None
    tokens: tuple[Token, ...] = ()
    removals: tuple[Removal, ...] = ()
    promise: Promise | None = None
    proposal: Promise | None = None
    number: int = 0
    over: int = 0
    done: int = 0
    home: int | None = None
    settled: bool = False
    grant: Grant | None = None
    resting: tuple[tuple[int, int], ...] = ()
    left: bool = False  # all of it goes to others, or has gone


class Recalled(Value):
    """The file members.bin: what was known of others in a ring when a lease of theirs was told last."""

    ring: bytes | None = None
    members: tuple[Member, ...] = ()
    tokens: tuple[Token, ...] = ()


# --- Told ------------------------------------------------------------------------------------------------------------


class Options(Value):
    """`peers` are addresses, dialled for ever. `booted`: the machine has, since the last run.

    `moved`: another machine has written the disk, and may run with it still. Its run is above all that are not moved.

    `founding` is the layout for `--mesh-create`; None without it.
    """

    key: bytes
    run: int
    name: str
    peers: tuple[str, ...] = ()
    founding: Layout | None = None
    booted: bool = True
    moved: bool = False


class Create(Value):
    """Make a ring without asking the others."""

    layout: Layout
    ring: bytes
    secret: bytes


class Publish(Value):
    """What our record says from now on, beside what the core knows (`weft.model.mesh.records.Member`)."""

    attrs: bytes
    endpoints: tuple[str, ...] = ()
    tunnels: tuple[str, ...] = ()
    clear: bool = True
    relays: bool = True


class Used(Value):
    """Whether a pod ever had an address of our home block: without one a lone peer may drop its ring for another."""

    ever: bool


class Answer(Value, gc=False):
    """An echo came back: one of `size`, by the path that a peer has of this kind."""

    key: bytes
    kind: WayKind
    size: int = 0


class TunnelSeen(Value, gc=False):
    """A peer in our WireGuard: where it is now, as `host:port` or empty, and the seconds since its last handshake."""

    key: bytes
    endpoint: str
    handshake: float | None


class Sights(Value):
    """What was seen of paths: echoes that came back, the peers that pods speak with now, and all of WireGuard's."""

    answered: tuple[Answer, ...] = ()
    active: frozenset[bytes] = frozenset()
    tunnels: tuple[TunnelSeen, ...] = ()


class PathNow(Value):
    """A path to a peer, for people. `usable` is None before the first word, `answered` when an echo came back last.

    `mtu` is the largest packet that passes; 0 is the largest that pods send.
    """

    kind: WayKind
    usable: bool | None
    answered: float
    mtu: int


class PathFound(Value, gc=False):
    """What is to be remembered of a path: that it does not carry packets, or only up to `mtu` bytes, 0 for all."""

    key: bytes
    kind: WayKind
    fallen: bool = False
    mtu: int = 0


class Connect(Value):
    address: str


class Forget(Value):
    address: str


class Leave(Value):
    """Give everything to others."""


class Remove(Value):
    """Inherit from peers that are gone for good. `force`: without waiting for those that are away."""

    keys: tuple[bytes, ...]
    force: bool = False


class Withdraw(Value):
    """Give up our own removal, for which somebody is waited."""


class Adopt(Value):
    """Drop our ring for the one that a neighbour has."""

    ring: bytes


Command = Create | Publish | Used | Connect | Forget | Leave | Remove | Withdraw | Adopt

# --- Asked for -------------------------------------------------------------------------------------------------------


class Dial(Value):
    address: str


class Send(Value):
    link: int
    message: Message


class Close(Value):
    """What was to be sent on the link before still is."""

    link: int
    why: str


class Keep(Value):
    """What comes after this, here and later, is carried out only when `kept` is on disk."""

    kept: Kept


class Leases(Value):
    """Members other than us that hold a home block: those that are new or changed, and the keys of those without.

    It is carried out once `Core.recalled` is on disk: then a later run takes no peer that was served for gone before it
    has heard so.
    """

    changed: tuple[Member, ...] = ()
    gone: tuple[bytes, ...] = ()


class Agreed(Value):
    """Whether the leases told so far include all that a neighbour with blocks knows; False at first in another ring."""

    so: bool


# Why packets do not go the best way to a peer: we hear nothing by it; or the peer says so of us; or large packets do
# not pass; or both are behind NATs and have not met, perhaps as one takes another port for each peer; or it has no
# address for its WireGuard that we could reach; or one of the two has no WireGuard, where no other way is permitted.
Reason = Literal["", "port-filtered", "one-way", "mtu", "nat", "nat-hard", "no-endpoint", "no-kernel"]


class Hop(Value):
    """Packets for the peer `key` go to `next` from now on, the peer itself or one that relays; `reason` says why.

    They leave for `next` by `kind`. `endpoint` and `keepalive` are of the peer's own WireGuard, whatever way its pods'
    packets take. `mtu` is of the path to `next`; 0 is the device's. Relays tell senders of theirs, as routers do.
    """

    key: bytes
    next: Member
    kind: WayKind
    reason: Reason
    endpoint: str = ""
    keepalive: bool = False
    mtu: int = 0


class Probe(Value, gc=False):
    """Send an echo to a peer by its own path of a kind, whatever way packets go; it is heard of by `Sights`.

    `size` are the bytes of the IP packet, which must not be fragmented, or fewer if the device takes no more; 0 is a
    small one.
    """

    key: bytes
    kind: WayKind
    size: int = 0


class Own(Value):
    """Our home block, and whether pods may have addresses of it now; `waits` says for what it or a block waits."""

    home: int | None
    usable: bool
    waits: Problem | None = None


class Rekey(Value):
    """We are the copy of another peer: make a new key, keep nothing, begin again."""

    why: Problem


class Say(Value):
    """For people: an event, and the fault if it is one, of some `blocks`, from start up to stop.

    Only the I/O side knows which subnets these are.
    """

    text: str
    problem: Problem | None = None
    blocks: tuple[tuple[int, int], ...] = ()


Effect = Dial | Send | Close | Keep | Leases | Agreed | Hop | Probe | Own | Rekey | Say
