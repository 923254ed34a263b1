"""Every history of a few peers, breadth first over states: who may do what next, and what must never be.

Checked after every step: no block is relied on by two peers that nobody has removed (C1), the tokens of each peer
cover each block once (C2), versions only rise (C3); and, of each removal that comes about, that who it has not
heard of had its blocks from peers that it names.
"""

from collections.abc import Hashable, Iterator
from itertools import permutations
from typing import Any, NamedTuple, Protocol

from tests.pure.mesh.rules import Peer, Rules, removals_of
from weft.model.value import Value


class Letter(NamedTuple):
    """A message on its way."""

    kind: str
    source: int
    target: int
    body: Any


class World(NamedTuple):
    """Peers by number, as numbers of `Search.peers`. `origin`: giver and witness of each peer's first block."""

    peers: tuple[int, ...]
    letters: frozenset[int]
    dead: int
    left: tuple[int, int, int, int]  # how many may still die, be killed, leave, and be removed
    origin: tuple[tuple[int, int] | None, ...]


class Limits(Value):
    peers: int
    deaths: int = 0
    kills: int = 0
    leaves: int = 0
    removals: int = 0
    living: bool = False  # the operator may be wrong, and name peers that live
    cuts: int = 0  # links that break
    letters: int = 2  # on their way at once


class Violation(Exception):
    pass


class Found(Value):
    states: int
    depth: int
    trail: tuple[str, ...] = ()
    why: str = ""
    pruned: int = 0


class Numbered:
    """Values by number: worlds are compared by what they are made of, each of which is held once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
        return found


class Search(Numbered):
    def __init__(self, rules: Rules, limits: Limits) -> None:
        super().__init__()
        self.rules, self.limits = rules, limits
        self.keys = [bytes([97 + number]) for number in range(limits.peers)]
        self.done: dict[Hashable, Any] = {}
        self.pruned = 0

    def once(self, what: str, *numbers: int) -> Any:
        """A step of one peer, by numbers; each is computed once."""
        key = (what, numbers)
        if key not in self.done:
            values = [self.values[number] for number in numbers]
            found = self.done[key] = getattr(self, f"_{what}")(*values)
            after = found[0] if isinstance(found, tuple) else found
            if after is not None and what not in {"uses", "gone"} and not self._rises(values[0], self.values[after]):
                raise Violation(f"{values[0].key.decode()} went back")
        return self.done[key]

    def _rises(self, before: Peer, after: Peer) -> bool:
        """C3."""
        ring = self.rules.ring(after.tokens)
        return all(
            new is not None and new.version >= old.version
            for old in before.tokens
            for block in range(old.start, old.stop)
            for new in (ring.at(block),)
        )

    # --- Steps of one peer

    def _heard(self, peer: Peer, other: Peer) -> int:
        return self.number(self.rules.heard(peer, other))

    def _wanted(self, peer: Peer, taker: Peer) -> Any:
        after, made = self.rules.wanted(peer, taker.key)
        return None if made.refused else (self.number(after), self.number(made))

    def _leaves(self, peer: Peer, taker: Peer) -> Any:
        after, made = self.rules.leaves(peer, taker.key)
        return None if made is None else (self.number(after), self.number(made))

    def _granted(self, peer: Peer, made: Any) -> int:
        return self.number(self.rules.granted(peer, made))

    def _noted(self, peer: Peer, made: Any) -> Any:
        after = self.rules.noted(peer, made)
        return None if after is None else self.number(after)

    def _witnessed(self, peer: Peer, made: Any) -> int:
        return self.number(self.rules.witnessed(peer, made))

    def _proposes(self, peer: Peer, names: Any) -> int:
        return self.number(self.rules.proposes(peer, names))

    def _withdrawn(self, peer: Peer) -> int:
        return self.number(self.rules.withdrawn(peer))

    def _asked(self, peer: Peer, asked: Any) -> tuple[int, int]:
        after, ack = self.rules.asked(peer, asked)
        return self.number(after), self.number((asked, ack))

    def _answered(self, peer: Peer, source: Any, about: Any) -> int:
        return self.number(self.rules.answered(peer, source, *about))

    def _killed(self, peer: Peer) -> int:
        return self.number(self.rules.killed(peer))

    def _uses(self, peer: Peer) -> int:
        assert all(one.stop <= two.start for one, two in zip(peer.tokens, peer.tokens[1:], strict=False))
        return sum(1 << block for block in self.rules.uses(peer))

    def _gone(self, peer: Peer) -> int:
        removals = removals_of(peer.removals)
        return sum(1 << index for index, key in enumerate(self.keys) if removals.is_removed(key))

    # --- Steps of the world

    def first(self) -> World:
        peers = [self.rules.founder(self.keys[0])]
        peers += [Peer(key=key, members=((key, 0, 0),)) for key in self.keys[1:]]
        limits = self.limits
        left = (limits.deaths, limits.kills, limits.leaves, limits.removals)
        return World(tuple(map(self.number, peers)), frozenset(), 0, left, (None,) * len(peers))

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        living = [index for index in range(len(world.peers)) if not world.dead >> index & 1]
        for index in living:
            yield from self._alone(world, index, living)
        for one, two in permutations(living, 2):
            yield from self._together(world, one, two)
        for letter in world.letters:
            rest = world._replace(letters=world.letters - {letter})
            if len(world.letters) == self.limits.letters:
                yield f"lose {self.show(letter)}", rest
            yield from self._delivered(rest, self.values[letter], self.show(letter))

    def show(self, letter: int) -> str:
        kind, source, target, _ = self.values[letter]
        return f"{kind} {self.keys[source].decode()}→{self.keys[target].decode()}"

    def _with(self, world: World, **peers: int) -> World:
        changed = list(world.peers)
        for name, number in peers.items():
            changed[int(name[1:])] = number
        return world._replace(peers=tuple(changed))

    def _sent(self, world: World, kind: str, source: int, target: int, body: int) -> World | None:
        letter = self.number(Letter(kind, source, target, body))
        if letter in world.letters or len(world.letters) < self.limits.letters:
            return world._replace(letters=world.letters | {letter})
        return None

    def _alone(self, world: World, index: int, living: list[int]) -> Iterator[tuple[str, World]]:
        name, number = self.keys[index].decode(), world.peers[index]
        peer: Peer = self.values[number]
        deaths, kills, leaves, removals = world.left
        if deaths and peer.tokens:
            yield (
                f"{name} dies",
                world._replace(dead=world.dead | 1 << index, left=(deaths - 1, kills, leaves, removals)),
            )
        if kills and (peer.given or peer.promised):
            after = self._with(world, **{f"p{index}": self.once("killed", number)})
            yield f"{name} is killed", after._replace(left=(deaths, kills - 1, leaves, removals))
        if peer.proposal is not None:
            yield f"{name} withdraws", self._with(world, **{f"p{index}": self.once("withdrawn", number)})
        elif removals and peer.settled and peer.promise is None:
            for names in self._nameable(world, peer, index, living):
                after = self.once("proposes", number, self.number(names))
                world_ = self._with(world, **{f"p{index}": after})._replace(left=(deaths, kills, leaves, removals - 1))
                if checked := self._checked(world, world_, index, names):
                    yield f"{name} proposes {b''.join(names).decode()}", checked

    def _nameable(self, world: World, peer: Peer, index: int, living: list[int]) -> Iterator[tuple[bytes, ...]]:
        known = [one for one, key in enumerate(self.keys) if one != index and key in peer.known]
        may = [one for one in known if self.limits.living or one not in living]
        may = [one for one in may if not self.once("gone", world.peers[index]) >> one & 1]
        for chosen in range(1, 1 << len(may)):
            yield tuple(self.keys[one] for place, one in enumerate(may) if chosen >> place & 1)

    def _together(self, world: World, one: int, two: int) -> Iterator[tuple[str, World]]:
        """`one` speaks to `two`, and is heard at once: what could come between is in the answer's being late."""
        name = f"{self.keys[one].decode()}→{self.keys[two].decode()}"
        mine, other = world.peers[one], world.peers[two]
        peer, target = self.values[mine], self.values[other]
        heard = self.once("heard", other, mine)
        if heard != other:
            yield f"gossip {name}", self._with(world, **{f"p{two}": heard})
        gone = self.once("gone", mine)
        if not peer.settled and peer.waiting is None and target.settled and not gone >> one & 1:
            made = self.once("wanted", other, mine)
            if made and (sent := self._sent(world, "grant", two, one, made[1])):
                yield f"want {name}", self._with(sent, **{f"p{two}": made[0]})
        if peer.waiting is not None and target.key in peer.asks:
            after = self.once("noted", other, self.number(peer.waiting))
            if after is not None and (sent := self._sent(world, "noted", two, one, self.number(peer.waiting))):
                yield f"note {name}", self._with(sent, **{f"p{two}": after})
        deaths, kills, leaves, removals = world.left
        if leaves and peer.settled and target.settled and peer.proposal is None:
            parted = self.once("leaves", mine, other)
            if parted and (sent := self._sent(world, "grant", one, two, parted[1])):
                sent = sent._replace(left=(deaths, kills, leaves - 1, removals))
                yield f"{name} leaves", self._with(sent, **{f"p{one}": parted[0]})
        if peer.proposal is not None and target.key not in (*peer.proposal.names, *peer.promised):
            after, ack = self.once("asked", other, self.number(peer.proposal))
            if sent := self._sent(world, "ack", two, one, ack):
                yield f"ask {name}", self._with(sent, **{f"p{two}": after})

    def _delivered(self, world: World, letter: Letter, shown: str) -> Iterator[tuple[str, World]]:
        kind, source, target, body = letter
        if world.dead >> target & 1:
            return
        before = world.peers[target]
        arrived: World | None
        if kind == "grant":
            after = self.once("granted", before, body)
            arrived = self._with(world, **{f"p{target}": after})
            if self.values[after].settled and not self.values[before].settled:
                arrived = self._arrived(arrived, target, source, -1)
            if arrived is not None:
                yield shown, arrived
        elif kind == "noted":
            after = self.once("witnessed", before, body)
            if after != before:
                giver = self.keys.index(self.values[body].giver)
                arrived = self._arrived(self._with(world, **{f"p{target}": after}), target, giver, source)
                if arrived is not None:
                    yield shown, arrived
        else:
            after = self.once("answered", before, self.number(self.keys[source]), body)
            old = self.values[before].proposal
            after_world = self._with(world, **{f"p{target}": after})
            if checked := self._checked(world, after_world, target, old.names if old else ()):
                yield shown, checked

    def _arrived(self, world: World, taker: int, giver: int, witness: int) -> World | None:
        if {giver, witness} <= {-1} | self._removed(world):  # as below
            self.pruned += 1
            return None
        origin = list(world.origin)
        origin[taker] = (giver, witness)
        return world._replace(origin=tuple(origin))

    def _checked(self, before: World, after: World, proposer: int, names: tuple[bytes, ...]) -> World | None:
        """When a removal comes about: who has not promised was known to peers that are named alone.

        If there is any, the operator has removed all that knew of a living peer: nothing is promised then.
        """
        peer = self.values[after.peers[proposer]]
        removals = removals_of(peer.removals)
        if not names or not all(removals.is_removed(name) for name in names):
            return after
        if self.values[before.peers[proposer]].removals == peer.removals:
            return after
        # Not heard of: settled, not removed by anybody, and without this promise.
        removed = self._removed(after)
        if self._removed(before) & {proposer}:  # two that live have removed each other
            self.pruned += 1
            return None
        unheard = {
            index
            for index, number in enumerate(after.peers)
            if index != proposer
            and self.values[number].settled
            and index not in removed
            and not self._promised(self.values[number], peer.key, names)
        }
        if not unheard:
            return after
        silent = {self.keys.index(name) for name in names} | unheard | removed
        for index in unheard:
            if not silent.issuperset(after.origin[index] or (-1,)):
                raise Violation(f"{self.keys[index].decode()} was not asked")
        self.pruned += 1
        return None

    def _promised(self, peer: Peer, proposer: bytes, names: tuple[bytes, ...]) -> bool:
        promise = peer.promise
        return promise is not None and promise.proposer == proposer and promise.names == names

    def _removed(self, world: World) -> set[int]:
        gone = 0
        for number in world.peers:
            gone |= self.once("gone", number)
        return {index for index in range(len(world.peers)) if gone >> index & 1}

    def check(self, world: World) -> None:
        removed, taken = self._removed(world), 0
        for index, number in enumerate(world.peers):
            if index not in removed:
                uses = self.once("uses", number)
                if taken & uses:
                    raise Violation(f"{self.keys[index].decode()} and another rely on blocks {taken & uses:b}")
                taken |= uses


def search(rules: Rules, limits: Limits, depth: int, begun: str = "") -> Found:
    """The shortest history that breaks a rule, or how much was searched without one; `begun` are its first steps."""
    return explore(Search(rules, limits), depth, begun)


class Steps(Protocol):
    """A world is what decides what may come next; two that are equal are searched once."""

    pruned: int

    def first(self) -> Any: ...
    def moves(self, world: Any) -> Iterator[tuple[str, Any]]: ...
    def check(self, world: Any) -> None:
        """Raises `Violation`."""


def explore(run: Steps, depth: int, begun: str = "") -> Found:
    start = run.first()
    for step in filter(None, begun.split(", ")):
        start = next(after for name, after in run.moves(start) if name == step)
    before: dict[Any, tuple[Any, str] | None] = {start: None}
    layer, reached = [start], 0
    while layer and reached < depth:
        following = []
        for world in layer:
            moves = run.moves(world)
            while True:
                try:
                    name, after = next(moves)
                except StopIteration:
                    break
                except Violation as violation:
                    return Found(states=len(before), depth=reached + 1, trail=_trail(before, world), why=str(violation))
                if after in before:
                    continue
                before[after] = (world, name)
                try:
                    run.check(after)
                except Violation as violation:
                    return Found(states=len(before), depth=reached + 1, trail=_trail(before, after), why=str(violation))
                following.append(after)
        layer = following
        reached += 1
    return Found(states=len(before), depth=reached, pruned=run.pruned)


def _trail(before: dict[Any, tuple[Any, str] | None], world: Any) -> tuple[str, ...]:
    names: list[str] = []
    step = before[world]
    while step is not None:
        names.append(step[1])
        step = before[step[0]]
    return tuple(reversed(names))
