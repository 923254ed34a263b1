"""Every history of a few cores, breadth first: `search` with `weft.mesh.core` itself in place of the rules alone.

A step is a question or an answer that arrives, all that one core knows heard by another, time passing at one core until
it does something, a command of the operator, a kill with a restart from the disk, or a death. Messages arrive in any
order or never. Each core has a clock of its own. Two cores count as one state if they know, promise, ask and have
heard the same, whatever their clocks, timers and the versions of their records say.
"""

import pickle
from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

from tests.pure.mesh.search import Limits, Numbered, Violation
from weft.mesh.core import Core
from weft.model.errors import ConfigError
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Buckets, Hello, Message, Offer, Pong, Records, Routed
from weft.model.mesh.records import MAX_TOKENS_AT_ONCE, Layout, Ring
from weft.model.value import replace

_TURNS = 12  # of a clock in which nothing happens, after which nothing will
_STARTED = 15.0  # seconds after which a founder takes itself for alone
_RING = bytes(16)
_CHANCES = (0.0, 0.99)


class Chance:
    """What is drawn is part of the step."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        return self.value


class Peer(NamedTuple):
    """A core as bytes, because what it does must not change it; equal by what it knows."""

    state: Any
    frozen: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Peer) and self.state == other.state

    def __hash__(self) -> int:
        return hash(self.state)


class World(NamedTuple):
    peers: tuple[int, ...]
    letters: frozenset[int]
    dead: int
    left: tuple[int, int, int, int]  # how many may still die, be killed, be removed, and links break
    rekeyed: int
    cut: frozenset[tuple[int, int]]


Step = tuple[str, World, int, tuple[Any, ...]]  # its name, the world but for the core that takes it, and what it does


class CoreSearch(Numbered):
    def __init__(self, layout: Layout, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.ring = Ring(id=_RING, layout=layout, secret=bytes(32))
        self.keys = [bytes([97 + number]) * 32 for number in range(limits.peers)]
        self.done: dict[Any, Any] = {}
        self.pruned = 0

    # --- One core

    def made(self, index: int, kept: do.Kept) -> tuple[Core, Chance]:
        """Linked to all others by links with their numbers, over which nothing was said yet."""
        chance = Chance()
        key = self.keys[index]
        core = Core(kept, do.Options(key=key, run=1, name=self.name(index), booted=False), chance)
        core.start(0.0)
        core.asked(do.Publish(attrs=b"{}"), 0.0)
        for other in range(len(self.keys)):
            if other != index:
                hello = Hello(key=self.keys[other], run=1, name=self.name(other), ring=_RING if kept.ring else None)
                core.link_up(other, hello, 0.0, dialled=None)
        return core, chance

    def name(self, index: int) -> str:
        return chr(97 + index)

    def freeze(self, core: Core, chance: Chance, clock: float) -> int:
        chance.value = 0.0
        core._state.routing._hops = None  # what it remembers can be computed again
        core._waying._solving = None  # ways have nothing to do with blocks
        return self.number(Peer(self.state(core), pickle.dumps((core, chance, clock))))

    def state(self, core: Core) -> Any:
        state, removing, estate = core._state, core._removing, core._estate
        members = tuple(
            (one.key, one.home, one.settled, one.over, one.done, one.links)
            for one in sorted(core.members.values(), key=lambda one: one.key)
        )
        asks = frozenset((ask.target, ask.body) for ask in state.routing._asks.values())
        kept = replace(core.kept, version=0, tokens=tuple(core.tokens), removals=tuple(core.removals))
        heard = (frozenset(removing._promised), frozenset(removing._heard), removing._again)
        links = (frozenset(core.links), state.stale)
        given = frozenset(estate._given.items())
        return kept, members, asks, heard, given, links, (core.agreed, state.word, state.waited)

    def step(self, what: str, number: int, *more: Any) -> tuple[int, tuple[int, ...], bool]:
        """The core after it, the letters that it sends, and whether it begins anew with another key."""
        place = (what, number, more)
        if place not in self.done:
            core, chance, clock = pickle.loads(self.values[number].frozen)  # noqa: S301 - our own
            effects, clock = getattr(self, f"_{what}")(core, chance, clock, *more)
            letters, rekeyed = self._sent(core, effects)
            after = self.freeze(core, chance, clock)
            self._rises(core, self.values[number].state[0])
            self.done[place] = after, letters, rekeyed
        return self.done[place]

    def _sent(self, core: Core, effects: list[do.Effect]) -> tuple[tuple[int, ...], bool]:
        letters = []
        for effect in effects:
            if isinstance(effect, do.Send) and isinstance(effect.message, Routed):
                mine = self.keys.index(core.hello.key)
                message = effect.message
                letters.append(self.number((mine, effect.link, replace(message, number=message.number & 0xFFFFFFFF))))
        return tuple(dict.fromkeys(letters)), any(isinstance(effect, do.Rekey) for effect in effects)

    def _rises(self, core: Core, before: do.Kept) -> None:
        """C3, and C2 by the way."""
        versions = {block: token.version for token in core.tokens for block in range(token.start, token.stop)}
        for token in before.tokens:
            if any(versions.get(block, 0) < token.version for block in range(token.start, token.stop)):
                raise Violation("a version fell")

    def _received(self, core: Core, chance: Chance, clock: float, link: int, message: Message) -> Any:  # noqa: ARG002
        if isinstance(message, Routed):
            message = replace(message, number=message.number | 1 << 32)
        return core.received(link, message, clock), clock

    def _passes(self, core: Core, chance: Chance, clock: float, value: float) -> Any:
        """Time, until something is asked or changes on the disk; the links are kept alive."""
        before = self.state(core)[0]
        chance.value = value
        effects: list[do.Effect] = []
        for _ in range(_TURNS):
            clock = max(clock, min(core.due, clock + 10.0))
            for link in list(core.links):
                core.received(link, Pong(number=0), clock)
            effects = core.tick(clock)
            if self.state(core)[0] != before or self._sent(core, effects)[0]:
                break
        return effects, clock

    def _heard(self, core: Core, chance: Chance, clock: float, link: int, other: int) -> Any:  # noqa: ARG002
        """All that another knows, and its word that we know the same: nobody's disk goes back in time here."""
        theirs: Core = pickle.loads(self.values[other].frozen)[0]  # noqa: S301
        told = Records(
            members=tuple(theirs.members.values()), tokens=tuple(theirs.tokens), removals=tuple(theirs.removals)
        )
        assert len(told.tokens) <= MAX_TOKENS_AT_ONCE
        return core.received(link, told, clock) + core.received(link, Buckets(digests=()), clock), clock

    def _removes(self, core: Core, chance: Chance, clock: float, names: tuple[bytes, ...]) -> Any:  # noqa: ARG002
        return core.asked(do.Remove(keys=names), clock), clock

    def _cut(self, core: Core, chance: Chance, clock: float, link: int) -> Any:  # noqa: ARG002
        return core.link_down(link, clock), clock + 1.0

    # --- All of them

    def first(self) -> World:
        peers = []
        for index in range(len(self.keys)):
            core, chance = self.made(index, do.Kept())
            if index == 0:
                core.asked(do.Create(layout=self.ring.layout, ring=_RING, secret=bytes(32)), 1.0)
            else:
                core.received(0, Offer(ring=self.ring), 1.0)
            core, chance = self.made(index, replace(core.kept, version=0))
            clock = 0.0
            while clock < _STARTED:
                _, clock = self._passes(core, chance, clock, 0.0)
            peers.append(self.freeze(core, chance, clock))
        limits = self.limits
        return World(
            tuple(peers), frozenset(), 0, (limits.deaths, limits.kills, limits.removals, limits.cuts), 0, frozenset()
        )

    def _after(self, world: World, index: int, step: tuple[int, tuple[int, ...], bool]) -> World | None:
        after, letters, rekeyed = step
        peers = list(world.peers)
        peers[index] = after
        sent = world.letters | set(letters)
        if len(sent) > self.limits.letters:
            return None
        made = world._replace(peers=tuple(peers), letters=sent)
        return made._replace(rekeyed=made.rekeyed | 1 << index) if rekeyed else made

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        living = [at for at in range(len(self.keys)) if not (world.dead | world.rekeyed) >> at & 1]
        pairs = [(one, two) for one, two in permutations(living, 2) if (min(one, two), max(one, two)) not in world.cut]
        yield from self._broken(world, living, pairs)
        for shown, base, at, step in (*self._own(world, living), *self._between(world, living, pairs)):
            try:
                after = self._after(base, at, self.step(*step))
            except ConfigError:
                continue
            if after is not None and after != world:
                yield shown, after

    def _broken(self, world: World, living: list[int], pairs: list[tuple[int, int]]) -> Iterator[tuple[str, World]]:
        deaths, kills, removals, cuts = world.left
        for letter in world.letters:
            yield f"lose {self._shown(letter)}", world._replace(letters=world.letters - {letter})
        for at in living if deaths else ():
            gone = world._replace(dead=world.dead | 1 << at, left=(deaths - 1, kills, removals, cuts))
            yield f"{self.name(at)} dies", self._apart(gone, [(at, other) for other in living if other != at])
        for at in living if kills else ():
            yield f"{self.name(at)} is killed", self._killed(world, at)
        for one, two in pairs if cuts else ():
            if one < two:
                left = world._replace(left=(deaths, kills, removals, cuts - 1))
                yield f"{self.name(one)} loses {self.name(two)}", self._apart(left, [(one, two)])

    def _own(self, world: World, living: list[int]) -> Iterator[Step]:
        deaths, kills, removals, cuts = world.left
        for at in living:
            for value in _CHANCES:
                yield f"{self.name(at)} waits", world, at, ("passes", world.peers[at], value)
            for names in self._nameable(world, at) if removals else ():
                shown = f"{self.name(at)} removes {b''.join(key[:1] for key in names).decode()}"
                left = world._replace(left=(deaths, kills, removals - 1, cuts))
                yield shown, left, at, ("removes", world.peers[at], names)

    def _between(self, world: World, living: list[int], pairs: list[tuple[int, int]]) -> Iterator[Step]:
        for one, two in pairs:
            step = ("heard", world.peers[two], one, world.peers[one])
            yield f"gossip {self.name(one)}→{self.name(two)}", world, two, step
        for letter in world.letters:
            source, target, message = self.values[letter]
            if target in living:
                rest = world._replace(letters=world.letters - {letter})
                yield self._shown(letter), rest, target, ("received", world.peers[target], source, message)

    def _shown(self, letter: int) -> str:
        source, target, message = self.values[letter]
        return f"{type(message.body).__name__.lower()} {self.name(source)}→{self.name(target)}"

    def _nameable(self, world: World, at: int) -> Iterator[tuple[bytes, ...]]:
        gone = [
            other
            for other in range(len(self.keys))
            if other != at and (world.dead >> other & 1 or (min(at, other), max(at, other)) in world.cut)
        ]
        for chosen in range(1, 1 << len(gone)):
            yield tuple(self.keys[other] for place, other in enumerate(gone) if chosen >> place & 1)

    def _apart(self, world: World, pairs: list[tuple[int, int]]) -> World:
        """Links break, and what was on its way over them is lost."""
        for pair in pairs:
            for one, two in (pair, pair[::-1]):
                if not world.dead >> one & 1:
                    peers = list(world.peers)
                    peers[one] = self.step("cut", peers[one], two)[0]
                    world = world._replace(peers=tuple(peers))
        lost = {letter for letter in world.letters if {*self.values[letter][:2]} in [{*pair} for pair in pairs]}
        cut = world.cut | {(min(pair), max(pair)) for pair in pairs}
        return world._replace(letters=world.letters - lost, cut=cut)

    def _killed(self, world: World, at: int) -> World:
        deaths, kills, removals, cuts = world.left
        place = ("killed", world.peers[at])
        if place not in self.done:
            kept = self.values[world.peers[at]].state[0]
            core, chance = self.made(at, kept)
            self.done[place] = self.freeze(core, chance, 0.0)
        peers = list(world.peers)
        peers[at] = self.done[place]
        return world._replace(peers=tuple(peers), left=(deaths, kills - 1, removals, cuts))

    def check(self, world: World) -> None:
        kepts = [self.values[number].state[0] for number in world.peers]
        removed = {removal.key for kept in kepts for removal in kept.removals}
        held: dict[int, bytes] = {}
        for key, kept in zip(self.keys, kepts, strict=True):
            if key in removed or not kept.settled:
                continue
            mine = {block for token in kept.tokens if token.owner == key for block in range(token.start, token.stop)}
            for block in mine | ({kept.home} - {None}):
                if held.setdefault(block, key) != key:
                    raise Violation(f"block {block} is of {key[:1].decode()} and of {held[block][:1].decode()}")
