"""Which part of a core hears what a neighbour says."""

from collections.abc import Callable
from typing import Final

from weft.mesh.copies import Copies
from weft.mesh.founding import Founding
from weft.mesh.gossip import Gossip
from weft.mesh.links import Link
from weft.mesh.meeting import Meeting
from weft.mesh.outside import Outside
from weft.mesh.questions import Questions
from weft.mesh.reach import Reach
from weft.mesh.state import State
from weft.model.mesh.messages import (
    Buckets,
    Copied,
    Founders,
    Message,
    Offer,
    Ping,
    Pong,
    Pull,
    Records,
    Redirect,
    Root,
    Routed,
    Seen,
    Versions,
)

_COMPARING: Final = (Records, Root, Buckets, Versions, Pull)


class Hearing:
    """`met` is called for a link to a peer that was removed and belongs to the ring again."""

    def __init__(
        self,
        state: State,
        *,
        copies: Copies,
        founding: Founding,
        gossip: Gossip,
        meeting: Meeting,
        outside: Outside,
        questions: Questions,
        reach: Reach,
        met: Callable[[Link, float], None],
    ) -> None:
        self._state = state
        self._copies = copies
        self._founding = founding
        self._gossip = gossip
        self._meeting = meeting
        self._outside = outside
        self._questions = questions
        self._reach = reach
        self._met = met

    def take(self, link: Link, message: Message, now: float) -> None:
        state = self._state
        if isinstance(message, Ping):
            state.send(link, Pong(number=message.number))
        elif link.removed:
            if isinstance(message, Records) and self._gossip.returned(message, link, now):
                self._met(link, now)
        elif isinstance(message, _COMPARING):
            state.word = state.word or (state.ring is not None and link.ring == state.ring.id)
            self._gossip.received(message, link, now)
        elif isinstance(message, Routed):
            self._questions.received(message, link, now)
        else:
            self._hear(link, message, now)

    def _hear(self, link: Link, message: Message, now: float) -> None:
        """What the neighbour itself has to say to us."""
        if isinstance(message, Offer):
            self._meeting.offered(link, message, now)
        elif isinstance(message, Founders):
            self._founding.heard(link, message)
        elif isinstance(message, Seen):
            self._outside.heard(link, message.endpoint)
        elif isinstance(message, Copied):
            self._copies.told(message.run, link.key)
        elif isinstance(message, Redirect):
            self._reach.advised(message.addresses)
            self._state.links.close(link, "the peer has links enough")
            self._reach.soon(now)
