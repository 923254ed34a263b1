"""Feeds the daemon what the store says: everything once, then changes, whatever happens to the store meanwhile.

Survives restarts, compaction, restored snapshots, refused users and dead endpoints: it says `Lost` and goes on
trying. A consumer that is slow gets fewer, larger events: the newest word for each lease, nothing twice.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

from weft.cluster.etcd.access import Timing
from weft.cluster.etcd.client import Client, CompactedError
from weft.cluster.etcd.follow import OtherHistoryError, follow
from weft.cluster.etcd.listing import entry_of, id_of, list_leases, prefix_end
from weft.cluster.etcd.problems import TooLargeError
from weft.cluster.etcd.rpc.etcd_pb2 import Event, WatchResponse
from weft.cluster.etcd.values import Entry, Listing, Mark
from weft.cluster.mailbox import Mailbox, Word
from weft.cluster.pace import Pace
from weft.model.cluster import Listed, Malformed, StoreEvent
from weft.model.errors import ConfigError, Unavailable
from weft.model.lease import Lease


class Watcher:
    """Watches all leases below `prefix`. `is_own` tells this node's own, which is never in an event.

    `heard` is called whenever etcd says anything.
    """

    def __init__(
        self,
        client: Client,
        prefix: str,
        *,
        timing: Timing,
        jitter: Callable[[], float],
        is_own: Callable[[Entry], bool],
        heard: Callable[[], None],
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._key = prefix.encode()
        self._timing = timing
        self._is_own = is_own
        self._heard = heard
        self._mail = Mailbox()
        self._mark: Mark | None = None
        self._told: Mark | None = None  # the mark of the list, moved on by what was told since
        self._shown: set[str] = set()
        self._pace = Pace(timing.backoff, timing.backoff_most, jitter)
        self._lost = False

    def events(self, listing: Listing | None) -> AsyncGenerator[StoreEvent, None]:
        """All events from now on; a given `listing` is the first and is not read again."""
        if listing is not None:
            self._listed(listing)
        return self._mail.deliver(self._pump)

    async def _pump(self) -> None:
        while True:
            try:
                if self._mark is None:
                    self._listed(await list_leases(self._client, self._prefix))
                await self._follow()
            except (CompactedError, OtherHistoryError, TooLargeError):
                self._mark = None  # what happened meanwhile is not told any more, or never happened
            except (Unavailable, ConfigError) as error:
                # One break may be a leader's change or a member's restart: the next endpoint often answers at once.
                if self._pace.failures or self._mark is None:
                    self._lost = True
                    refused = isinstance(error, ConfigError) and error.problems[0].code != "FLAG-001"  # files of ours
                    self._mail.lost(str(error), refused=refused)
            await self._pace.wait()

    async def _follow(self) -> None:
        assert self._mark is not None  # noqa: S101 listed before
        end = prefix_end(self._key)
        timing, take, heard = self._timing, self._take, self._heard
        await follow(self._client, self._key, end, after=self._mark, timing=timing, take=take, heard=heard)

    def _listed(self, listing: Listing) -> None:
        self._heard()
        leases, own = list[Lease](), list[Lease]()
        for entry in listing.entries:
            (own if self._is_own(entry) else leases).append(entry.lease)
        self._mark = self._told = listing.mark
        self._lost = False
        self._shown = {lease.id for lease in leases} | {entry.id for entry in listing.malformed}
        self._mail.listed(Listed(leases=tuple(leases), own=tuple(own), malformed=listing.malformed, mark=listing.mark))

    def _take(self, answer: WatchResponse) -> None:
        assert self._mark is not None  # noqa: S101 listed before
        self._pace.answered()
        if answer.events:
            # The header's revision may be ahead of the events that were sent: only they say how far we are.
            # Of a fragment's last revision, there may be more in the next.
            revision = answer.events[-1].kv.mod_revision - answer.fragment
            words = list(self._words(answer.events))
            if words or self._lost:
                self._tell(words, revision)
        elif answer.created:
            revision = self._mark.revision
            if self._lost:
                self._tell((), revision)
        else:
            revision = answer.header.revision  # a notice of progress: nothing happened up to here
        self._lost = False
        self._mark = self._mark._replace(revision=revision, term=answer.header.raft_term)

    def _tell(self, words: Iterable[tuple[str, Word]], revision: int) -> None:
        assert self._told is not None  # noqa: S101 as above
        self._told = self._told._replace(revision=max(revision, self._told.revision))
        self._mail.changed(words, self._told)

    def _words(self, events: Iterable[Event]) -> Iterator[tuple[str, Word]]:
        skip = len(self._key)
        for event in events:
            name = id_of(event.kv, skip)
            entry = None if event.type == Event.EventType.DELETE else entry_of(event.kv, skip)
            if isinstance(entry, Malformed):
                self._shown.add(name)
                yield name, entry
            elif entry is not None and not self._is_own(entry):
                self._shown.add(name)
                yield name, entry.lease
            elif name in self._shown:  # deleted, or shown as a peer's before we took it
                self._shown.discard(name)
                yield name, None
