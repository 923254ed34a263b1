"""The directory of leases in etcd: everything once, then changes, whatever happens to the store meanwhile.

Survives restarts, compaction, restored snapshots, refused users and dead endpoints: it says `Lost` and goes on
trying. Nothing is queued here: the next answer is read when the last one was taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NoReturn

from weft.cluster.etcd.access import Timing
from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.follow import OtherHistoryError, follow
from weft.cluster.etcd.link import RANGE
from weft.cluster.etcd.listing import decode, entry_of, id_of, list_leases, prefix_end
from weft.cluster.etcd.own import OwnKey
from weft.cluster.etcd.problems import TooLargeError
from weft.cluster.etcd.rpc.etcd_pb2 import Event, RangeRequest, WatchResponse
from weft.cluster.etcd.values import Entry, Listing, Mark, mark_in
from weft.cluster.pace import Pace
from weft.cluster.store import Take
from weft.model.cluster import Listed, Lost, Malformed, Token, Word, changed
from weft.model.errors import ConfigError, Unavailable
from weft.model.lease import Lease

# Keys that are compared after a break. Two histories that differ do so in the keys that were changed last.
_NEWEST: Final = 100
_BROKEN: Final = -1


def continues(mark: Token, made: Mapping[str, int], listed: Listed) -> bool:
    """Tell whether a list can come from the history in which we knew the leases `made` at `mark`.

    Revisions that went back show that it cannot. Where new writes have made up for the lost ones, so may the leases:
    at the revision that we know nothing can be missing, and what we know cannot have been made again before it.
    """
    known, now = mark_in(mark), mark_in(listed.mark or ())
    if known is None or now is None:
        return True
    if not known.precedes(now):
        return False
    there = {lease.id: lease.created for lease in (*listed.leases, *listed.own)}
    missing = made.keys() - there.keys() - {entry.id for entry in listed.malformed}
    if now.revision == known.revision and missing:
        return False
    return all(there[name] > known.revision or there[name] == made[name] for name in made.keys() & there.keys())


def agree(known: Mapping[str, Entry | Malformed], found: Mapping[str, Entry | Malformed], *, since: int) -> bool:
    """Tell whether all that is `found` is known, and nothing else that was changed behind revision `since`."""
    changed_since = (name for name, entry in known.items() if isinstance(entry, Entry) and entry.mod_revision > since)
    return all(known.get(name) == entry for name, entry in found.items()) and found.keys() >= {*changed_since}


class EtcdDirectory:
    """`own` knows this node's key, which is in no event, and hears when it changes."""

    continues = staticmethod(continues)

    def __init__(
        self,
        client: Client,
        prefix: str,
        own: OwnKey,
        *,
        timing: Timing,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.heard: float | None = None
        self._client = client
        self._prefix = prefix
        self._key = prefix.encode()
        self._own = own
        self._timing = timing
        self._now = now
        self._mark: Mark | None = None
        self._told: Mark | None = None  # the mark of the list, moved on by what was told since
        self._breaks = 0  # the client's, when the list was begun; `_BROKEN` after a watch has ended
        self._known: dict[str, Entry | Malformed] = {}  # all keys at the mark
        self._hidden: set[str] = set()  # which of these are this node's own, so that nobody was told of them
        self._pace = Pace(timing.backoff, timing.backoff_most, jitter)
        self._lost = False

    async def list(self) -> Listing:
        self._breaks = self._client.breaks
        return await list_leases(self._client, self._prefix)

    async def watch(self, take: Take, listing: Listing | None = None) -> NoReturn:
        """One watch at a time; a given `listing` is the first and is not read again."""
        self._mark, self._lost = None, False
        if listing is not None:
            await self._listed(listing, take)
            listing = None  # it may be long, and this goes on as long as the node runs
        while True:
            try:
                if self._mark is None:
                    await self._listed(await self.list(), take)
                await self._follow(take)
            except (CompactedError, OtherHistoryError, TooLargeError):
                self._mark = None  # what happened meanwhile is not told any more, or never happened
            except (Unavailable, ConfigError) as error:
                self._breaks = _BROKEN
                # One break may be a leader's change or a member's restart: the next endpoint often answers at once.
                if self._pace.failures or self._mark is None:
                    self._lost = True
                    refused = isinstance(error, ConfigError) and error.problems[0].code != "FLAG-001"  # files of ours
                    await take(Lost(reason=str(error), refused=refused))
            await self._pace.wait()

    async def _check_history(self, mark: Mark) -> None:
        """Raise `OtherHistoryError` or `CompactedError` unless etcd goes on from `mark`, where it had what we know.

        Called with a watch that stands: a break after the answer ends it. Neither revision nor term tells a restored
        snapshot: its term begins again, where ours may be, and new writes may have made up for the lost ones.
        And of what was deleted at the revision of a compaction, a watch from there on tells nothing and is not refused.
        """
        request = RangeRequest(
            key=self._key,
            range_end=prefix_end(self._key),
            revision=mark.revision,
            limit=_NEWEST,
            sort_order=RangeRequest.DESCEND,
            sort_target=RangeRequest.MOD,
        )
        reply = await self._client.call(RANGE, request)
        entries, malformed = list[Entry](), list[Malformed]()
        decode(reply.kvs, len(self._key), entries, malformed)
        found = {entry.lease.id: entry for entry in entries} | {entry.id: entry for entry in malformed}
        since = min((kv.mod_revision for kv in reply.kvs), default=0)
        if reply.count != len(self._known) or not agree(self._known, found, since=since):
            raise OtherHistoryError

    async def _follow(self, take: Take) -> NoReturn:
        assert self._mark is not None  # noqa: S101 listed before
        end, said = prefix_end(self._key), partial(self._take, take)
        timing, heard = self._timing, self._hear
        await follow(self._client, self._key, end, after=self._mark, timing=timing, take=said, heard=heard)

    def _hear(self) -> None:
        self.heard = self._now()

    async def _listed(self, listing: Listing, take: Take) -> None:
        self._hear()
        leases, own = list[Lease](), list[Lease]()
        for entry in listing.entries:
            (own if self._own.is_own(entry) else leases).append(entry.lease)
        self._known = {entry.lease.id: entry for entry in listing.entries}
        self._known |= {entry.id: entry for entry in listing.malformed}
        self._hidden = {lease.id for lease in own}
        self._mark = self._told = listing.mark
        self._lost = False
        await take(Listed(leases=tuple(leases), own=tuple(own), malformed=listing.malformed, mark=listing.mark))

    async def _take(self, take: Take, answer: WatchResponse) -> None:
        assert self._mark is not None  # noqa: S101 listed before
        assert self._told is not None  # noqa: S101 likewise
        self._pace.answered()
        words: list[tuple[str, Word]] = []
        if answer.events:
            # The header's revision may be ahead of the events that were sent: only they say how far we are.
            # Of a fragment's last revision, there may be more in the next.
            revision = answer.events[-1].kv.mod_revision - answer.fragment
            words.extend(self._words(answer.events))
        elif answer.created:
            if self._breaks != self._client.breaks:
                await self._check_history(self._mark)
            revision = self._mark.revision
            self._own.touched.set()  # a watch does not tell what was deleted and compacted before
        else:
            revision = answer.header.revision  # a notice of progress: nothing happened up to here
        back, self._lost = self._lost, False
        self._mark = self._mark._replace(revision=revision, term=answer.header.raft_term)
        if words or back:
            self._told = self._told._replace(revision=max(revision, self._told.revision))
            await take(changed(words, self._told))

    def _words(self, events: Iterable[Event]) -> Iterator[tuple[str, Word]]:
        skip = len(self._key)
        for event in events:
            name = id_of(event.kv, skip)
            if name == self._own.name:
                self._own.touched.set()
            shown = name in self._known and name not in self._hidden
            self._hidden.discard(name)
            if event.type == Event.EventType.DELETE:
                self._known.pop(name, None)
                if shown:
                    yield name, None
                continue
            self._known[name] = entry = entry_of(event.kv, skip)
            if isinstance(entry, Malformed):
                yield name, entry
            elif not self._own.is_own(entry):
                yield name, entry.lease
            else:
                self._hidden.add(name)
                if shown:  # as a peer's, before we took it
                    yield name, None
