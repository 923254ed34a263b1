"""The directory of leases in the API: everything once, then changes, whatever happens to the API meanwhile.

There is one watch for all nodes, ours among them. What changes nothing of a lease, as a node's heartbeats, ends here.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Final, NoReturn

from weft.cluster.kube.access import Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.nodes import NODES, Listing, is_older, list_nodes, version_now
from weft.cluster.kube.own import KubeTenure
from weft.cluster.kube.problems import BusyError, ExpiredError, of_status, reading
from weft.cluster.pace import Pace
from weft.cluster.store import Take
from weft.model.cluster import Changed, Listed, Lost, Malformed, Token, Word, changed
from weft.model.errors import Unavailable
from weft.model.lease import Lease
from weft.model.value import replace
from weft.wire.kube import Happened, lease_of, read_event

# Seconds after which the API ends a watch, so that its servers share the load again: this long to twice this long.
_LASTS: Final = 300
_GONE: Final = 410
# Seconds after heartbeats alone, in which more of them gather: 500 a second are taken in 40 reads, not in 1,500.
_QUIET: Final = 0.02
_REST_MOST: Final = 60.0  # whatever a server asks for
# Seconds between two lists while the API forgets each list at once: this long, then twice as long each time.
_LISTS: Final = 0.2
_LISTS_MOST: Final = 60.0
# Of an API that does not answer, and of files without which it is not asked: another program may renew them.
_NOT_REFUSED: Final = ("STORE-001", "FLAG-001")
# While a node waits for its podCIDR it asks for its own object only, and looks at all others this often.
_LOOK_SECONDS: Final = 30.0
_LOOKS: Final = 10  # at a watch that is silent, between two questions beside it


class KubeDirectory:
    """`own` knows which node is this one, and takes what is heard of it."""

    def __init__(
        self,
        client: Client,
        prefix: str,
        own: KubeTenure,
        *,
        timing: Timing,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.heard: float | None = None
        self._client = client
        self._prefix = prefix
        self._own = own
        self._timing = timing
        self._now = now
        self._jitter = jitter
        self._looked: tuple[float, Listing] | None = None
        self._version = ""  # empty: list first
        self._known: dict[str, Lease | Malformed] = {}
        self._lists = Pace(_LISTS, _LISTS_MOST, jitter)
        self._pace = Pace(timing.backoff, timing.backoff_most, jitter)
        self._lost = False
        self._broken = False
        self._silent = False  # the API gave no sign of life beside a watch that was silent

    async def list(self) -> Listing:
        """While there is no lease, all but our own as they were half a minute ago at most."""
        if self._looked is not None and not self._own.has_lease and self._now() - self._looked[0] <= _LOOK_SECONDS:
            return replace(self._looked[1], own=await self._own.read())
        self._looked = self._now(), await list_nodes(self._client, self._prefix, await self._own.name())
        return self._looked[1]

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:  # noqa: ARG002 - a list is whole
        """A list is not older than the last."""
        known, now = mark, listed.mark or ()
        return len(known) != 1 or len(now) != 1 or not is_older(str(now[0]), str(known[0]))

    async def watch(self, take: Take, listing: Listing | None = None) -> NoReturn:
        """One watch at a time; a given `listing` is the first and is not read again."""
        self._version, self._lost, self._silent = "", False, False
        self._looked = None
        if listing is not None:
            await self._listed(listing, take)
            listing = None  # it may be long, and this goes on as long as the node runs
        while True:
            try:
                if self._version and self._broken:
                    await self._check_history()
                if not self._version:
                    name = self._own.known_name
                    await self._listed(await list_nodes(self._client, self._prefix, name), take)
                if await self._follow(take):
                    continue  # from where it was: nothing has failed
            except ExpiredError:
                self._version = ""  # what happened meanwhile is not told any more
                await self._lists.wait()
            except Unavailable as error:
                # One break may be a server's restart: the next one often answers at once. Not after a silence.
                if self._pace.failures or self._silent or not self._version:
                    self._lost = True
                    await take(Lost(reason=str(error), refused=error.problems[0].code not in _NOT_REFUSED))
                self._broken = True
                if isinstance(error, BusyError):
                    await asyncio.sleep(min(error.seconds, _REST_MOST))
            await self._pace.wait()

    async def _check_history(self) -> None:
        """List again if the API knows less than it did, as after a restored snapshot: such a watch would be silent."""
        if is_older(await version_now(self._client, self._prefix), self._version):
            raise ExpiredError
        self._broken = False

    async def _follow(self, take: Take) -> bool:
        """Until the API ends the watch; True if it was silent for too long."""
        lasts = int(_LASTS * (1 + self._jitter()))
        query = {"allowWatchBookmarks": "true", "resourceVersion": self._version}
        look = self._timing.quiet / _LOOKS
        async with self._client.watch(NODES, lasts=lasts, **query) as link, aclosing(link.lines(look)) as batches:
            silent = 0
            self._silent = False
            self._answered()
            self._hear()
            async for lines in batches:
                self._answered()
                if lines:
                    self._hear()
                told = await self._take(lines, take)
                if lines:
                    silent = 0
                    if not told:
                        await link.rest(_QUIET)
                    continue
                silent += 1
                if silent * look >= self._timing.held:
                    return True
                if silent % _LOOKS == 0:
                    await self._ask_for_life()
        return False

    async def _ask_for_life(self) -> None:
        """Something small, beside a watch that is silent. Raises what `_check_history` does."""
        self._silent = True
        with suppress(BusyError):  # that is an answer
            await self._check_history()
        self._silent = False
        self._hear()

    def _answered(self) -> None:
        self._pace.answered()
        self._lists.answered()

    def _hear(self) -> None:
        self.heard = self._now()

    async def _listed(self, listing: Listing, take: Take) -> None:
        self._hear()
        mine = self._own.known_name
        self._version = listing.version
        self._broken = self._lost = False
        others = tuple(lease for lease in listing.leases if lease.id != mine)
        malformed = tuple(entry for entry in listing.malformed if entry.id != mine)
        self._known = {lease.id: lease for lease in others}
        self._known.update((entry.id, entry) for entry in malformed)
        self._own.seen(listing.own)
        own = tuple(lease for lease in listing.leases if lease.id == mine)
        await take(Listed(leases=others, own=own, malformed=malformed, mark=listing.mark))

    async def _take(self, lines: Iterable[bytes], take: Take) -> bool:
        """Up to a line that ends the watch by an error; returns whether anything was said."""
        words: list[tuple[str, Word]] = []
        try:
            with reading(self._client.where):
                words.extend(self._words(self._read(lines)))
        finally:
            if words:
                self._lost = False
                await take(changed(words, (self._version,)))
        if self._lost:  # until now it might have been anything that answers
            self._lost = False
            await take(Changed(mark=(self._version,)))
        return bool(words)

    def _read(self, lines: Iterable[bytes]) -> Iterator[Happened]:
        for line in lines:
            event = read_event(line, self._prefix)
            if event.kind == "ERROR":
                if event.code == _GONE:
                    raise ExpiredError
                raise of_status(self._client.where, event.code, event.reason, event.message)
            self._version = event.version
            yield event

    def _words(self, events: Iterable[Happened]) -> Iterator[tuple[str, Word]]:
        for event in events:
            node = event.node
            if node is None:
                continue
            found = None if event.kind == "DELETED" else lease_of(node)
            if node.name == self._own.known_name:
                self._own.seen(None if event.kind == "DELETED" else node)
            elif found is None:
                if self._known.pop(node.name, None) is not None:
                    yield node.name, None
            elif found != self._known.get(node.name):
                self._known[node.name] = found
                yield node.name, found
