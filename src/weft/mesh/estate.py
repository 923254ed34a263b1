"""Our own blocks: how we come by them, what we give of them, and when pods may have addresses of our home block."""

from math import inf
from typing import Final

from weft.mesh.grants import Giver, choose, grant, keeps, objection, take, witnesses
from weft.mesh.recent import Recent
from weft.mesh.removal import epoch
from weft.mesh.removing import Removing
from weft.mesh.ring import Run, founded
from weft.mesh.routing import Ask
from weft.mesh.state import State
from weft.model.errors import Problem
from weft.model.mesh.effects import Own, Rekey
from weft.model.mesh.messages import Ack, Grant, Note, Want
from weft.model.mesh.records import Layout, Ring, Token
from weft.model.value import replace

ALONE: Final = 10.0  # seconds after a start in which we wait for a word of others
MOVED: Final = 20.0  # … and with another machine's disk, after others have told what they know, for signs of that one
PATIENCE: Final = 6.0  # seconds until somebody else is asked
PAUSES: Final = (0.25, 4.0)  # after a refusal: the first, and the longest
LOOK: Final = 0.1  # while there is nobody who can be asked


class Estate:
    def __init__(self, state: State, removing: Removing) -> None:
        self._state = state
        self._removing = removing
        self._given: dict[bytes, Grant] = {}
        self._refusals = Recent[bytes, str]()  # by giver or witness, since our last block
        self._ask: int | None = None
        self._asked = 0.0
        self._pause = PAUSES[0]
        self._alone_until = self._waited = inf
        self._own: Own | None = None
        self.due = inf

    def start(self, now: float) -> None:
        self._alone_until = now + ALONE if self._state.options.booted else now
        if self._moved:
            self._alone_until = inf
        self._waited = now + ALONE
        self.due = now

    @property
    def _moved(self) -> bool:
        """Others may speak with another machine that has our key and block."""
        return self._state.options.moved and not self._state.alone

    def soon(self) -> None:
        self.due = 0.0

    def _giver(self) -> Giver:
        kept = self._state.kept
        return Giver(bound=self._removing.bound, home=kept.home, settled=kept.settled, resting=self._state.resting)

    # --- Without others

    def create(self, layout: Layout, ring: bytes, secret: bytes, now: float) -> None:
        state = self._state
        state.belong(Ring(id=ring, layout=layout, secret=secret))
        state.keep(home=layout.first, settled=True)
        state.write([founded(layout, state.me)], now)
        state.say(f"made ring {ring[:4].hex()}")
        self.due = now

    def tick(self, now: float) -> None:
        state = self._state
        state.waited = state.waited or now >= self._waited
        self.due = inf if state.waited else self._waited
        if state.ring is not None and not state.left:
            self._hold(now)
            if state.kept.home is None:
                self._strive(now)
        self._show(now)

    def _hold(self, now: float) -> None:
        """Whether the ring gives our home to another."""
        state, home = self._state, self._state.kept.home
        token = None if home is None else state.known.tokens.at(home)
        if home is None or token is None or token.owner == state.me or token.owner in self._removing.bound.named:
            return
        if epoch(token) > state.kept.number:  # by a removal that we have not heard of, of ourselves or a giver of ours
            if state.agreed:
                self._removed_long_ago(token)
            return
        rival = state.known.members.get(token.owner)
        seen = f"{state.name(token.owner)} has this subnet, too"
        if keeps(state.known.tokens, state.me, home, rival.home if rival else None):
            state.write([state.known.tokens.written(state.me, home, home + 1)], now)
            seen += "; this node keeps it"
            hint = "The other node takes another one, and its pods must be started again."
        else:
            state.keep(home=None, settled=False, grant=None)
            seen += "; this node takes another"
            hint = "Start its pods again: those that run have addresses of the other node."
        state.stale = True
        problem = Problem(code="MESH-009", where="the ring", seen=seen, hint=hint)
        state.say("conflict", problem, [(home, home + 1)])

    def _removed_long_ago(self, token: Token) -> None:
        seen = f"this node was removed from the mesh long ago; {self._state.name(token.owner)} has its subnet"
        hint = "It joins as a new node; pods that were started before keep addresses that others may get."
        self._state.out.append(Rekey(why=Problem(code="MESH-005", where="mesh.json", seen=seen, hint=hint)))

    # --- From others

    def _strive(self, now: float) -> None:
        """Towards a first block: a giver, then a witness."""
        state = self._state
        if self._ask is not None and now < self._asked + PATIENCE:
            self.due = self._asked + PATIENCE
            return
        if self._ask is not None:
            state.routing.cancel(self._ask)
            self._ask = None
        elif now < self._asked + self._pause:
            self.due = self._asked + self._pause
            return
        hops = state.routing.hops(state.known, now)
        named = self._removing.bound.named
        body: Want | Note
        if state.kept.grant is None:
            body = Want(home=True)
            target = choose(state.known.tokens, (key for key in hops if key not in named), state.chance())
        else:
            body = Note(grant=replace(state.kept.grant, ring=()))
            able = sorted(key for key in witnesses(state.kept.grant, state.known.removals) if key in hops)
            target = able[int(state.chance() * len(able))] if able else None
        if target is None:
            self.due = now + LOOK
            return
        self._asked = now
        self._pause = min(1.5 * self._pause, PAUSES[1])
        self._ask = state.routing.ask(target, body, state.known, now)
        self.due = now + PATIENCE

    def granted(self, ask: Ask, answer: Grant, now: float) -> None:
        """The answer to our `Want`."""
        state = self._state
        if ask.number != self._ask:
            return
        self._ask = None
        self.due = now
        if answer.refused or answer.taker != state.me or answer.home is None:
            self._refusals[ask.target] = answer.refused or "its answer is for another"
            return
        if not self._taken(answer, now):
            return
        state.keep(grant=answer)
        self._asked = -inf
        if not witnesses(answer, state.known.removals):
            self._settle(answer)

    def _taken(self, answer: Grant, now: float) -> bool:
        """Take a grant's tokens, and the promise that binds us with them; not what something speaks against."""
        state = self._state
        self._removing.merge(answer.ring, now)
        proposer = state.known.members.get(answer.promise.proposer) if answer.promise else None
        over, done = (proposer.over, proposer.done) if proposer else (0, 0)
        taken = take(answer, state.known.tokens, self._removing.bound, state.known.removals, over=over, done=done)
        if taken.refused:
            self._refusals[answer.giver] = taken.refused
            return False
        number = max(state.kept.number, taken.promise.number if taken.promise else 0)
        self._removing.merge(answer.tokens, now)
        state.keep(promise=taken.promise, number=number)
        return True

    def acknowledged(self, taken: Grant, by: bytes, ack: Ack, now: float) -> None:
        """The answer of a witness."""
        state = self._state
        self._ask = None
        self.due = now
        against = objection(taken, state.known.tokens, self._removing.bound, state.known.removals)
        if against:
            state.keep(grant=None)
        elif ack.refused:
            self._refusals[by] = ack.refused
        else:
            self._settle(taken)

    def _settle(self, taken: Grant) -> None:
        state = self._state
        state.keep(home=taken.home, settled=True, grant=None)
        state.say(f"took its first blocks from {state.name(taken.giver)}", blocks=_runs(taken))
        state.stale = True
        self._refusals.clear()
        self._pause = PAUSES[0]

    # --- To others

    def wanted(self, taker: bytes, want: Want, now: float) -> Grant | None:
        """The answer to a `Want`; none while we do not know what is ours.

        While only we are settled, one peer at a time is given its first block: of two, each could wait for the other
        as its witness.
        """
        state = self._state
        state.agreed = state.agreed or state.sole
        if not state.agreed:
            return None
        state.wake(now)
        others = state.known.tokens.owners - {state.me}
        if others and taker not in others and not any(self._settled(key) for key in others):
            return Grant(giver=state.me, taker=taker, refused="another peer is about to have its first block")
        made = grant(
            state.known.tokens,
            self._giver(),
            taker,
            state.known.removals,
            given=self._given.get(taker) if want.home else None,
        )
        if made.tokens and made != self._given.get(taker):
            state.say(f"gave blocks to {state.name(taker)}", blocks=_runs(made))
        if made.tokens:
            self._given[taker] = made
            state.write(list(made.tokens), now)
        return made

    def _settled(self, key: bytes) -> bool:
        member = self._state.known.members.get(key)
        return member is not None and member.settled

    def noted(self, note: Note, now: float) -> Ack:
        """As a witness."""
        state, noted = self._state, note.grant
        if not state.kept.settled:
            return Ack(refused="no witness knows of my own block yet")
        against = objection(noted, state.known.tokens, self._removing.bound, state.known.removals)
        if against:
            return Ack(refused=against)
        self._removing.merge(noted.tokens, now)
        state.keep()
        return Ack()

    def given(self, part: Grant, now: float) -> Ack:
        """From one that leaves."""
        state = self._state
        if state.left:
            return Ack(refused="I am leaving, too")
        if not state.kept.settled or part.taker != state.me:
            return Ack(refused="I have no block of my own yet")
        # Pods there may use these still, and what rested there has not rested enough. Refused parts come by records.
        state.rest([(token.start, token.stop) for token in part.tokens if token.owner == state.me], now)
        if state.kept.promise is not None:  # it would keep us from what the giver alone may know
            return Ack(refused="a removal is under way, try later")
        return Ack() if self._taken(part, now) else Ack(refused=self._refusals[part.giver])

    # --- For people

    def _show(self, now: float) -> None:
        state, kept = self._state, self._state.kept
        if self._alone_until == inf and state.agreed:
            self._alone_until = now + MOVED
        word = state.word and not self._moved
        usable = kept.home is not None and kept.settled and (word or now >= self._alone_until)
        own = Own(home=kept.home, usable=usable, waits=None if usable else self._waits())
        if kept.home is not None and not usable:
            self.due = min(self.due, self._alone_until)
        if own != self._own:
            self._own = own
            state.out.append(own)

    def _waits(self) -> Problem | None:
        state = self._state
        if state.ring is None:
            return state.ringless
        if state.kept.home is not None and self._moved:
            seen = "it was written on another machine, which may have this subnet still"
            hint = f"It is used {MOVED:.0f} s after peers have told what they know, if none speaks with that machine."
            return Problem(code="MESH-004", where="mesh.json", seen=seen, hint=hint)
        if state.kept.home is not None or state.left:
            return None
        if self._refusals:
            told = "; ".join(sorted(f"{state.name(key)}: {text}" for key, text in self._refusals.items()))
        else:
            told = "nobody who has blocks to give is reached"
        hint = "'weft mesh ring' says whose blocks are out of reach; 'weft mesh rmpeer' frees those of lost nodes."
        return Problem(code="LEASE-003", where="the mesh", seen=f"no block yet: {told}", hint=hint)


def _runs(made: Grant) -> list[Run]:
    return [(token.start, token.stop) for token in made.tokens if token.owner == made.taker]
