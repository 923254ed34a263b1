"""Links that are up: one to a peer, each asked for a sign of life, and closed without one.

Two peers that dial each other at once keep the link that the lower key has dialled; of two that one of them has
dialled, the newer. A peer that comes by another run while its old link is up waits until that one has not answered:
else it is a copy of the peer.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from weft.model.mesh.effects import Close, Effect, Send
from weft.model.mesh.messages import Copied, Hello, Message, Ping
from weft.model.mesh.records import MAX_LINKS, peer_id
from weft.model.value import Value, field

PING: Final = 5.0  # seconds of silence before we ask
DEAD: Final = 12.0  # and before we give up
PROOF: Final = 2.0  # for the old link to answer
FOR_NEWCOMERS: Final = 8  # of all links; for peers without any
MAX_HELD: Final = 64  # messages of a link that waits


class Link(Value, frozen=False):
    """`ring` is what the peer belongs to now."""

    number: int
    hello: Hello
    dialled: str | None
    since: float
    heard: float
    ring: bytes | None
    pinged: bool = False
    removed: bool = False  # the peer was: it tells and hears of removals alone
    until: float = inf  # it waits for the old link's answer
    held: list[Message] = field(default_factory=list)

    @property
    def key(self) -> bytes:
        return self.hello.key

    @property
    def id(self) -> str:
        """For people."""
        return peer_id(self.hello.name, self.hello.key)


class Links:
    def __init__(self, me: bytes, out: list[Effect]) -> None:
        self._me = me
        self._out = out
        self._links: dict[int, Link] = {}
        self._by_key: dict[bytes, Link] = {}
        self._waiting: dict[bytes, Link] = {}  # by key, behind an old link
        self.closing: list[Link] = []  # of this call
        self.changes = 0  # rises when a peer gets or loses its link
        self.due = inf

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._by_key.values())

    def get(self, number: int) -> Link | None:
        return self._links.get(number)

    def of(self, ring: bytes | None) -> Iterator[Link]:
        return (link for link in self._by_key.values() if link.ring == ring and not link.removed)

    def to(self, key: bytes) -> Link | None:
        return self._by_key.get(key)

    def full(self, *, newcomer: bool) -> bool:
        return len(self._by_key) >= (MAX_LINKS if newcomer else MAX_LINKS - FOR_NEWCOMERS)

    def up(self, link: Link, now: float) -> bool:
        """Take a new link; not if it loses against another, or waits."""
        self._links[link.number] = link
        old = self._by_key.get(link.key)
        if old and old.hello.run != link.hello.run:
            if before := self._waiting.pop(link.key, None):
                self.close(before, "another link of this peer")
            self._waiting[link.key] = link
            link.until = now + PROOF
            old.heard = min(old.heard, now - PING)  # only an answer from now on counts
            self._ping(old, now)
            self.due = min(self.due, link.until)
            return False
        if old:
            if self._dialler(old) != self._dialler(link) and self._dialler(old) < self._dialler(link):
                self.close(link, "a second link")
                return False
            self.close(old, "a newer link")
        self._take(link, now)
        return True

    def _take(self, link: Link, now: float) -> None:
        self._by_key[link.key] = link
        self.changes += 1
        self.due = min(self.due, now + PING)

    def _dialler(self, link: Link) -> bytes:
        return link.key if link.dialled is None else self._me

    def refuse(self, link: Link, why: str) -> None:
        """Close a new link that was never taken."""
        self._out.append(Close(link=link.number, why=why))

    def close(self, link: Link, why: str) -> None:
        if link.number in self._links and link not in self.closing:
            self._out.append(Close(link=link.number, why=why))
            self.closing.append(link)

    def down(self, number: int) -> Link | None:
        """Forget a link; returns it if it was the one to its peer."""
        link = self._links.pop(number, None)
        if link is None:
            return None
        if self._waiting.get(link.key) is link:
            del self._waiting[link.key]
        if self._by_key.get(link.key) is not link:
            return None
        del self._by_key[link.key]
        self.changes += 1
        return link

    def hear(self, link: Link, message: Message, now: float) -> bool:
        """A sign of life; whether the message counts now."""
        if link.until != inf:
            link.held.append(message)
            if len(link.held) > MAX_HELD:
                self.close(link, "too many messages")
            return False
        link.heard = now
        link.pinged = False
        return self._by_key.get(link.key) is link

    def forgive(self, now: float) -> None:
        """Our own loop was late: what was not read in that time is no silence."""
        for link in self:
            link.heard = max(link.heard, now - PING)
            link.pinged = False

    def tick(self, now: float) -> list[Link]:
        """Close what is dead or a copy's; returns links whose peer has begun again, to be taken."""
        begun = []
        self.due = inf
        for key, waiting in list(self._waiting.items()):
            if waiting.until > now:
                self.due = min(self.due, waiting.until)
                continue
            del self._waiting[key]
            old = self._by_key.get(key)
            if old and old.heard > waiting.until - PROOF - 1e-6:
                self._out.append(Send(link=waiting.number, message=Copied(run=old.hello.run)))
                self._out.append(Send(link=old.number, message=Copied(run=waiting.hello.run)))
                self.close(waiting, "the peer has another link, which answers: one of them is a copy")
            else:
                waiting.until = inf
                begun.append(waiting)
                if old:
                    del self._by_key[key]
                    self.close(old, "the peer has begun again")
        for link in self:
            if link.removed and now >= link.since + DEAD:
                self.close(link, "it has been removed")
            elif now >= link.heard + DEAD:
                self.close(link, f"silent for {DEAD:.0f} s")
            elif now >= link.heard + PING and not link.pinged:
                self._ping(link, now)
            self.due = min(self.due, link.heard + (DEAD if link.pinged else PING))
        return begun

    def _ping(self, link: Link, now: float) -> None:
        link.pinged = True
        self._out.append(Send(link=link.number, message=Ping(number=int(now))))
