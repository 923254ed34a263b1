"""Reads all leases of a network: in pages of one revision, never a request per lease."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.link import LARGEST, RANGE
from weft.cluster.etcd.problems import TooLargeError
from weft.cluster.etcd.rpc.etcd_pb2 import KeyValue, RangeRequest, ResponseHeader
from weft.cluster.etcd.values import Entry, Listing, Mark
from weft.model.cluster import Malformed
from weft.model.errors import PeerError
from weft.model.net import Net
from weft.wire.etcd import decode_lease, parse_id, short_id
from weft.wire.leasedata import too_long

# A page is decoded at a stretch, so its size bounds how long the event loop waits: about 5 ms.
PAGE: Final = 500
# How many keys are asked for is known before, how long their values are is not: the first page is small, and each
# one after it as large as those before it make this many bytes likely.
_FIRST_PAGE: Final = 16
_PAGE_BYTES: Final = 1 << 20
_SMALLER: Final = 4  # a page that is too large to be received is asked for again, with this part of the keys


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys that start with `prefix` (which ends with `/`)."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def mark_of(header: ResponseHeader) -> Mark:
    return Mark(revision=header.revision, cluster=header.cluster_id, term=header.raft_term)


async def list_leases(client: Client, prefix: str) -> Listing:
    """List what lies below `prefix` (`…/subnets/`); begins again when a compaction comes between two pages."""
    while True:
        with suppress(CompactedError):
            return await _pages(client, prefix.encode())


async def _pages(client: Client, prefix: bytes) -> Listing:
    entries: list[Entry] = []
    malformed: list[Malformed] = []
    start, end = prefix, prefix_end(prefix)
    mark: Mark | None = None
    limit = min(_FIRST_PAGE, PAGE)
    while True:
        request = RangeRequest(key=start, range_end=end, limit=limit, revision=0 if mark is None else mark.revision)
        try:
            reply = await client.call(RANGE, request)
        except TooLargeError:
            if limit > 1:
                limit = max(1, limit // _SMALLER)
                continue
            # One value alone is too large: etcd takes such if it is configured to. Its key can still be listed.
            request.keys_only = True
            reply = await client.call(RANGE, request)
            if mark is None:  # another key may be the first by now: look at this revision
                mark = mark_of(reply.header)
                continue
            malformed += (_too_large(kv, len(prefix)) for kv in reply.kvs)
        else:
            mark = mark or mark_of(reply.header)
            decode(reply.kvs, len(prefix), entries, malformed)
            limit = max(1, min(PAGE, _PAGE_BYTES * len(reply.kvs) // reply.ByteSize()))
        await asyncio.sleep(0)
        if not reply.more:
            return Listing(
                mark=mark, entries=tuple(entries), malformed=tuple(malformed), blocked=tuple(_blocked(malformed))
            )
        start = reply.kvs[-1].key + b"\0"


def decode(kvs: Iterable[KeyValue], skip: int, entries: list[Entry], malformed: list[Malformed]) -> None:
    """`skip` is the length of the keys' common prefix."""
    for kv in kvs:
        entry = entry_of(kv, skip)
        if isinstance(entry, Malformed):
            malformed.append(entry)
        else:
            entries.append(entry)


def entry_of(kv: KeyValue, skip: int) -> Entry | Malformed:
    name = id_of(kv, skip)
    try:
        return Entry(decode_lease(name, kv.value, kv.create_revision), kv.lease, kv.mod_revision)
    except PeerError as error:
        return Malformed(id=name, problem=error.problems[0], created=kv.create_revision)


def _too_large(kv: KeyValue, skip: int) -> Malformed:
    name = id_of(kv, skip)
    problem = too_long(name, f"more than {LARGEST} bytes").problems[0]
    return Malformed(id=name, problem=problem, created=kv.create_revision)


def id_of(kv: KeyValue, skip: int) -> str:
    """The key without its prefix. Bytes that are no text are shown as escapes."""
    return short_id(kv.key[skip:].decode(errors="backslashreplace"))


def _blocked(malformed: Iterable[Malformed]) -> Iterable[Net]:
    """The subnets of keys whose values cannot be read: they belong to some node."""
    for entry in malformed:
        try:
            subnets = parse_id(entry.id)
        except PeerError:
            continue
        yield from (net for net in subnets if net is not None)
