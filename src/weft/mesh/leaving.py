"""Leaving: everything goes to another peer, the reserve first, the home block last, and then our own removal.

Who is lost or cannot take more keeps what it was given; the next one has the rest, and hears of all that we know.
"""

from collections.abc import Callable
from math import inf

from weft.mesh.flood import Names
from weft.mesh.grants import Giver, parting
from weft.mesh.removing import Removing
from weft.mesh.routing import Ask
from weft.mesh.state import State
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.messages import Ack, Grant
from weft.model.mesh.records import Removal

PATIENCE = 6.0  # seconds until somebody else is asked


class Leaving:
    def __init__(self, state: State, removing: Removing, parted: Callable[[], None]) -> None:
        self._state = state
        self._removing = removing
        self._parted = parted
        self._heir: bytes | None = None
        self._ask: int | None = None
        self._told = False  # the heir has taken a part, and with it heard of all that we know
        self.due = 0.0 if state.left else inf

    def check(self) -> None:
        """Raises `ConfigError`."""
        state = self._state
        if state.ring is None:
            hint = "Stop the daemon; it has no subnets."
            raise ConfigError(
                Problem(code="MESH-007", where="weft mesh leave", seen="this node is in no ring", hint=hint)
            )
        if state.alone:
            hint = "Stop the daemon; no other node can take its subnets."
            raise ConfigError(Problem(code="MESH-007", where="weft mesh leave", seen="this node is alone", hint=hint))
        if state.kept.grant or (state.known.tokens.count(state.me) and not state.kept.settled):
            hint = "Try again when it has its subnet."
            raise ConfigError(
                Problem(code="MESH-007", where="weft mesh leave", seen="this node is just joining", hint=hint)
            )
        if state.kept.promise or state.kept.proposal:
            hint = "Try again when it is over."
            raise ConfigError(
                Problem(code="MESH-007", where="weft mesh leave", seen="a removal is under way", hint=hint)
            )

    def leave(self, now: float) -> None:
        self._state.keep(left=True)
        self.due = now

    def tick(self, now: float) -> None:
        self.due = inf
        state = self._state
        if not state.left or state.known.removals.is_removed(state.me):
            return
        self.due = now + PATIENCE
        hops = state.routing.hops(state.known, now)
        if self._ask is not None:
            if self._heir is not None and self._heir in hops:
                return
            state.routing.cancel(self._ask)
            self._ask = self._heir = None
        if self._heir is None or state.known.removals.is_removed(self._heir):
            self._told = False
            members = state.known.members.values()
            able = sorted(one.key for one in members if one.settled and one.key in hops and one.key != state.me)
            if not able:
                return
            self._heir = able[int(state.chance() * len(able))]
        giver = Giver(bound=self._removing.bound, home=state.kept.home, settled=state.kept.settled)
        parts = parting(state.known.tokens, giver, self._heir)
        if not parts and self._told:
            self._part(now)
            return
        ring, promise = tuple(state.known.tokens), giver.bound.promise
        part = parts[0] if parts else Grant(giver=state.me, taker=self._heir, ring=ring, promise=promise)
        state.write(list(part.tokens), now)
        self._ask = state.routing.ask(self._heir, part, state.known, now)

    def answered(self, ask: Ask, ack: Ack, now: float) -> None:
        if ask.number != self._ask:
            return
        self._ask = None
        if ack.refused:
            self._heir = None
            self.due = now + PATIENCE
        else:
            self._told = True
            self.due = now

    def _part(self, now: float) -> None:
        state = self._state
        # The lowest number: nobody has promised this one, so it must not end a promise, nor stand above a removal.
        removal = Removal(key=state.me, heir=self._heir or state.me, number=0, age=state.known.removals.age)
        state.keep(home=None, settled=False, grant=None)
        self._removing.hear(removal, now)
        state.flood.tell(Names(removals={state.me: None}), now)
        state.say("left the mesh")
        self._parted()
