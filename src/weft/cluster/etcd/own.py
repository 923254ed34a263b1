"""Writes this node's own key: takes a subnet, publishes, renews. Each write is a compare-and-swap.

Nothing of another node is ever overwritten unseen, and what another node wrote over ours is noticed. A lease is
renewed in place (one request, no new etcd lease, no event for thousands of watchers), where upstream puts the key
again under a new etcd lease every time.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from weft.cluster.etcd.access import Timing
from weft.cluster.etcd.client import Client
from weft.cluster.etcd.link import GRANT, KEEP_ALIVE, RANGE, REVOKE, TXN
from weft.cluster.etcd.listing import entry_of, id_of, list_leases, prefix_end
from weft.cluster.etcd.problems import TooLargeError
from weft.cluster.etcd.rpc.etcd_pb2 import (
    Compare,
    DeleteRangeRequest,
    KeyValue,
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseRevokeRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from weft.cluster.etcd.values import Entry, Listing, Proof, proof_in
from weft.config.netconf import NetConf
from weft.desired.allocate import Choice, Chooser, room
from weft.model.cluster import OwnLease
from weft.model.errors import PeerError, Problem, Unavailable
from weft.model.lease import LEASE_TTL, Lease, LeaseAttrs
from weft.model.value import replace
from weft.wire.etcd import encode_attrs, lease_id, parse_id

log = logging.getLogger(__name__)

TRIES: Final = 10


class OwnKey:
    """Remembers what it wrote, to tell it from what others write."""

    def __init__(
        self, client: Client, prefix: str, *, timing: Timing, now: Callable[[], float], chance: Random
    ) -> None:
        self.name = ""  # of the key that is ours, for all that we know
        self.touched = asyncio.Event()  # set by the watch: somebody may have changed that key
        self._client = client
        self._prefix = prefix
        self.timing = timing
        self.now = now
        self.chance = chance
        self._grants: set[int] = set()
        self._reserved = ""
        self._overtaken: set[tuple[str, int, int]] = set()  # keys as they were before we wrote or deleted them
        self._rivals: set[str] = set()
        self._attrs: LeaseAttrs | None = None  # what we published last, or are publishing

    def is_own(self, entry: Entry) -> bool:
        """Tell whether a key is this node's, and so no peer's.

        By the etcd lease it hangs on, which is known before the key is written. And a key that we have taken over
        since it was read is ours too; so is our key when it says what we say, as `adopt` has it.
        """
        name = entry.lease.id
        return (
            (entry.etcd_lease in self._grants if entry.etcd_lease else name == self._reserved)
            or (name == self.name and entry.lease.attrs == self._attrs)
            or _version(entry) in self._overtaken
        )

    def hold(self, own: OwnLease) -> None:
        self._remember(own.lease.id, proof_in(own).etcd_lease)
        if self._attrs is None:
            self._attrs = own.lease.attrs

    def lost_to(self, name: str, kv: KeyValue) -> Lease | None:
        """Another node writes our key: do not fight over it. Returns its lease, if readable."""
        self._rivals.add(name)
        self.name = self._reserved = ""
        entry = entry_of(kv, len(self._prefix.encode()))
        return entry.lease if isinstance(entry, Entry) else None

    async def acquire(
        self, chooser: Chooser, *, recorded: OwnLease | None = None, listing: Listing | None = None
    ) -> OwnLease:
        """Take a subnet and publish what we are there (flannel.md §4.3); up to ten tries while others take it first.

        A `recorded` key is deleted when the network has no place for it.
        Raises `Unavailable` (no store, LEASE-003: no subnet, IFACE-001: our address is another node's too).
        """
        attrs = chooser.attrs
        for attempt in range(TRIES):
            if listing is None:
                listing = await list_leases(self._client, self._prefix)
            self._refuse_rivals(chooser, listing)
            mine = listing.unchanged(recorded)
            choice = chooser.choose(listing.present, recorded=mine, attempt=attempt)
            entries = {entry.lease.id: entry for entry in listing.entries}
            stale = [entries[lease.id] for lease in choice.stale]
            reused = [] if choice.reuse is None else [entries[choice.reuse.id]]
            if reused:
                own = await self._reuse(reused[0], attrs, stale=stale, recorded=choice.reuse is mine)
            else:
                own = await self._create(choice, attrs, stale=stale, since=listing.mark.revision)
            if own is not None:
                self._overtaken.update(map(_version, [*reused, *stale]))
                _warn_when_scarce(chooser.netconf, listing)
                return own
            listing = None
            await asyncio.sleep(0.01 * self.chance.randrange(1 + attempt))
        seen = f"{TRIES} subnets in a row were taken by other nodes while we asked for them"
        raise Unavailable(
            Problem(code="LEASE-003", where=self._prefix, seen=seen, expected="a subnet", hint="Trying on")
        )

    async def publish(self, own: OwnLease, attrs: LeaseAttrs) -> OwnLease:
        """Raises `Unavailable` (LEASE-004) when the key is not as `own` says any more."""
        self._attrs = attrs
        written = await self._swap(own.lease, attrs, *proof_in(own), stale=())
        if written is None:
            seen = "another one changed the key since we looked"
            raise Unavailable(Problem(code="LEASE-004", where=self._prefix + own.lease.id, seen=seen))
        return replace(written, expires=own.expires)

    async def confirm(self, own: OwnLease) -> OwnLease:
        """Of a key that an operator reserved for us."""
        if self._attrs is None or own.lease.attrs == self._attrs:
            return own
        return await self.publish(own, self._attrs)

    async def read(self, own: OwnLease) -> KeyValue | None:
        """The own key as it is now; without its value if that is too large to be received: then it is not ours."""
        request = RangeRequest(key=self._key(own.lease.id))
        try:
            reply = await self._client.call(RANGE, request)
        except TooLargeError:
            request.keys_only = True
            reply = await self._client.call(RANGE, request)
        return reply.kvs[0] if reply.kvs else None

    async def renew(self, etcd_lease: int) -> int:
        """Give an etcd lease its full time again; returns that in seconds, 0 when the lease is no more.

        Raises `Unavailable` also when etcd says nothing: a proxy, or a member that ends, closes a stream in order.
        """
        async with self._client.stream(KEEP_ALIVE, timeout=self.timing.call) as stream:
            await stream.send(LeaseKeepAliveRequest(ID=etcd_lease), end=True)
            reply = await stream.receive()
            if reply is None:
                seen = "the stream of renewals ended without an answer"
                raise Unavailable(Problem(code="STORE-001", where=self._client.where, seen=seen))
            return reply.TTL

    def adopt(self, own: OwnLease, kv: KeyValue) -> OwnLease | None:
        """The own lease as `kv` shows it; None when another node wrote that.

        Ours is what hangs on our etcd lease or says what we say. A key without an etcd lease and without
        backend data, for our address, is an operator's reservation for us.
        """
        entry = entry_of(kv, len(self._prefix.encode()))
        if not isinstance(entry, Entry) or self._attrs is None:
            return None
        same = entry.lease.attrs == self._attrs
        if not (same or entry.etcd_lease in self._grants or (not entry.etcd_lease and is_bare(entry, self._attrs))):
            return None
        self._remember(entry.lease.id, entry.etcd_lease)
        return OwnLease(lease=entry.lease, expires=own.expires, token=Proof(entry.etcd_lease, entry.mod_revision))

    def _refuse_rivals(self, chooser: Chooser, listing: Listing) -> None:
        entries = {entry.lease.id: entry for entry in listing.entries}
        self._rivals &= {name for name, entry in entries.items() if not self.is_own(entry)}
        lost = chooser.owned(entries[name].lease for name in self._rivals)
        if lost:
            address = chooser.attrs.public_ip or chooser.attrs.public_ipv6
            raise Unavailable(
                Problem(
                    code="IFACE-001",
                    where=f"public IP {address}",
                    seen=f"another node publishes it too, and has taken our lease {lost[0].id} ({who(lost[0])})",
                    expected="an address of this node alone",
                    hint="Choose another with --public-ip or --iface on one of the two nodes",
                )
            )

    async def _reuse(self, entry: Entry, attrs: LeaseAttrs, *, stale: list[Entry], recorded: bool) -> OwnLease | None:
        """Returns None when someone changed the key."""
        etcd_lease, ttl = entry.etcd_lease, 0
        if etcd_lease:
            ttl = await self.renew(etcd_lease) if recorded else 0
            if ttl < LEASE_TTL:
                etcd_lease, ttl = await self._grant()
        expires = self.now() + ttl if etcd_lease else None
        self._attrs = attrs
        if etcd_lease == entry.etcd_lease and entry.lease.attrs == attrs and not stale:
            self._remember(entry.lease.id, etcd_lease)
            return OwnLease(lease=entry.lease, expires=expires, token=Proof(etcd_lease, entry.mod_revision))
        own = await self._swap(entry.lease, attrs, etcd_lease, entry.mod_revision, stale=stale)
        if own is None and etcd_lease not in (0, entry.etcd_lease):
            await self._revoke(etcd_lease)
        return None if own is None else replace(own, expires=expires)

    async def _create(self, choice: Choice, attrs: LeaseAttrs, *, stale: list[Entry], since: int) -> OwnLease | None:
        """Returns None when another node was faster, with this subnet or one that overlaps it."""
        lease = Lease(id=lease_id(choice.v4, choice.v6), v4=choice.v4, v6=choice.v6, attrs=attrs)
        etcd_lease, ttl = await self._grant()
        expires = self.now() + ttl
        self._attrs = attrs
        # Keys that share a subnet need not be equal (a dual-stack key, another prefix length), so the answer also
        # brings what was created since our list. Of two that overlap, the later one sees the other, and yields.
        prefix = self._prefix.encode()
        newer = RangeRequest(key=prefix, range_end=prefix_end(prefix), min_create_revision=since + 1, keys_only=True)
        reply = await self._write(lease, etcd_lease, 0, stale=stale, extra=[RequestOp(request_range=newer)])
        if reply.succeeded:
            others = [id_of(kv, len(prefix)) for kv in reply.responses[-1].response_range.kvs]
            if not any(overlaps(other, lease) for other in others if other != lease.id):
                revision = reply.header.revision
                made = replace(lease, created=revision)
                self._remember(lease.id, etcd_lease)
                return OwnLease(lease=made, expires=expires, token=Proof(etcd_lease, revision))
        await self._revoke(etcd_lease)  # takes our key along, if it was written
        return None

    async def _swap(
        self, lease: Lease, attrs: LeaseAttrs, etcd_lease: int, seen: int, *, stale: list[Entry] | tuple[()]
    ) -> OwnLease | None:
        changed = replace(lease, attrs=attrs)
        reply = await self._write(changed, etcd_lease, seen, stale=stale)
        if not reply.succeeded:
            return None
        self._remember(lease.id, etcd_lease)
        return OwnLease(lease=changed, expires=None, token=Proof(etcd_lease, reply.header.revision))

    async def _write(
        self,
        lease: Lease,
        etcd_lease: int,
        seen: int,
        *,
        stale: list[Entry] | tuple[()],
        extra: list[RequestOp] | tuple[()] = (),
    ) -> TxnResponse:
        """`seen` is the key's mod_revision, 0 for absent; `stale` keys are dropped on the same terms."""
        key = self._key(lease.id)
        request = TxnRequest(
            compare=[_still(key, seen), *(_still(self._key(entry.lease.id), entry.mod_revision) for entry in stale)],
            success=[
                *(RequestOp(request_delete_range=DeleteRangeRequest(key=self._key(old.lease.id))) for old in stale),
                RequestOp(request_put=PutRequest(key=key, value=encode_attrs(lease.attrs), lease=etcd_lease)),
                *extra,
            ],
        )
        return await self._client.call(TXN, request, repeat=False)

    async def _grant(self) -> tuple[int, int]:
        request = LeaseGrantRequest(TTL=LEASE_TTL)
        reply = await self._client.call(GRANT, request)
        self._grants.add(reply.ID)
        return reply.ID, reply.TTL

    async def _revoke(self, etcd_lease: int) -> None:
        await self._client.call(REVOKE, LeaseRevokeRequest(ID=etcd_lease))
        self._grants.discard(etcd_lease)

    def _remember(self, name: str, etcd_lease: int) -> None:
        self.name = name
        self._reserved = "" if etcd_lease else name
        if etcd_lease:
            self._grants.add(etcd_lease)

    def _key(self, name: str) -> bytes:
        return (self._prefix + name).encode()


def _version(entry: Entry) -> tuple[str, int, int]:
    """Identifies this version of a key among all versions, in every history of the store."""
    return entry.lease.id, entry.etcd_lease, entry.mod_revision


def _still(key: bytes, mod_revision: int) -> Compare:
    return Compare(
        result=Compare.CompareResult.EQUAL, target=Compare.CompareTarget.MOD, key=key, mod_revision=mod_revision
    )


def _warn_when_scarce(netconf: NetConf, listing: Listing) -> None:
    taken = [net for lease in listing.leases for net in lease.subnets]
    counts = []
    if netconf.v4 is not None:
        counts.append(room(netconf.v4, taken))
    if netconf.v6 is not None:
        counts.append(room(netconf.v6, taken))
    free, total = min(counts, default=(1, 1))
    if free * 5 <= total:
        log.warning("LEASE-003 %d of %d node subnets are taken: room for %d more nodes", total - free, total, free)


def overlaps(name: str, lease: Lease) -> bool:
    try:
        others = parse_id(name)
    except PeerError:
        return False
    return any(
        other is not None and other.version == net.version and other.overlaps(net)
        for other in others
        for net in lease.subnets
    )


def is_bare(entry: Entry, attrs: LeaseAttrs) -> bool:
    """As an operator's reservation is: our address and nothing more."""
    theirs = entry.lease.attrs
    address = theirs.public_ip == attrs.public_ip and theirs.public_ipv6 in (None, attrs.public_ipv6)
    return address and theirs.data is None and theirs.data_v6 is None


def who(lease: Lease) -> str:
    """What a lease says of its node besides the address, for a message."""
    data = "" if lease.attrs.data is None else f", data {json.dumps(lease.attrs.data):.80}"
    return f"backend {lease.attrs.backend or 'unknown'}{data}"
