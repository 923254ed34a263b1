"""What the daemon asks of a store of leases, whatever keeps them: etcd, the nodes of Kubernetes, a mesh of peers.

A store is three things: the settings of the network, this node's tenure of a lease, and the directory of all leases.
It knows nothing of kernels and does not decide which subnet is ours: a store without subnets of its own asks a
`Chooser`, one that is given them (Kubernetes) does not. What it needs after a restart it puts into tokens, which the
daemon keeps without reading them.

Every method that waits may raise `Unavailable` (STORE-001: does not answer; STORE-002: answers with an error) and
`ConfigError` (STORE-002: refuses us), but `Directory.watch` and `Tenure.keep` outlive both.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from weft.config.options import Options
from weft.desired.allocate import Choice, Chooser
from weft.model.cluster import Listed, Malformed, OwnEvent, OwnLease, StoreEvent, Tally, Token
from weft.model.errors import Problem
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Addresses
from weft.model.value import Value
from weft.plan.announce import Event

Take = Callable[[StoreEvent], Awaitable[None]]


class Settings(Protocol):
    """What the operator says to all nodes."""

    @property
    def source(self) -> str:
        """Where the network configuration is, for people."""
        ...

    @property
    def chooses(self) -> bool:
        """Tell whether nodes choose their subnets, by the configuration's lengths and bounds, or are given them."""
        ...

    async def net_conf(self) -> str:
        """The network configuration's text. `Unavailable` with CONF-002 while there is none."""
        ...

    async def next_net_conf(self, known: str) -> str:
        """Wait until the text is another than `known`, and give it; raises as `net_conf` does."""
        ...

    async def policies(self) -> int | None:
        """How many NetworkPolicies there are; None where the store has no such thing."""
        ...


class Listing(Protocol):
    """All that the store holds at one moment."""

    @property
    def leases(self) -> tuple[Lease, ...]:
        """All of them, ours too."""
        ...

    def choice(self, chooser: Chooser, recorded: OwnLease | None) -> Choice:
        """What `acquire` would take. Raises `Unavailable` as it does."""
        ...

    def unchanged(self, recorded: OwnLease | None) -> Lease | None:
        """The lease that an earlier run took, if it is there and unchanged since."""
        ...

    @property
    def malformed(self) -> tuple[Malformed, ...]:
        """The entries that cannot be read as leases."""
        ...

    @property
    def mark(self) -> Token:
        """The moment, as `continues` reads it."""
        ...

    @property
    def published(self) -> LeaseAttrs | None:
        """What this node published before, in a store that knows a node by its name."""
        ...


ListingT = TypeVar("ListingT", bound=Listing)
GivenT_contra = TypeVar("GivenT_contra", bound=Listing, contravariant=True)


class Tenure(Protocol[GivenT_contra]):
    """This node's own lease, and what the node says beside it."""

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        """The public addresses that an operator has set for this node in the store, which count more than the flags'.

        While the store is away, those that `recorded` was taken with.
        """
        ...

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: GivenT_contra | None = None
    ) -> OwnLease:
        """Take a lease for this node and publish `chooser.attrs`; `recorded` is the own lease of an earlier run.

        Raises `Unavailable` with LEASE-003 while there is no subnet, with IFACE-001 when another node is we.
        """
        ...

    def hold(self, own: OwnLease) -> None:
        """Take `own`, of an earlier run, for ours before the store has confirmed it: `watch` does not show it."""
        ...

    def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        """Hold the lease, renewed `margin` seconds before it expires if it does, and tell what becomes of it.

        `Held` now and whenever the lease changes or is renewed; ends after `Revoked` or `TakenOver`. It may hear by
        `Directory.watch`, which runs beside it.
        """
        ...

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        """Change what our lease says; `Unavailable` with LEASE-004 if another one has changed it meanwhile."""
        ...

    @property
    def unpublished(self) -> Problem | None:
        """Why the store does not show what was published: others have changed it, and it cannot be put back."""
        ...

    async def ready(self) -> None:
        """Say that this node's pods have their network, in a store that has a place for it."""
        ...

    async def tell(self, event: Event) -> None:
        """Say something of this node to people, in a store that has a place for it."""
        ...


class Directory(Protocol[ListingT]):
    """The leases of all nodes."""

    async def list(self) -> ListingT:
        """Everything the store holds now; may be given to `acquire` and `watch`, which then need not list."""
        ...

    async def watch(self, take: Take, listing: ListingT | None = None) -> NoReturn:
        """Say all leases but our own to `take`, one event at a time: `Listed`, then `Changed` and `Lost`, for ever.

        Nothing is removed before a `Listed` that is `complete`. After a `Lost` of all, the next `Listed` or `Changed`
        (without leases, if none changed) says that the store is back.
        """
        ...

    @property
    def heard(self) -> float | None:
        """When the store said anything last to `watch`, a sign of life included, by the clock that it was given."""
        ...

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        """Tell whether what a list does not hold is gone, since the store continues what was known at `mark`.

        It does not if it has lost something, or is another store. `made` says by id when what was known was created.
        """
        ...


async def idle() -> None:
    """What a store does that does nothing by itself."""


class Store(Value):
    """One network's leases, opened once.

    `run` is what the store does by itself, beside the node and as long as it. `tallies` say what was asked of it, by
    verb and answer (`list 200`). `close` drops its connections; the next question makes others. The lease stays.
    """

    settings: Settings
    tenure: Tenure[Any]
    directory: Directory[Any]
    tallies: Mapping[str, Tally]
    close: Callable[[], None]
    run: Callable[[], Awaitable[None]] = idle


class Opener(Protocol):
    """Makes the store's client. `now` counts seconds and cannot be set, `random(n)` gives n bytes.

    `directory` is the store's own, for what must be on disk before it is answered; nothing is written before `run`.
    """

    def __call__(
        self, options: Options, *, directory: Path, now: Callable[[], float], random: Callable[[int], bytes]
    ) -> Store:
        """Read the flags; connects to nothing. Raises `ConfigError`."""
        ...


class StoreKind(Value):
    """How a daemon comes to its store. `identity` is what two networks on one machine differ in, such as a prefix."""

    identity: Callable[[Options], str]
    open: Opener
