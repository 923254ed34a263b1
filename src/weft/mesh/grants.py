"""Giving blocks away: who is asked, how much is given, who has to know of it, and who keeps what two have.

An owner writes a grant on its disk before it tells of it. The taker relies on none of it before a witness has it on its
disk, too: else, should the giver be lost and removed, its heir would never hear of it.
"""

from collections.abc import Iterable
from typing import Final

from weft.mesh.removal import Bound, Removals, ended
from weft.mesh.ring import Run, Tokens
from weft.model.mesh.messages import Grant, Promise
from weft.model.value import Value, replace

_SHARES: Final = 128  # small grants: a peer that is lost takes 1 % along, not half


def choose(tokens: Tokens, candidates: Iterable[bytes], chance: float) -> bytes | None:
    """Whom to ask for blocks, as likely as it has many beside its home; `chance` is in [0, 1)."""
    weights = [(key, tokens.count(key) - 1) for key in sorted(candidates) if tokens.count(key) > 1]
    point = chance * sum(weight for _, weight in weights)
    for key, weight in weights:
        if point < weight:
            return key
        point -= weight
    return None


class Giver(Value):
    """What a giver knows of itself. `resting` are inherited blocks that may still be in use."""

    bound: Bound
    home: int | None
    settled: bool
    resting: tuple[Run, ...] = ()

    @property
    def homes(self) -> list[Run]:
        return [] if self.home is None else [(self.home, self.home + 1)]


def share(tokens: Tokens, giver: Giver) -> Run | None:
    """What it can spare for a home and a reserve: the end of its largest run, and not its own home."""
    free = _without(tokens.runs(giver.bound.me), [*giver.resting, *giver.homes])
    most = min(1 + max(1, tokens.layout.blocks // _SHARES), tokens.count(giver.bound.me) // 2)
    start, stop = max(free, key=lambda run: run[1] - run[0], default=(0, 0))
    return (max(start, stop - most), stop) if start < stop and most else None


def _without(runs: list[Run], taken: Iterable[Run]) -> list[Run]:
    for start, stop in taken:
        parts = [part for run in runs for part in ((run[0], min(start, run[1])), (max(stop, run[0]), run[1]))]
        runs = [part for part in parts if part[0] < part[1]]
    return runs


def grant(tokens: Tokens, giver: Giver, taker: bytes, removals: Removals, *, given: Grant | None = None) -> Grant:
    """What to answer one that wants blocks, and to keep on disk before; `given` is what it was given already."""
    bound = giver.bound
    if not giver.settled:
        return Grant(giver=bound.me, taker=taker, refused="no witness knows of my own block yet")
    if removals.is_removed(taker) or taker in bound.named:
        return Grant(giver=bound.me, taker=taker, refused="you have been removed, or are about to be")
    if given is not None and all(tokens.accepts(token) for token in given.tokens):
        return replace(
            given, promise=bound.promise
        )  # with the ring as it was: who was given later waits for this taker
    run = share(tokens, giver)
    if run is None:
        return Grant(giver=bound.me, taker=taker, refused="I have no block to spare")
    made = (tokens.written(taker, *run),)
    return Grant(giver=bound.me, taker=taker, home=run[0], tokens=made, ring=tuple(tokens), promise=bound.promise)


def parting(tokens: Tokens, giver: Giver, taker: bytes) -> list[Grant]:
    """What a peer that leaves gives, one after the other: its reserve, then its home, if it is still its own."""
    all_ = tokens.runs(giver.bound.me)
    reserve = tuple(tokens.written(taker, *run) for run in _without(all_, giver.homes))
    home = tuple(tokens.written(taker, *run) for run in _without(all_, _without(all_, giver.homes)))
    made = [Grant(giver=giver.bound.me, taker=taker, tokens=part) for part in (reserve, home) if part]
    return [replace(one, ring=tuple(tokens), promise=giver.bound.promise) for one in made]


def objection(grant: Grant, tokens: Tokens, bound: Bound, removals: Removals) -> str:
    """Why its taker or a witness may not rely on it; empty if nothing is against it. `grant.ring` is merged before."""
    gone = [key for key in (grant.giver, grant.taker) if removals.is_removed(key) or key in bound.named]
    if gone:
        return f"{gone[0][:4].hex()} has been removed, or is about to be"
    if grant.home is not None and not any(token.start <= grant.home < token.stop for token in grant.tokens):
        return f"block {grant.home} is not in it"
    if not all(token.owner == grant.taker and tokens.accepts(token) for token in grant.tokens):
        return "others have these blocks"
    if not all(tokens.accepts(token, bound.frozen) for token in grant.tokens):
        return "these blocks are of one that is about to be removed"
    return ""


class Taken(Value):
    """What becomes of a grant: refused, or the promise that binds its taker from now on."""

    refused: str = ""
    promise: Promise | None = None


def take(grant: Grant, tokens: Tokens, bound: Bound, removals: Removals, *, over: int = 0, done: int = 0) -> Taken:
    """What the taker does; `over` and `done` are in the record of the promise's proposer (`removal.ended`)."""
    against = objection(grant, tokens, bound, removals)
    promise = grant.promise
    if against or promise is None or promise.proposer == bound.me or ended(promise, removals, over=over, done=done):
        return Taken(refused=against, promise=bound.promise)
    answer = bound.answer(promise, removals)
    return Taken(refused=answer.refused, promise=bound.promise if answer.refused else promise)


def witnesses(grant: Grant, removals: Removals) -> frozenset[bytes]:
    """Who may be one: any other owner that the giver knows, if it has had its own. If there is none, none is needed."""
    return frozenset(removals.heir(token.owner) for token in grant.ring) - {grant.giver, grant.taker}


def keeps(tokens: Tokens, me: bytes, home: int, rival_home: int | None) -> bool:
    """Tell whether our home stays ours though the ring gives it to another, whose home is `rival_home`.

    That comes of a copy, of a disk that went back in time, or of a forced removal alone.
    """
    token = tokens.at(home)
    return token is None or token.owner == me or rival_home != home or me < token.owner
