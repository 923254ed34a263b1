"""This node in the API: which it is, its subnets, what it publishes and what becomes of it (flannel.md §5.5).

Its lease is its Node object: it lasts as long as that, and is another one when the node is registered again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from weft.cluster.kube.access import Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.collection import is_older
from weft.cluster.kube.nodes import NODES, Listing, subnets_for
from weft.cluster.kube.problems import NotFoundError, reading
from weft.config.kubernetes import Surroundings
from weft.desired.allocate import Chooser
from weft.model.cluster import Held, OwnEvent, OwnLease, Revoked
from weft.model.errors import PeerError, Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Addresses
from weft.model.value import replace
from weft.plan.announce import Event
from weft.wire import kube
from weft.wire.kube import Node

log = logging.getLogger(__name__)

_REST_MOST: Final = 60.0
_EVENTS: Final = f"/api/v1/namespaces/{kube.EVENTS_OF_NODES}/events"


class Proof(NamedTuple):
    """Which Node object it is, and the addresses that an operator had set for it."""

    uid: str
    public_v4: str = ""
    public_v6: str = ""


def proof_in(own: OwnLease) -> Proof:
    """One that no node has, if another store made the token."""
    token = own.token
    return Proof(*map(str, token)) if len(token) == len(Proof._fields) else Proof("")


class KubeTenure:
    """This node's object. `prefix` begins the names of its annotations.

    `tells` has its condition NetworkUnavailable set. `events` has a connection of its own: nothing waits for an Event.
    """

    def __init__(
        self,
        client: Client,
        surroundings: Surroundings,
        prefix: str,
        *,
        events: Client,
        tells: bool,
        timing: Timing,
    ) -> None:
        self._client = client
        self._surroundings = surroundings
        self._prefix = prefix
        self._kind = kube.nodes(prefix)
        self._events = events
        self._tells = tells
        self._timing = timing
        self._name = surroundings.node
        self._attrs: LeaseAttrs | None = None
        self.version = ""  # of the node as we left it
        self.has_lease = False
        self._heard = asyncio.Event()
        self._node: Node | None = None
        self._said: list[Problem] = []
        self.unpublished: Problem | None = None

    async def name(self) -> str:
        """As the flags say, or as our pod does. Raises `Unavailable`."""
        if not self._name:
            namespace, pod = self._surroundings.namespace, self._surroundings.pod
            body = await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
            with reading(self._client.where):
                found = kube.read_pods_node(body)
            if not found:
                seen = "on no node yet (spec.nodeName is empty)"
                hint = "Check POD_NAME and POD_NAMESPACE, or set NODE_NAME from spec.nodeName"
                raise Unavailable(Problem(code="LEASE-002", where=f"pod {namespace}/{pod}", seen=seen, hint=hint))
            self._name = found
        return self._name

    @property
    def known_name(self) -> str:
        """Raises `RuntimeError` before there was a lease."""
        if not self._name:
            raise RuntimeError("no lease yet")
        return self._name

    async def read(self) -> Node:
        """Raises `Unavailable`."""
        name = await self.name()
        try:
            return self._read(await self._client.get(f"{NODES}/{name}"))
        except NotFoundError:
            hint = "kubelet registers it: see `kubectl get nodes`. NODE_NAME must be the name that is shown there"
            raise Unavailable(
                Problem(code="LEASE-002", where=f"node {name}", seen="not registered", hint=hint)
            ) from None

    async def addresses(self, recorded: OwnLease | None) -> Addresses:
        """As an operator has annotated this node. Raises `Unavailable`."""
        try:
            return self._addresses(await self.read())
        except Unavailable as error:
            if recorded is None or error.problems[0].code != "STORE-001":
                raise
            proof = proof_in(recorded)
            v4 = IPv4Address(proof.public_v4) if proof.public_v4 else None
            v6 = IPv6Address(proof.public_v6) if proof.public_v6 else None
            return self._told(v4, v6, recorded.lease.id)

    async def acquire(
        self,
        chooser: Chooser,
        *,
        recorded: OwnLease | None = None,  # noqa: ARG002 - the protocol has it
        listing: Listing | None = None,
    ) -> OwnLease:
        """Nothing is chosen here: these are the node's podCIDRs."""
        node = (None if listing is None else listing.own) or await self.read()
        v4, v6 = subnets_for(node, chooser.netconf, None if listing is None else listing.census)
        node = await self._annotate(node, chooser.attrs)
        v4_given, v6_given, _ = self._addresses(node)
        proof = Proof(node.uid, *("" if each is None else str(each) for each in (v4_given, v6_given)))
        lease = Lease(id=node.name, v4=v4, v6=v6, attrs=chooser.attrs, created=node.created)
        self.has_lease = True
        return OwnLease(lease=lease, expires=None, token=proof)

    def hold(self, own: OwnLease) -> None:
        # Where only our pod was named, this is the node that it was on. It is so still: what remembers `own` is this
        # machine's, and one that gets another name has no pods before the API, which is there then, gives it some.
        self._name, self._attrs, self.has_lease = own.lease.id, own.lease.attrs, True

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        """Raises `Unavailable`, with LEASE-004 if it is another node object by now."""
        node = await self._annotate(await self.read(), attrs)
        if node.uid != proof_in(own).uid:
            raise Unavailable(Problem(code="LEASE-004", where=f"node {node.name}", seen="deleted and registered again"))
        return replace(own, lease=replace(own.lease, attrs=attrs))

    async def ready(self) -> None:
        """flannel.md §5.8."""
        if self._tells:
            await self._client.patch(f"{NODES}/{await self.name()}/status", kube.network_available(datetime.now(UTC)))

    async def tell(self, event: Event) -> None:
        """Drops the connection: the next may be hours away. Raises `Unavailable`, with API-001 without the right."""
        name = await self.name()
        body = kube.event_of(name, datetime.now(UTC), kind=event.kind, reason=event.reason, message=event.message)
        try:
            await self._events.post(_EVENTS, body)
        finally:
            self._events.close()

    def seen(self, node: Node | None) -> None:
        """None when the node is gone. What was before our own patch is old."""
        if node is not None and is_older(node.version, self.version):
            return
        self._node = node
        self._heard.set()

    async def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:  # noqa: ARG002 - as above
        """`Held` now; ends after `Revoked`. Puts annotations back that others change, at a slowing pace."""
        self.hold(own)
        yield Held(own=own)
        rest = self._timing.backoff
        while True:
            await self._heard.wait()
            self._heard.clear()
            if reason := _lost(own, self._node):
                yield Revoked(reason=reason)
                return
            if self._node is None or self._attrs is None:
                continue
            wrong = self._wrong(self._attrs, self._node)
            if not wrong:
                self.unpublished = None
                continue
            names = ", ".join(sorted(self._prefix + name for name in wrong))
            log.warning("LEASE-004 node %s: another program changed %s; putting it back", own.lease.id, names)
            try:
                await self._annotate(self._node, self._attrs)
            except Unavailable as error:
                log.warning("LEASE-004 node %s: not put back, trying again: %s", own.lease.id, error)
                seen = f"another program changed {names}, and it is not put back: {error}"
                self.unpublished = Problem(code="LEASE-004", where=f"node {own.lease.id}", seen=seen)
                self._heard.set()
            await asyncio.sleep(rest)
            rest = min(rest * 2, _REST_MOST)

    async def _annotate(self, node: Node, attrs: LeaseAttrs) -> Node:
        """One patch, if the node does not say `attrs` yet."""
        self._attrs = attrs
        wrong = self._wrong(attrs, node)
        if wrong:
            body = kube.annotate(wrong, self._prefix)
            node = self._read(await self._client.patch(f"{NODES}/{node.name}/status", body))
        self.version, self.unpublished = node.version, None
        return node

    def _wrong(self, attrs: LeaseAttrs, node: Node) -> dict[str, str | None]:
        """What must change; an operator's value that is no address is logged once."""
        problems = kube.wrong_overwrites(node, self._prefix)
        for problem in problems:
            if problem not in self._said:
                log.warning("%s; what peers are told stays as it is", problem)
        self._said = problems
        return kube.annotations_for(attrs, node)

    def _read(self, body: bytes) -> Node:
        with reading(self._client.where):
            return self._kind.one(body)

    def _told(self, v4: IPv4Address | None, v6: IPv6Address | None, name: str) -> Addresses:
        where_v4, where_v6 = (kube.annotation_of(name, each, self._prefix) for each in (kube.NODE, kube.NODE_V6))
        return Addresses(v4, v6, (where_v4, where_v6))

    def _addresses(self, node: Node) -> Addresses:
        try:
            v4 = kube.address_in(node, kube.NODE, IPv4Address, self._prefix)
            return self._told(v4, kube.address_in(node, kube.NODE_V6, IPv6Address, self._prefix), node.name)
        except PeerError as error:
            raise Unavailable(*error.problems) from None


def _lost(own: OwnLease, node: Node | None) -> str:
    """Empty if the node has the lease `own`."""
    if node is None:
        return f"node {own.lease.id} was deleted"
    if node.uid != proof_in(own).uid:
        return f"node {own.lease.id} was deleted and registered again"
    return ""
