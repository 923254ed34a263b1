"""The lease store that the nodes are themselves (`weft.cluster.store`, decision 0045): settings, tenure and directory.

A lease is a peer's home block with what its record says. It has no end: a peer that is away keeps it, and it goes by
`weft mesh leave` and `rmpeer` alone. Clock and chance are given.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Final, NoReturn

from weft.cluster.mesh.leases import SOURCE
from weft.cluster.mesh.peer import Peer
from weft.cluster.store import Take
from weft.config.flagvalues import MESH_PORT
from weft.desired.allocate import Choice, Chooser
from weft.desired.backends import mesh
from weft.model.cluster import Changed, Held, Listed, Lost, Malformed, OwnEvent, OwnLease, Revoked, Token, changed
from weft.model.errors import PeerError, Problem, Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.mesh.effects import Publish
from weft.model.mesh.records import Member
from weft.model.net import Addresses, with_port
from weft.model.value import Value, replace
from weft.plan.announce import Event
from weft.wire.etcd import decode_attrs, encode_attrs

_PATIENCE: Final = 1.0  # seconds that a question waits for what is on its way
_AGREEMENT: Final = 5.0  # seconds that a start waits for what a neighbour knows, which may have no block itself
_LOST_SECONDS: Final = 5.0  # without a link, which every start has for a moment


class MeshListing(Value):
    """All that this node knows; whether that is all, a watch says."""

    leases: tuple[Lease, ...]
    malformed: tuple[Malformed, ...]
    mark: Token
    published: LeaseAttrs | None
    home: Lease | None
    waits: Problem

    def choice(self, chooser: Chooser, recorded: OwnLease | None) -> Choice:  # noqa: ARG002 - the ring chooses
        if self.home is None:
            raise Unavailable(self.waits)
        return Choice(v4=self.home.v4, v6=self.home.v6, reuse=self.home)

    def unchanged(self, recorded: OwnLease | None) -> Lease | None:
        home = self.home
        same = recorded is not None and home is not None and recorded.lease.id == home.id
        return home if same else None


class MeshSettings:
    source = SOURCE
    is_mesh = True
    chooses = True  # lengths and bounds of subnets count, as with etcd

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def net_conf(self) -> str:
        """Who takes a lease has to know what others' claim: with a neighbour it waits for what that one knows."""
        peer = self._peer
        await _until(peer, lambda: peer.kept.ring is not None, _PATIENCE)
        if peer.kept.ring is None:
            raise Unavailable(_no_ring(peer))
        await _until(peer, lambda: peer.others.agreed or peer.unlinked_for is not None, _AGREEMENT)
        return peer.kept.ring.layout.net_conf

    async def next_net_conf(self, known: str) -> str:
        """It changes with the ring alone."""
        peer = self._peer
        while peer.kept.ring is None or peer.kept.ring.layout.net_conf == known:
            await peer.changed()
        return peer.kept.ring.layout.net_conf

    async def policies(self) -> None:
        """There are none."""


class MeshTenure:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    @property
    def unpublished(self) -> Problem | None:
        """Nothing is said to others before the disk has it."""
        return self._peer.saving.unwritten

    async def addresses(self, recorded: OwnLease | None) -> Addresses:  # noqa: ARG002 - the flags alone say them
        return Addresses()

    async def acquire(
        self,
        chooser: Chooser,
        *,
        recorded: OwnLease | None = None,  # noqa: ARG002 - the ring knows what is ours
        listing: MeshListing | None = None,  # noqa: ARG002 - as above
    ) -> OwnLease:
        peer = self._peer
        self._publish(chooser.attrs)
        await _until(peer, lambda: peer.own.usable, _PATIENCE)
        home = peer.own.home
        if home is None or not peer.own.usable:
            raise Unavailable(_waits(peer))
        return peer.book.own(peer.id, home, chooser.attrs)

    def hold(self, own: OwnLease) -> None:
        """The ring on our disk says what is ours."""

    async def keep(self, own: OwnLease, *, margin: float) -> AsyncGenerator[OwnEvent, None]:  # noqa: ARG002 - no end
        peer = self._peer
        if self._is_ours(own):
            yield Held(own=own)
        while self._is_ours(own):
            await peer.changed()
        reason = "" if peer.own.waits is None else f" ({peer.own.waits.seen})"
        yield Revoked(reason=f"the ring does not give its block to this node any more{reason}")

    def _is_ours(self, own: OwnLease) -> bool:
        """The ring may have changed since it was acquired, and our key."""
        peer, lease = self._peer, own.lease
        if peer.own.home is None:
            return False
        now = peer.book.own(peer.id, peer.own.home, lease.attrs)
        return (now.token, now.lease.id, now.lease.subnets) == (own.token, lease.id, lease.subnets)

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        self._publish(attrs)
        return replace(own, lease=replace(own.lease, attrs=attrs))

    def _publish(self, attrs: LeaseAttrs) -> None:
        endpoints = tuple(with_port(address, MESH_PORT) for address in attrs.publics)
        publish = Publish(
            attrs=encode_attrs(attrs),
            endpoints=endpoints,
            tunnels=mesh.tunnels(attrs),
            clear=mesh.is_clear(attrs),
            relays=self._peer.me.relays,
        )
        self._peer.publish(publish)

    async def ready(self) -> None:
        """Peers need not know."""

    async def tell(self, event: Event) -> None:
        """There is nobody who reads."""


class MeshDirectory:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    @property
    def heard(self) -> float | None:
        return self._peer.heard

    async def list(self) -> MeshListing:
        peer = self._peer
        await _until(peer, lambda: peer.kept.ring is not None, _PATIENCE)
        mark, core = peer.book.mark, peer.core
        if mark is None or core is None:
            raise Unavailable(_no_ring(peer))
        words = peer.book.words()
        published = _published(core.members.get(peer.key))
        return MeshListing(
            leases=tuple(word for word in words if isinstance(word, Lease)),
            malformed=tuple(word for word in words if isinstance(word, Malformed)),
            mark=mark,
            published=published,
            home=None
            if peer.own.home is None
            else peer.book.own(peer.id, peer.own.home, published or LeaseAttrs(public_ip=None)).lease,
            waits=_waits(peer),
        )

    async def watch(self, take: Take, listing: MeshListing | None = None) -> NoReturn:  # noqa: ARG002 - it costs nothing
        """A list is complete once a neighbour has told all that it knows; before, no peer is taken for gone.

        To that our own memory adds every peer that this node has served.
        """
        peer, book = self._peer, self._peer.book
        listed, complete, lost = False, False, False
        ring: Token | None = None
        core = peer.core
        while True:
            alone = self._alone
            if peer.core not in {None, core}:  # it has begun again, and does not know of all yet
                listed, core = False, peer.core
            news = book.news()
            if not listed or book.mark != ring or (not complete and peer.others.agreed):
                listed, complete, ring = True, peer.others.agreed, book.mark
                await take(self._everything(complete=complete))
            elif news:
                await take(changed(news, ring))
            elif alone and not lost:
                lost = True
                await take(Lost(reason="no peer of the mesh answers"))
            elif lost and not alone:
                lost = False
                await take(Changed(mark=ring))
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if lost or peer.unlinked_for is None else _LOST_SECONDS):
                        await peer.changed()

    @property
    def _alone(self) -> bool:
        """No link has been up for a while, and others have leases."""
        unlinked = self._peer.unlinked_for
        return bool(self._peer.book.members) and unlinked is not None and unlinked > _LOST_SECONDS

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
        """False if our own memory of others was lost: a neighbour may never have heard of a peer that is missing."""
        known = {lease.id for lease in listed.leases} | {entry.id for entry in listed.malformed}
        return mark == listed.mark and (self._peer.others.whole or made.keys() <= known)

    def _everything(self, *, complete: bool) -> Listed:
        words = self._peer.book.words()
        return Listed(
            leases=tuple(word for word in words if isinstance(word, Lease)),
            malformed=tuple(word for word in words if isinstance(word, Malformed)),
            mark=self._peer.book.mark,
            complete=complete,
        )


async def _until(peer: Peer, is_so: Callable[[], bool], seconds: float) -> None:
    """Wait so long for it, no longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not is_so():
                await peer.changed()


def _published(ours: Member | None) -> LeaseAttrs | None:
    if ours is None or not ours.attrs:
        return None
    try:
        return decode_attrs(ours.attrs, "our record")
    except PeerError:
        return None


def _no_ring(peer: Peer) -> Problem:
    if peer.core is None:
        seen = "weftd has not read mesh.json yet, or does not run"
        return Problem(code="STORE-001", where="mesh", seen=seen)
    if peer.own.waits is not None:
        return peer.own.waits
    seen = "no ring is known, and no other node was reached" if peer.me.peers else "no ring is known, and no --peer"
    hint = "'weft mesh create' on one node makes one; the others find it by --peer"
    return Problem(code="MESH-001", where="mesh", seen=seen, expected="a ring", hint=hint)


def _waits(peer: Peer) -> Problem:
    if peer.own.waits is not None:
        return peer.own.waits
    if peer.kept.left:
        seen, hint = "this node has left the mesh", "Stop weftd; with an empty --state-dir it can join as a new node"
        return Problem("MESH-007", "mesh", seen, hint=hint)
    seen = "no block of the ring is this node's yet"
    hint = "'weft mesh status' says who was asked"
    return Problem(code="LEASE-003", where="mesh", seen=seen, expected="a peer that gives one", hint=hint)
