"""A removal from the command to the last promise, and our promises to others: `removal` says what they mean."""

from math import inf
from typing import Final

from weft.mesh.flood import Names
from weft.mesh.removal import NUMBERS, Bound, ended, inherited, late, missing, propose
from weft.mesh.state import State
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.effects import Rekey, Remove
from weft.model.mesh.messages import Ack, Promise, Propose
from weft.model.mesh.records import Removal, Token

SOONEST: Final = 2.0  # seconds until a removal that met another one is tried again
LATEST: Final = 10.0
FORCED: Final = 10.0  # how long one that does not wait still waits
SAID: Final = 30.0  # between two words about who is missing


class Removing:
    def __init__(self, state: State) -> None:
        self._state = state
        self._promised: dict[bytes, None] = {}
        self._heard: dict[bytes, None] = {}  # members and owners that others know
        self._asks: dict[bytes, int] = {}
        self._again: tuple[bytes, ...] = ()  # names to propose once more at `due`
        self._forced = inf
        self._said = -inf
        self.due = inf if state.kept.proposal is None else 0.0

    @property
    def bound(self) -> Bound:
        kept = self._state.kept
        return Bound(me=self._state.me, promise=kept.promise, proposal=kept.proposal, number=kept.number)

    # --- Records

    def merge(
        self, tokens: tuple[Token, ...], now: float, came: int | None = None, *, frozen: frozenset[bytes] | None = None
    ) -> None:
        """Take tokens from others, and claim what turns up of peers whose heir we are."""
        state = self._state
        change = state.known.tokens.merge(tokens, self.bound.frozen if frozen is None else frozen)
        state.merged(change, now, came)
        if lost := change.lost(state.me):
            self._lost(lost)
        if lost or any(token.owner == state.me for token in change.new):
            state.keep()
        if any(state.known.removals.is_removed(token.owner) for token in change.new):
            claims = late(state.known.tokens, state.known.removals, state.me)
            if claims:
                state.rest([(token.start, token.stop) for token in claims], now)
                state.write(claims, now)

    def _lost(self, lost: list[Token]) -> None:
        """Others have blocks of ours that we have not given: we did, and our disk does not know of it."""
        hint = "The disk holds an older state of this node, or another machine has a copy of it."
        seen = "this node gave it away, which its disk does not know"
        problem = Problem(code="MESH-004", where="mesh.json", seen=seen, hint=hint)
        self._state.say("rolled back", problem, ((token.start, token.stop) for token in lost))

    def hear(self, removal: Removal, now: float) -> bool:
        """Whether it is news."""
        state = self._state
        known = state.name(removal.key) if removal.key in state.known.members else ""
        if not state.known.remove(removal):
            return False
        if known:
            how = "is removed" if removal.number else "has left"
            state.say(f"{known} {how}, and {state.name(removal.heir)} has its blocks")
        state.keep(number=max(state.kept.number, min(removal.number, NUMBERS - 2)))
        state.mark(removal.key)
        if state.known.removals.is_removed(state.me):
            self.begin_again()
            return True
        self.merge(removal.tokens, now, frozen=frozenset())
        state.touched = True
        self.look()
        return True

    def begin_again(self) -> None:
        """Begin as a new node if this one was removed; also at a start, if it was killed before it had its new key."""
        state = self._state
        removals = state.known.removals
        removal = removals.last_of(state.me)
        if removal is None or not removals.is_removed(state.me) or state.left:
            return
        seen = f"this node was removed from the mesh; {state.name(removal.heir)} has its blocks"
        hint = "It joins as a new node; pods that were started before keep addresses that others may get."
        state.out.append(Rekey(why=Problem(code="MESH-005", where="mesh.json", seen=seen, hint=hint)))

    def look(self) -> None:
        """Whether our promise is over."""
        state = self._state
        promise = state.kept.promise
        if promise is None:
            return
        member = state.known.members.get(promise.proposer)
        over, done = (member.over, member.done) if member else (0, 0)
        if ended(promise, state.known.removals, over=over, done=done):
            state.keep(promise=None)
            state.touched = True

    # --- Promises

    def answer(self, asked: Promise) -> Ack:
        state, kept = self._state, self._state.kept
        answer = self.bound.answer(asked, state.known.removals)
        number = max(kept.number, min(asked.number, NUMBERS - 1))
        if answer.refused:
            state.keep(number=number)
            return Ack(refused=answer.refused, holder=answer.holder, number=number)
        proposal = None if kept.proposal and kept.proposal.proposer in asked.names else kept.proposal
        state.keep(promise=asked, number=number, proposal=proposal)
        known = state.known
        peers = tuple(sorted({*known.members, *known.tokens.owners}))
        return Ack(tokens=tuple(known.tokens), removals=tuple(known.removals), peers=peers, number=number)

    # --- Our own

    def check(self, command: Remove, now: float) -> None:
        """Raises `ConfigError`."""
        state = self._state
        if state.left:
            seen, hint = "this node is leaving the mesh", "Type it on another node."
            raise ConfigError(Problem(code="MESH-005", where="weft mesh rmpeer", seen=seen, hint=hint))
        for key in command.keys:
            if key != state.me and key in state.routing.hops(state.known, now):
                seen, hint = f"{state.name(key)} answers", "Type 'weft mesh leave' there."
                raise ConfigError(Problem(code="MESH-005", where="weft mesh rmpeer", seen=seen, hint=hint))
        propose(
            self.bound,
            command.keys,
            self._known(),
            state.known.removals,
            settled=state.kept.settled,
            force=command.force,
            name=state.name,
        )

    def remove(self, command: Remove, now: float) -> None:
        self._propose(tuple(sorted(command.keys)), now)
        self._forced = now + FORCED if command.force else inf

    def check_withdrawal(self) -> None:
        """Raises `ConfigError`."""
        if self._state.kept.proposal is None and not self._again:
            seen, hint = "no removal by this node waits for others", "'weft mesh status' on each node shows its own."
            raise ConfigError(Problem(code="MESH-005", where="weft mesh rmpeer --withdraw", seen=seen, hint=hint))

    def withdraw(self, now: float) -> None:
        self._withdraw()
        self._again = ()
        self.due = now
        self._state.say("the removal is withdrawn")

    def _known(self) -> set[bytes]:
        known = self._state.known
        return {*known.members, *known.tokens.owners, *self._heard}

    def _propose(self, names: tuple[bytes, ...], now: float) -> None:
        state = self._state
        self._withdraw()
        number = state.kept.number + 1
        state.keep(proposal=Promise(proposer=state.me, number=number, names=names), number=number)
        self._again = ()
        self.due = now

    def _withdraw(self) -> None:
        state = self._state
        for number in self._asks.values():
            state.routing.cancel(number)
        self._asks.clear()
        self._promised.clear()
        self._heard.clear()
        if proposal := state.kept.proposal:
            state.keep(proposal=None, over=proposal.number)
            state.stale = True

    def tick(self, now: float) -> None:
        state = self._state
        self.due = inf
        if self._again and not state.left:
            self._retry(now)
        proposal = state.kept.proposal
        if proposal is None:
            return
        self.due = now + 1.0
        if back := [name for name in proposal.names if name in state.routing.hops(state.known, now)]:
            self._withdraw()
            state.say(f"nobody is removed: {state.name(back[0])} answers")
            return
        if any(state.known.removals.is_removed(name) for name in proposal.names):
            self._withdraw()
            self._again = proposal.names  # the others of them
            self.due = now
            return
        away = missing(proposal, self._known(), self._promised, state.known.removals)
        for key in sorted(away):
            if key not in self._asks:
                self._asks[key] = state.routing.ask(key, Propose(promise=proposal), state.known, now)
        if not away or now >= self._forced:
            self._complete(proposal, now)
        elif now >= self._said + SAID:
            self._said = now
            state.say("a removal waits for " + ", ".join(sorted(map(state.name, away))))

    def _retry(self, now: float) -> None:
        state = self._state
        if state.kept.promise is not None:
            self.due = now + LATEST
            return
        names = tuple(name for name in self._again if not state.known.removals.is_removed(name))
        self._again = ()
        if names:
            self._propose(names, now)

    def answered(self, proposal: Promise, by: bytes, ack: Ack, now: float) -> None:
        """One of the others has answered our proposal."""
        state = self._state
        if ack.refused:
            self._refused(proposal, by, ack, now)
            return
        self._promised[by] = None
        self._heard.update(dict.fromkeys(ack.peers))
        for removal in ack.removals:
            if self.hear(removal, now):
                state.flood.tell(Names(removals={removal.key: None}), now)
        self.merge(ack.tokens, now)
        self.due = now

    def _refused(self, proposal: Promise, by: bytes, ack: Ack, now: float) -> None:
        """Try again: later, if somebody else removes peers, at once if our number was too low."""
        state = self._state
        state.keep(number=max(state.kept.number, min(ack.number, NUMBERS - 2)))
        self._withdraw()
        self.due = now
        if ack.holder is not None:
            self.due = now + SOONEST + (LATEST - SOONEST) * state.chance()
        if ack.holder is not None or ack.number >= proposal.number:
            self._again = proposal.names
        else:
            state.say(f"{state.name(by)} does not agree to a removal: {ack.refused}")

    def _complete(self, proposal: Promise, now: float) -> None:
        state = self._state
        removals = inherited(proposal, state.known.tokens, state.known.removals)
        self._withdraw()
        state.keep(done=proposal.number)
        runs = [(token.start, token.stop) for removal in removals for token in removal.tokens]
        state.rest(runs, now)
        for removal in removals:
            self.hear(removal, now)
            state.flood.tell(Names(removals={removal.key: None}), now)
