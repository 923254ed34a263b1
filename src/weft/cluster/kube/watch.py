"""The directory of leases in the API: everything once, then changes.

There is one watch for all nodes, ours among them. What changes nothing of a lease, as a node's heartbeats, ends here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NoReturn

from weft.cluster.kube.access import Timing
from weft.cluster.kube.client import Client
from weft.cluster.kube.collection import Collection, is_older
from weft.cluster.kube.follow import Follower
from weft.cluster.kube.nodes import Listing, list_nodes, nodes_of
from weft.cluster.kube.own import KubeTenure
from weft.cluster.store import Take
from weft.model.cluster import Changed, Listed, Lost, Malformed, Token, Word, changed
from weft.model.errors import Unavailable
from weft.model.lease import Lease
from weft.model.value import replace
from weft.wire.kube import Node, lease_of
from weft.wire.kubelist import Happened

# Of an API that does not answer, and of files without which it is not asked: another program may renew them.
_NOT_REFUSED: Final = ("STORE-001", "FLAG-001")
# While a node waits for its podCIDR it asks for its own object only, and looks at all others this often.
_LOOK_SECONDS: Final = 30.0


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
        self._client = client
        self._nodes = nodes_of(prefix)
        self._own = own
        self._now = now
        self._looked: tuple[float, Listing] | None = None
        self._follower = Follower(client, self._nodes, timing=timing, now=now, jitter=jitter)

    @property
    def heard(self) -> float | None:
        return self._follower.heard

    async def list(self) -> Listing:
        """While there is no lease, all but our own as they were half a minute ago at most."""
        if self._looked is not None and not self._own.has_lease and self._now() - self._looked[0] <= _LOOK_SECONDS:
            return replace(self._looked[1], own=await self._own.read())
        self._looked = self._now(), await list_nodes(self._client, self._nodes, await self._own.name())
        return self._looked[1]

    def continues(self, mark: Token, made: Mapping[str, int], listed: Listed) -> bool:  # noqa: ARG002 - a list is whole
        """A list is not older than the last."""
        known, now = mark, listed.mark or ()
        return len(known) != 1 or len(now) != 1 or not is_older(str(now[0]), str(known[0]))

    async def watch(self, take: Take, listing: Listing | None = None) -> NoReturn:
        """A given `listing` is the first and is not read again."""
        self._looked = None
        telling, version = _Telling(self._client, self._nodes, self._own, take), ""
        if listing is not None:
            version = await telling.listed(listing)
            listing = None  # it may be long, and this goes on as long as the node runs
        await self._follower.run(telling, version)


class _Telling:
    """Makes of nodes the leases that `take` gets."""

    def __init__(self, client: Client, nodes: Collection[Node], own: KubeTenure, take: Take) -> None:
        self._client = client
        self._nodes = nodes
        self._own = own
        self._take = take
        self._known: dict[str, Lease | Malformed] = {}

    async def list(self) -> str:
        return await self.listed(await list_nodes(self._client, self._nodes, self._own.known_name))

    async def listed(self, listing: Listing) -> str:
        mine = self._own.known_name
        others = tuple(lease for lease in listing.leases if lease.id != mine)
        malformed = tuple(entry for entry in listing.malformed if entry.id != mine)
        self._known = {lease.id: lease for lease in others}
        self._known.update((entry.id, entry) for entry in malformed)
        self._own.seen(listing.own)
        own = tuple(lease for lease in listing.leases if lease.id == mine)
        await self._take(Listed(leases=others, own=own, malformed=malformed, mark=listing.mark))
        return listing.version

    async def changed(self, events: Sequence[Happened[Node]], version: str) -> bool:
        words = list(self._words(events))
        if words:
            await self._take(changed(words, (version,)))
        return bool(words)

    async def lost(self, error: Unavailable) -> None:
        await self._take(Lost(reason=str(error), refused=error.problems[0].code not in _NOT_REFUSED))

    async def back(self, version: str) -> None:
        await self._take(Changed(mark=(version,)))

    def _words(self, events: Sequence[Happened[Node]]) -> Iterator[tuple[str, Word]]:
        for event in events:
            node = event.item
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
