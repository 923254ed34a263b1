"""The lease store on the nodes of Kubernetes (`weft.cluster.store.Store`).

Which subnet is this node's says its Node object; what it publishes are annotations of that. The network configuration
is a file, which a ConfigMap is mounted as. Clock and chance are given.
"""

# ruff: noqa: ARG002 - the protocol says what is given; this store needs less

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random
from typing import Final

from weft.beside import files
from weft.cluster.kube.access import Access
from weft.cluster.kube.client import Client
from weft.cluster.kube.events import Events
from weft.cluster.kube.nodes import Listing, is_older, list_nodes
from weft.cluster.kube.own import OwnNode, proof_in
from weft.cluster.kube.problems import NotFoundError, reading
from weft.cluster.kube.watch import Watcher
from weft.config.kubernetes import Surroundings
from weft.desired.allocate import Chooser
from weft.model.cluster import Listed, OwnEvent, OwnLease, StoreEvent, Tally, Token
from weft.model.errors import Problem, Unavailable
from weft.model.lease import LeaseAttrs
from weft.model.net import Addresses
from weft.model.value import replace
from weft.plan.announce import Event
from weft.wire import kube

# While a node waits for its podCIDR it asks for its own object only, and looks at all others this often.
_LOOK_SECONDS: Final = 30.0
_FILE_SECONDS: Final = 2.0  # between two looks; kubelet takes a minute to bring a change of a ConfigMap
_POLICIES: Final = "/apis/networking.k8s.io/v1/networkpolicies"


class KubeStore:
    """The nodes of a cluster as leases. `now` gives seconds of a clock that only goes forward.

    `prefix` begins the names of annotations; `net_conf` is the file of the network configuration; `tells` has the
    node's condition NetworkUnavailable set. Every method may raise `Unavailable`, but `watch` and `keep` outlive it:
    STORE-001 when the API does not answer, STORE-002 and API-001 when it refuses us.
    """

    def __init__(
        self,
        access: Access,
        surroundings: Surroundings,
        *,
        prefix: str,
        net_conf: Path,
        tells: bool,
        now: Callable[[], float],
        chance: Random,
    ) -> None:
        self._client = Client(access)
        self._events = Events(access)
        self._timing = access.timing
        self._prefix = prefix
        self._net_conf = net_conf
        self._tells = tells
        self._now = now
        self._chance = chance
        self._own = OwnNode(self._client, surroundings, prefix, timing=access.timing)
        self._looked: tuple[float, Listing] | None = None
        self._heard: float | None = None

    def close(self) -> None:
        """Drop the connections. The node keeps its annotations."""
        self._client.close()
        self._events.close()

    @property
    def source(self) -> str:
        """Where the network configuration is, for people."""
        return str(self._net_conf)

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """What was asked so far, by verb and answer."""
        return self._client.tallies

    @property
    def chooses(self) -> bool:
        """No: a node's podCIDR is given."""
        return False

    async def next_net_conf(self, known: str) -> str:
        """Wait until the file holds another text than `known`, and give it."""
        while (text := await self.net_conf()) == known:  # noqa: ASYNC110 - a file gives no sign
            await asyncio.sleep(_FILE_SECONDS)
        return text

    async def net_conf(self) -> str:
        """The network configuration, as text. `Unavailable`: CONF-002 without one, STORE-001 while disks hang."""
        try:
            text = await files.read_small(self._net_conf)
        except OSError as error:
            seen = f"cannot be read: {files.why(error)}"
            if files.may_pass(error):
                raise Unavailable(Problem(code="STORE-001", where=self.source, seen=seen)) from None
            hint = "Mount the ConfigMap kube-flannel-cfg there, or give --net-config-path"
            raise Unavailable(
                Problem(code="CONF-002", where=self.source, seen=seen, expected="a network configuration", hint=hint)
            ) from None
        return text.decode(errors="replace")

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        """The public addresses that an operator has annotated this node with, as they were if the API is away."""
        try:
            return await self._own.addresses()
        except Unavailable as error:
            if recorded is None or error.problems[0].code != "STORE-001":
                raise
            proof = proof_in(recorded)
            v4 = IPv4Address(proof.public_v4) if proof.public_v4 else None
            v6 = IPv6Address(proof.public_v6) if proof.public_v6 else None
            return self._own.told(v4, v6, recorded.lease.id)

    async def list(self) -> Listing:
        """All nodes now; while there is no lease, all but our own as they were half a minute ago at most."""
        if self._looked is not None and self._now() - self._looked[0] <= _LOOK_SECONDS:
            return replace(self._looked[1], own=await self._own.read())
        self._looked = self._now(), await list_nodes(self._client, self._prefix, await self._own.name())
        return self._looked[1]

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: Listing | None = None
    ) -> OwnLease:
        """Take this node's podCIDRs and publish what it is; nothing is chosen here."""
        own = await self._own.acquire(chooser, listing)
        self._looked = None
        return own

    def hold(self, own: OwnLease) -> None:
        """Take `own`, of an earlier run, for ours before the API has confirmed it."""
        self._own.hold(own)

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        """Change what our node says; `Unavailable` with LEASE-004 if it was registered again meanwhile."""
        return await self._own.publish(own, attrs)

    @property
    def unpublished(self) -> Problem | None:
        """Why our node does not say what was published, if it does not."""
        return self._own.unpublished

    async def ready(self) -> None:
        """Say in the node's conditions that its network is there, if that is wanted. Raises `Unavailable`."""
        if self._tells:
            await self._own.available()

    async def tell(self, event: Event) -> None:
        """Put an Event of this node into the API. Raises `Unavailable`."""
        await self._events.put(await self._own.name(), event)

    async def policies(self) -> int | None:
        """How many NetworkPolicies there are in all namespaces. `Unavailable` without the right to list them."""
        try:
            body = await self._client.get(_POLICIES, limit="1")
        except NotFoundError:  # an API that does not serve them has none
            return 0
        with reading(self._client.where):
            return kube.read_count(body)

    def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:
        """Tell what becomes of our node, of which `watch` hears; there is nothing to renew."""
        return self._own.keep(own)

    def watch(self, listing: Listing | None = None) -> AsyncGenerator[StoreEvent, None]:
        """All leases but our own: `Listed`, then `Changed`; `Lost` while the API does not answer. Never ends."""
        watcher = Watcher(
            self._client,
            self._prefix,
            self._own.known_name,
            timing=self._timing,
            jitter=self._chance.random,
            seen=self._own.seen,
            heard=self._hear,
        )
        return watcher.events(listing)

    @property
    def heard(self) -> float | None:
        """When the API said anything last to `watch`, a sign of life included."""
        return self._heard

    def _hear(self) -> None:
        self._heard = self._now()

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        """Tell whether a list follows on what was known at `mark`: it is not older."""
        known, now = mark, listed.mark or ()
        return len(known) != 1 or len(now) != 1 or not is_older(str(now[0]), str(known[0]))
