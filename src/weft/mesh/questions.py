"""What peers ask each other over several links, and whose part of a core answers."""

from weft.mesh.estate import Estate
from weft.mesh.leaving import Leaving
from weft.mesh.links import Link
from weft.mesh.removing import Removing
from weft.mesh.state import State
from weft.model.mesh.messages import Ack, Grant, Note, Propose, Routed, Want


class Questions:
    def __init__(self, estate: Estate, removing: Removing, leaving: Leaving, state: State) -> None:
        self._estate = estate
        self._removing = removing
        self._leaving = leaving
        self._state = state

    def received(self, message: Routed, link: Link, now: float) -> None:
        state = self._state
        answered = state.routing.received(
            message, link.key, state.known, now, answer=lambda source, body: self._answer(source, body, now)
        )
        if answered is None:
            return
        ask, body = answered
        if isinstance(body, Grant):
            self._estate.granted(ask, body, now)
        elif isinstance(ask.body, Propose):
            self._removing.answered(ask.body.promise, ask.target, body, now)
        elif isinstance(ask.body, Note):
            self._estate.acknowledged(ask.body.grant, ask.target, body, now)
        else:
            self._leaving.answered(ask, body, now)

    def _answer(self, source: bytes, body: Want | Note | Propose | Grant, now: float) -> Grant | Ack | None:
        state = self._state
        if state.known.removals.is_removed(state.me):
            return None
        if isinstance(body, Propose):
            return self._removing.answer(body.promise)
        if isinstance(body, Grant):
            return self._estate.given(body, now)
        if state.left:
            return None
        return self._estate.wanted(source, body, now) if isinstance(body, Want) else self._estate.noted(body, now)
