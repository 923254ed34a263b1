"""How our own WireGuard looks from outside: where neighbours see it, and behind which NAT that says we are."""

from collections import Counter
from contextlib import suppress

from weft.mesh.links import Link
from weft.mesh.recent import Recent
from weft.mesh.state import State
from weft.model.mesh.records import MANY_PORTS, MAX_ENDPOINTS, NO_NAT, ONE_PORT
from weft.model.net import Endpoint, Ip, is_reachable

_MOST = 2  # addresses that others have seen, in our record


def reachable(texts: tuple[str, ...]) -> list[Endpoint]:
    """Those that are addresses at which another node may be."""
    found = []
    for text in texts:
        with suppress(ValueError):
            endpoint = Endpoint.parse(text)
            if is_reachable(endpoint.ip):
                found.append(endpoint)
    return found


class Outside:
    """`tunnels` and `nat` are for our record, `hosts` are the NAT's addresses."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._own: tuple[str, ...] = ()
        self._before: tuple[str, ...] = ()  # what our record of an earlier run said, if that was behind a NAT
        self._words = Recent[bytes, Endpoint](MAX_ENDPOINTS * MAX_ENDPOINTS)  # by who has seen us there
        self.tunnels: tuple[str, ...] = ()
        self.nat = NO_NAT
        self.hosts = frozenset[Ip]()

    def own(self, tunnels: tuple[str, ...]) -> None:
        """Our own addresses; with others we are elsewhere, and what was seen before says nothing."""
        if tunnels != self._own:
            self._own = tunnels
            self._words.clear()
        self._reckon()

    def heard(self, link: Link, text: str) -> None:
        for endpoint in reachable((text,)):
            self._words[link.key] = endpoint
            self._reckon()

    def _reckon(self) -> None:
        before = (self.tunnels, self.nat)
        links = self._state.links
        # The last words of neighbours that we had are better than none.
        words = [word for key, word in self._words.items() if links.to(key)] or [*self._words.values()]
        own = self._own[: MAX_ENDPOINTS - _MOST]
        if not words and own and {*own} <= {*self._before}:
            return
        counts = Counter(word for word in words if str(word) not in self._own)
        # One alone may be wrong, or lie; but it may be the only one outside, if nobody sees a public address of ours.
        public = {word.ip.version for word in words if str(word) in self._own and word.ip.is_global}
        seen = {word: count for word, count in counts.most_common() if count > 1 or word.ip.version not in public}
        likely = [word for word, count in seen.items() if count > 1] or sorted(seen, key=str)
        self.hosts = frozenset(word.ip for word in seen)
        many = len(self.hosts) < len(seen)
        if not self._own or not seen:
            self.tunnels, self.nat = self._own, NO_NAT
        elif many:  # where one has seen us is no use to another, but tells those that are behind the same NAT
            self.tunnels, self.nat = (*own, str(likely[0])), MANY_PORTS
        else:
            self.tunnels, self.nat = (*map(str, likely[:_MOST]), *own), ONE_PORT
        if before != (self.tunnels, self.nat):
            self._state.stale = True
            for key in self._state.known.members:
                self._state.mark(key)  # where we look for it may be another place

    def begin(self) -> None:
        """Take what our last record says, until we know our addresses and somebody has seen us."""
        old = self._state.known.members.get(self._state.me)
        if old is not None and old.nat:
            seen = old.tunnels[:1] if old.nat == ONE_PORT else old.tunnels[-1:]
            self._before = old.tunnels
            self.tunnels, self.nat = old.tunnels, old.nat
            self.hosts = frozenset(each.ip for each in reachable(seen))
