"""Who inherits from peers that are gone for good: one proposer, to whom all that are not named have promised it.

Who has promised sees nothing change any more in the blocks of those that are named (`Tokens.merge`, `frozen`), and
relies on no grant of theirs (`grants.objection`). So what the proposer has heard with the promises is all that anybody
will ever rely on, and it can write down what it inherits. A majority would not do: of {a, b, c, d, X}, split into a, b
and c, d while three peers join on either side, each side has five of the eight that it knows.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from weft.mesh.ring import Tokens, append
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.messages import Promise
from weft.model.mesh.records import MAX_AGE, MAX_REMOVALS, Removal, Token
from weft.model.value import Value, replace

NUMBERS: Final = 1 << 31  # of removals are below: they are the upper half of versions
_EPOCH: Final = 32


class Removals:
    """The last removal of each peer. A peer may have been removed twice, by sides that knew nothing of each other."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[bytes, Removal] = {}

    def merge(self, removal: Removal) -> Removal | None:
        """Take it if it is the later one; of two of one number the lower heir's. What is taken is returned."""
        known = self._by_key.get(removal.key)
        if removal.number >= NUMBERS or (known is not None and _rank(known) <= _rank(removal)):
            return None
        self._by_key[removal.key] = removal
        return removal

    def forget(self) -> Removal | None:
        """The oldest, if there are too many."""
        if len(self._by_key) <= MAX_REMOVALS:
            return None
        return self._by_key.pop(min(self._by_key.values(), key=_age).key)

    @property
    def age(self) -> int:
        """The age of a removal that comes about now."""
        return min(MAX_AGE, 1 + max((removal.age for removal in self._by_key.values()), default=0))

    def __iter__(self) -> Iterator[Removal]:
        return iter(sorted(self._by_key.values(), key=lambda removal: removal.key))

    def last_of(self, key: bytes) -> Removal | None:
        """The last removal of a peer: also of one that stays, where peers have removed each other."""
        return self._by_key.get(key)

    def is_removed(self, key: bytes) -> bool:
        """Tell whether another peer has what was this peer's."""
        return self.heir(key) != key

    def heir(self, key: bytes) -> bytes:
        """The key of the peer that now has what was this peer's: its own key, if nobody has removed it.

        Where peers have removed each other, the heir of the last removal stays.
        """
        passed: list[bytes] = []
        while key in self._by_key and key not in passed:
            passed.append(key)
            key = self._by_key[key].heir
        if key not in passed:
            return key
        return min((self._by_key[one] for one in passed[passed.index(key) :]), key=_rank).heir


def _rank(removal: Removal) -> tuple[int, bytes]:
    return -removal.number, removal.heir


def _age(removal: Removal) -> tuple[int, bytes]:
    return removal.age, removal.key


class Answer(Value):
    """To a proposal: a promise unless `refused` says why not, `holder` being who has ours."""

    refused: str = ""
    holder: Promise | None = None


class Bound(Value):
    """What binds a peer: its promise to another and its own proposal. `number` is the highest it has seen or used."""

    me: bytes
    promise: Promise | None = None
    proposal: Promise | None = None
    number: int = 0

    @property
    def frozen(self) -> frozenset[bytes]:
        """Whose blocks stay as they are. The proposer goes on hearing of everything: it is to know all."""
        return frozenset() if self.promise is None else frozenset(self.promise.names)

    @property
    def named(self) -> frozenset[bytes]:
        """Whose grants nobody relies on, and who is given nothing."""
        both = (self.promise, self.proposal)
        return frozenset(name for promise in both if promise is not None for name in promise.names)

    def answer(self, asked: Promise, removals: Removals) -> Answer:
        if asked == self.promise:
            return Answer()
        if self.me in asked.names:
            return Answer(refused="I am here, and named")
        if removals.is_removed(asked.proposer) or asked.number >= NUMBERS:
            return Answer(refused="the proposer has been removed, or its number is none")
        for held in (self.promise, self.proposal):
            if held is not None and held.proposer not in asked.names:
                return Answer(refused="another removal is under way", holder=held)
        if asked.number <= self.number:
            return Answer(refused=f"removal {self.number} was before")
        return Answer()


def ended(promise: Promise, removals: Removals, *, over: int, done: int) -> bool:
    """Tell whether it binds nobody any more; `over` and `done` are in the record of its proposer.

    A removal that came about ends it only when all that it names are seen to be removed: before, the proposer's claims
    are not known here.
    """
    if removals.is_removed(promise.proposer):
        return True
    seen = (removals.last_of(name) for name in promise.names)
    if all(removal is not None and removal.number >= promise.number for removal in seen):
        return True
    return promise.number <= over and promise.number != done


def missing(
    proposal: Promise, known: Iterable[bytes], promised: Collection[bytes], removals: Removals
) -> frozenset[bytes]:
    """Who has still to promise. `known` are all members and owners of blocks, also of what came with promises."""
    done = {proposal.proposer, *proposal.names, *promised}
    return frozenset(key for key in known if key not in done and not removals.is_removed(key))


def propose(
    bound: Bound,
    names: Collection[bytes],
    known: Collection[bytes],
    removals: Removals,
    *,
    settled: bool,
    force: bool,
    name: Callable[[bytes], str],
) -> Promise:
    """What to ask of all that are not named; `known` as above, `name` is for people. Raises `ConfigError` (MESH-005).

    Who answers must not be named, which the caller knows.
    """
    rest = [key for key in known if key not in names and not removals.is_removed(key)]
    strangers = [key for key in names if key not in known or removals.is_removed(key)]
    if strangers:
        raise _refused(f"{name(strangers[0])} is no peer of this mesh", "one that is", "'weft mesh peers' lists them.")
    if len(names) > MAX_REMOVALS:
        raise _refused(f"{len(names)} peers are named", f"at most {MAX_REMOVALS} at once", "Remove the others later.")
    if bound.me in names:
        raise _refused("this node itself is named", "another peer", "'weft mesh leave' gives everything away.")
    if not settled:
        hint = "Type it on another node, or wait: 'weft mesh status' says for what this one waits."
        raise _refused("this node has no block of its own yet", "a peer that has one", hint)
    if bound.promise is not None:
        raise _refused(
            f"a removal by {name(bound.promise.proposer)} is under way",
            "that it is over, or names that peer, too",
            "'weft mesh status' there says for whom it waits.",
        )
    if 2 * len(rest) < len(rest) + len(names) and not force:
        raise _refused(
            f"only {len(rest)} of {len(rest) + len(names)} peers would remain",
            "half of them",
            "If others of them live apart from these, addresses may be given twice; else take --force.",
        )
    return Promise(proposer=bound.me, number=bound.number + 1, names=tuple(sorted(names)))


def _refused(seen: str, expected: str, hint: str) -> ConfigError:
    return ConfigError(Problem(code="MESH-005", where="weft mesh rmpeer", seen=seen, expected=expected, hint=hint))


def inherited(proposal: Promise, tokens: Tokens, removals: Removals) -> list[Removal]:
    """What comes about: a removal for each name, with all its blocks as the proposer's."""
    made, age = [], removals.age
    for name in proposal.names:
        owned = [name, *(removal.key for removal in removals if removals.heir(removal.key) == name)]
        claims = _claims(tokens, owned, proposal.proposer, proposal.number)
        made.append(Removal(key=name, heir=proposal.proposer, number=proposal.number, tokens=claims, age=age))
    return made


def epoch(token: Token) -> int:
    """The number of the removal by which it was inherited last."""
    return token.version >> _EPOCH


def late(tokens: Tokens, removals: Removals, me: bytes) -> list[Token]:
    """What has turned up of peers whose heir we are, as we claim it."""
    mine = [removal for removal in removals if removal.key != me and removals.heir(removal.key) == me]
    return [claim for removal in mine for claim in _claims(tokens, [removal.key], me, removal.number)]


def _claims(tokens: Tokens, removed: list[bytes], heir: bytes, number: int) -> tuple[Token, ...]:
    """Their version is above all that the removed could still write, as a later removal's is above theirs."""
    claims: list[Token] = []
    for token in sorted((token for key in removed for token in tokens.of(key)), key=lambda token: token.start):
        append(claims, replace(token, owner=heir, version=max(number << _EPOCH, token.version + 1)))
    return tuple(claims)
