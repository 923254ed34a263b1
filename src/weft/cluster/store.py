"""What the daemon asks of a store of leases, whatever keeps them: etcd, the nodes of Kubernetes, a mesh of peers.

A store knows no kernel. One without subnets of its own asks a `Chooser` for this node's. What it needs after a restart
it puts into tokens, which the daemon keeps and does not read.

Every method that waits may raise `Unavailable` (STORE-001: no answer; STORE-002: an error) and `ConfigError`
(STORE-002: refuses us), but `Directory.watch` and `Tenure.keep` outlive both.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from weft.config.options import Options
from weft.desired.allocate import Choice, Chooser
from weft.model.cluster import Listed, Malformed, OwnEvent, OwnLease, StoreEvent, Tally, Token
from weft.model.errors import ConfigError, Problem
from weft.model.lease import Lease, LeaseAttrs, WayKind
from weft.model.mesh.effects import TunnelSeen
from weft.model.net import Addresses
from weft.model.node.history import History
from weft.model.node.meshstate import MeshAsk, MeshState
from weft.model.value import Secret, Value
from weft.plan.announce import Event

if TYPE_CHECKING:
    from weft.cluster.policysource import PolicySource

Take = Callable[[StoreEvent], Awaitable[None]]


class Settings(Protocol):
    """What the operator says to all nodes."""

    @property
    def source(self) -> str:
        """Where the network configuration is, for people."""
        ...

    @property
    def chooses(self) -> bool:
        """Whether nodes choose their subnets or are given them."""
        ...

    @property
    def is_mesh(self) -> bool:
        """Whether the nodes find the ways to each other themselves: then leases have one, and the back end is mesh."""
        ...

    async def net_conf(self) -> str:
        """`Unavailable` with CONF-002 while there is none."""
        ...

    async def next_net_conf(self, known: str) -> str:
        """Wait for a text other than `known`. Raises as `net_conf` does."""
        ...

    async def policies(self) -> int | None:
        """How many NetworkPolicies there are; None where there can be none."""
        ...


class Listing(Protocol):
    """All that the store holds at the moment `mark`; `leases` include ours."""

    @property
    def leases(self) -> tuple[Lease, ...]: ...

    def choice(self, chooser: Chooser, recorded: OwnLease | None) -> Choice:
        """What `acquire` would take. Raises `Unavailable` as it does."""
        ...

    def unchanged(self, recorded: OwnLease | None) -> Lease | None:
        """The lease that an earlier run took, if it is there and unchanged since."""
        ...

    @property
    def malformed(self) -> tuple[Malformed, ...]: ...

    @property
    def mark(self) -> Token: ...

    @property
    def published(self) -> LeaseAttrs | None:
        """What this node published before, if the store knows a node by its name."""
        ...


ListingT = TypeVar("ListingT", bound=Listing)
GivenT_contra = TypeVar("GivenT_contra", bound=Listing, contravariant=True)


class Tenure(Protocol[GivenT_contra]):
    """This node's own lease, and what the node says beside it."""

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        """The public addresses that an operator has set for this node in the store; those of `recorded` without it."""
        ...

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: GivenT_contra | None = None
    ) -> OwnLease:
        """Take a lease and publish `chooser.attrs`; `recorded` is an earlier run's.

        Raises `Unavailable` with LEASE-003 without a subnet, with IFACE-001 when another node has our address.
        """
        ...

    def hold(self, own: OwnLease) -> None:
        """Take `own`, of an earlier run, for ours before the store confirms it."""
        ...

    def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        """`Held` now and at each change or renewal, `margin` seconds before it expires; ends by `Revoked`, `TakenOver`.

        It may need `Directory.watch` to run beside it.
        """
        ...

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        """Change what our lease says. Raises `Unavailable` with LEASE-004 if somebody else has changed it."""
        ...

    @property
    def unpublished(self) -> Problem | None:
        """Why the store does not show what was published."""
        ...

    async def ready(self) -> None:
        """Say that this node's pods have their network."""
        ...

    async def tell(self, event: Event) -> None:
        """Show people an event of this node."""
        ...


class Directory(Protocol[ListingT]):
    """The leases of all nodes."""

    async def list(self) -> ListingT:
        """Everything now, for `acquire` and `watch` to begin with."""
        ...

    async def watch(self, take: Take, listing: ListingT | None = None) -> NoReturn:
        """Give `take` one event after the other, of all leases but ours: `Listed`, then `Changed` and `Lost`.

        Nothing is removed before a `Listed` that is `complete`. Any other event, perhaps an empty `Changed`,
        ends a `Lost` of the whole store. The `ids` of a `Lost` replace those of the one before. A `Listed` that is
        complete ends it for all of them; another one, and a `Changed`, for those that it names.
        """
        ...

    @property
    def heard(self) -> float | None:
        """When `watch` had the last sign of life, by the clock that the store was given."""
        ...

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        """Whether `listed` continues what was known at `mark`: else the store has lost something, or is another.

        `made` says by id when what was known was created.
        """
        ...


class Echo(Value):
    """A request to a lease's node by its own path of a kind; `size` as `weft.model.mesh.effects.Probe` has it."""

    lease: Lease
    kind: WayKind
    size: int = 0


class PathProbes(Protocol):
    """The paths to other nodes, of which a store wants to know whether packets pass them."""

    async def next(self) -> Echo:
        """Wait for the next one that is to be sent."""
        ...

    def saw(self, answered: Collection[Echo], active: Collection[str], tunnels: Sequence[TunnelSeen] = ()) -> None:
        """What has come back since, the ids of leases with whose nodes pods speak, and a new look at WireGuard.

        It is called before `next`, too.
        """
        ...


class TunnelKeys(Value):
    """What a store by whose keys nodes know each other has for WireGuard: this node's own, and one that all share."""

    private: Secret
    psk: Secret


async def no_keys() -> None:
    """Nodes have keys of their own, if they need any."""


async def idle() -> None:
    """Do nothing."""


async def no_command(ask: MeshAsk) -> tuple[str, ...]:
    """Operators ask this of a store that is a server by its own programs. Raises `ConfigError`."""
    seen = f"weftd keeps its leases in no mesh, and cannot be told {' '.join((ask.verb, *ask.names))!r}"
    raise ConfigError(Problem(code="MESH-001", where="weft mesh", seen=seen, expected="a weftd with --mesh"))


class Store(Value):
    """`run` is what the store does by itself, as long as the node runs. `tallies` are by verb and answer (`list 200`).

    `close` drops connections; the next question makes others. `mesh` is what a store that is the node itself knows,
    None of another; `command` has it do something, or say what it would do, and returns lines for people.
    `keys` are those of the own lease, and are others with another one; it raises `Unavailable`. `policy_source`
    opens where policies are read, if that is where leases are.
    """

    settings: Settings
    tenure: Tenure[Any]
    directory: Directory[Any]
    tallies: Mapping[str, Tally]
    close: Callable[[], None]
    run: Callable[[], Awaitable[None]] = idle
    paths: PathProbes | None = None
    keys: Callable[[], Awaitable[TunnelKeys | None]] = no_keys
    mesh: Callable[[], MeshState | None] = lambda: None
    command: Callable[[MeshAsk], Awaitable[tuple[str, ...]]] = no_command
    policy_source: "Callable[[], PolicySource] | None" = None


class Means(Value):
    """What a store takes from its node: chance, a clock in seconds that cannot be set, the history.

    `directory` is the store's own, for what must be on disk before it answers; it writes nothing before `run`.
    """

    directory: Path
    now: Callable[[], float]
    random: Callable[[int], bytes]  # so many bytes
    history: History


class StoreKind(Value):
    """`identity` is what two networks on one machine differ in, such as a prefix.

    `open` reads the flags and connects to nothing; it raises `ConfigError`.
    """

    identity: Callable[[Options], str]
    open: Callable[[Options, Means], Store]
