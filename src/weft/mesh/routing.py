"""Questions and answers between any two peers: by next hop, at most 8 hops, repeated every 2 s until answered."""

from collections.abc import Callable
from math import inf
from typing import Final

from weft.mesh.graph import Hops
from weft.mesh.known import Known
from weft.mesh.links import Links
from weft.mesh.recent import Recent
from weft.model.mesh.effects import Effect, Send
from weft.model.mesh.messages import Ack, Grant, Note, Propose, Routed, Want
from weft.model.mesh.records import MAX_HOPS
from weft.model.value import Value, replace

AGAIN: Final = 2.0  # seconds
REMEMBERED: Final = 512  # answers, for questions that come once more
FRESH: Final = 0.1  # seconds that next hops are used for after a change,
FRESH_A_PEER: Final = 0.003  # and where that is longer, so many for each peer that they lead to

Question = Want | Note | Propose | Grant
Answer = Grant | Ack


class Ask(Value, frozen=False):
    number: int
    target: bytes
    body: Question
    next: float


class Routing:
    def __init__(self, me: bytes, run: int, links: Links, out: list[Effect]) -> None:
        self._me = me
        self._links = links
        self._out = out
        self._number = (run & 0x7FFFFFFF) << 32  # answers to an earlier run's questions are not for ours
        self._asks: dict[int, Ask] = {}
        self._answers = Recent[tuple[bytes, int], Answer](REMEMBERED)
        self._came = Recent[bytes, bytes]()  # by which neighbour a peer's message came last
        self._hops: tuple[Known, int, int, float, Hops] | None = None
        self.due = inf

    # --- Ways

    def hops(self, known: Known, now: float) -> Hops:
        if self._hops:
            of, epoch, links, until, hops = self._hops
            if of is known and ((epoch, links) == (known.epoch, self._links.changes) or now < until):
                return hops
        hops = Hops(known.members, (link.key for link in self._links.of(known.ring)))
        until = now + max(FRESH, FRESH_A_PEER * len(known.members))
        self._hops = (known, known.epoch, self._links.changes, until, hops)
        return hops

    def _send(self, message: Routed, known: Known, now: float, *, came: bytes | None = None) -> None:
        hop = self._links.to(message.target)
        if hop is None or hop.ring != known.ring:
            keys = (self.hops(known, now).first(message.target), self._came.get(message.target))
            links = (self._links.to(key) for key in keys if key and key != came)
            hop = next((link for link in links if link and link.ring == known.ring), None)
        if hop:
            self._out.append(Send(link=hop.number, message=message))

    # --- Questions

    def ask(self, target: bytes, body: Question, known: Known, now: float) -> int:
        self._number += 1
        ask = Ask(number=self._number, target=target, body=body, next=now)
        self._asks[ask.number] = ask
        self._put(ask, known, now)
        return ask.number

    def cancel(self, number: int) -> None:
        self._asks.pop(number, None)

    def clear(self) -> None:
        """We belong to another ring."""
        self._asks.clear()
        self._answers.clear()
        self._hops = None

    def tick(self, known: Known, now: float) -> None:
        self.due = inf
        for ask in list(self._asks.values()):
            if ask.next <= now:
                self._put(ask, known, now)
            self.due = min(self.due, ask.next)

    def _put(self, ask: Ask, known: Known, now: float) -> None:
        ask.next = now + AGAIN
        self.due = min(self.due, ask.next)
        self._send(self._routed(ask.target, ask.number, ask.body, known), known, now)

    def _routed(
        self, target: bytes, number: int, body: Question | Answer, known: Known, *, answer: bool = False
    ) -> Routed:
        ring = known.ring or b""
        return Routed(source=self._me, target=target, ring=ring, number=number, answer=answer, hops=0, body=body)

    # --- What comes

    def received(
        self,
        message: Routed,
        came: bytes,
        known: Known,
        now: float,
        *,
        answer: Callable[[bytes, Question], Answer | None],
    ) -> tuple[Ask, Answer] | None:
        """Pass it on, answer it, or say which question of ours is answered."""
        if message.ring != known.ring or message.source == self._me:
            return None
        self._came[message.source] = came
        if message.target != self._me:
            if message.hops < MAX_HOPS - 1:
                self._send(replace(message, hops=message.hops + 1), known, now, came=came)
            return None
        if message.answer:
            ask = self._asks.get(message.number)
            if ask is None or ask.target != message.source or not isinstance(message.body, Answer):
                return None
            del self._asks[message.number]
            return ask, message.body
        place = (message.source, message.number)
        made = self._answers.get(place)
        if made is None and isinstance(message.body, Question) and (made := answer(message.source, message.body)):
            self._answers[place] = made
        if made:
            self._send(self._routed(message.source, message.number, made, known, answer=True), known, now)
        return None
