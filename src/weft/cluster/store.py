"""What the daemon asks of a store of leases, whatever keeps them: etcd, the nodes of Kubernetes, a mesh of peers.

A store says which leases there are and keeps ours. It knows nothing of kernels and does not decide which subnet is
ours: a store without subnets of its own asks a `Chooser`, one that is given them (Kubernetes) does not.
What it needs to go on after a restart it puts into tokens, which the daemon keeps without reading them.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, TypeVar

from weft.config.options import Options
from weft.desired.allocate import Choice, Chooser
from weft.model.cluster import Listed, Malformed, OwnEvent, OwnLease, StoreEvent, Tally, Token
from weft.model.errors import Problem
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Addresses
from weft.model.value import Value
from weft.plan.announce import Event


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


class Store(Protocol[ListingT]):
    """One network's leases. A connection is made when something is asked.

    Every method that waits may raise `Unavailable` (STORE-001: does not answer; STORE-002: answers with an error) and
    `ConfigError` (STORE-002: refuses us), but what `watch` and `keep` give outlives both.
    """

    @property
    def source(self) -> str:
        """Where the network configuration is, for people."""
        ...

    @property
    def chooses(self) -> bool:
        """Tell whether nodes choose their subnets, by the configuration's lengths and bounds, or are given them."""
        ...

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """What was asked of the store so far, by verb and answer (`list 200`)."""
        ...

    async def net_conf(self) -> str:
        """The network configuration's text. `Unavailable` with CONF-002 while there is none."""
        ...

    async def next_net_conf(self, known: str) -> str:
        """Wait until the text is another than `known`, and give it; raises as `net_conf` does."""
        ...

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        """The public addresses that an operator has set for this node in the store, which count more than the flags'.

        While the store is away, those that `recorded` was taken with.
        """
        ...

    async def list(self) -> ListingT:
        """Everything the store holds now; may be given to `acquire` and `watch`, which then need not list."""
        ...

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: ListingT | None = None
    ) -> OwnLease:
        """Take a lease for this node and publish `chooser.attrs`; `recorded` is the own lease of an earlier run.

        Raises `Unavailable` with LEASE-003 while there is no subnet, with IFACE-001 when another node is we.
        """
        ...

    def hold(self, own: OwnLease) -> None:
        """Take `own`, of an earlier run, for ours before the store has confirmed it: `watch` does not show it."""
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

    async def policies(self) -> int | None:
        """How many NetworkPolicies there are; None where the store has no such thing. May raise `Unavailable`."""
        ...

    def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        """Hold the lease, renewed `margin` seconds before it expires if it does, and tell what becomes of it.

        `Held` now and whenever the lease changes or is renewed; ends after `Revoked` or `TakenOver`.
        """
        ...

    def watch(self, listing: ListingT | None = None) -> AsyncGenerator[StoreEvent, None]:
        """All leases but our own: `Listed`, then `Changed`; `Lost` while the store does not answer. Never ends.

        After a `Lost`, the next `Listed` or `Changed` (without leases, if none changed) says that it is back.
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

    def close(self) -> None:
        """Drop the connection; the next question makes another. The lease stays in the store."""
        ...


class Opener(Protocol):
    """Makes the store's client. `now` counts seconds and cannot be set, `random(n)` gives n bytes."""

    def __call__(self, options: Options, *, now: Callable[[], float], random: Callable[[int], bytes]) -> Store[Any]:
        """Read the flags; connects to nothing. Raises `ConfigError`."""
        ...


class StoreKind(Value):
    """How a daemon comes to its store. `identity` is what two networks on one machine differ in, such as a prefix."""

    identity: Callable[[Options], str]
    open: Opener
