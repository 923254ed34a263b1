"""What the parts of a core share: the records it knows, its links, what is on disk, and the effects of this call."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from weft.mesh.flood import Flood, Names
from weft.mesh.known import Known
from weft.mesh.links import Link, Links
from weft.mesh.ring import Change, Run
from weft.mesh.routing import Routing
from weft.model.errors import Problem
from weft.model.mesh.effects import Effect, Keep, Kept, Options, Recalled, Say, Send
from weft.model.mesh.messages import Message, Offer, Root
from weft.model.mesh.records import Member, Ring, Token, peer_id
from weft.model.value import replace

RESTING: Final = 3600.0  # seconds in which nobody is given what was inherited
AHEAD: Final = 1000  # versions of our record that are ours to use before the disk must know
# Of a member's record: what leases and ways are made of.
SERVED: Final = ("home", "attrs", "name", "tunnels", "nat", "clear", "relays", "cannot")


class State:
    def __init__(self, kept: Kept, options: Options, chance: Callable[[], float]) -> None:
        self.options = options
        self.me = options.key
        self.chance = chance
        self.out: list[Effect] = []
        self.links = Links(options.key, self.out)
        self.routing = Routing(options.key, options.run, self.links, self.out)
        self.flood = Flood(chance)
        self.known = Known(options.key, kept.ring)
        for removal in kept.removals:
            self.known.remove(removal)
        self.known.moved(self.known.tokens.merge(kept.tokens))
        self.kept = kept
        self.version = self.began = kept.version
        self.agreed = False  # a neighbour that owns blocks has told us all that it knows of them
        self.waited = kept.ring is None  # for somebody who knows more than our disk
        self.word = False  # a peer of our ring has spoken
        self.used = True  # a pod had an address of our home block, for all that we know
        self.ringless: Problem | None = None  # why there is no ring
        self.stale = True  # our record does not say what is
        self.touched = False  # others have changed who has our blocks, or how to take that
        self._rests = dict.fromkeys(kept.resting, inf)  # by run: until when
        self.changing: list[Callable[[], None]] = []  # who has to know when we belong to another ring
        self._dirty = False
        self._changed: dict[bytes, None] = {}  # peers whose lease may be another

    @property
    def ring(self) -> Ring | None:
        return self.kept.ring

    @property
    def left(self) -> bool:
        return self.kept.left

    @property
    def alone(self) -> bool:
        """Nobody else belongs to our ring."""
        return {*self.known.tokens.owners, *self.known.members} <= {self.me}

    @property
    def sole(self) -> bool:
        """All blocks are ours, so that nobody else could know better; unless our disk is an old one."""
        return self.waited and self.known.tokens.owners == {self.me}

    @property
    def lone(self) -> bool:
        """And nothing is lost if we leave it."""
        return self.ring is not None and self.alone and not self.used

    def name(self, key: bytes) -> str:
        """For people."""
        member = self.known.members.get(key)
        return peer_id(member.name, key) if member else key[:4].hex()

    @property
    def resting(self) -> tuple[Run, ...]:
        return self.kept.resting

    def wake(self, now: float) -> None:
        """Blocks that have rested enough are given again."""
        if any(until <= now for until in self._rests.values()):
            self._rests = {run: until for run, until in self._rests.items() if until > now}
            self.keep(resting=tuple(sorted(self._rests)))

    def start(self, now: float) -> None:
        self._rests = dict.fromkeys(self._rests, now + RESTING)

    def rest(self, runs: list[Run], now: float) -> None:
        for start, stop in runs:
            over = [run for run in self._rests if run[0] < stop and start < run[1]]
            for run in over:
                del self._rests[run]
            whole = (min([start, *(run[0] for run in over)]), max([stop, *(run[1] for run in over)]))
            self._rests[whole] = now + RESTING
        self.keep(resting=tuple(sorted(self._rests)))

    # --- Effects

    def send(self, link: Link, message: Message) -> None:
        self.out.append(Send(link=link.number, message=message))

    def say(self, text: str, problem: Problem | None = None, blocks: Iterable[Run] = ()) -> None:
        self.out.append(Say(text=text, problem=problem, blocks=tuple(blocks)))

    def keep(self, **changes: object) -> None:
        """What has changed on disk; before anything that this call sends."""
        self.kept = replace(self.kept, **changes)
        self._dirty = True

    def effects(self) -> list[Effect]:
        """Of this call."""
        out = self.out.copy()
        self.out.clear()
        if self._dirty:
            self._dirty = False
            tokens, removals = tuple(self.known.tokens), tuple(self.known.removals)
            self.kept = replace(self.kept, tokens=tokens, removals=removals)
            out.insert(0, Keep(kept=self.kept))
        return out

    # --- Records

    def belong(self, ring: Ring | None) -> None:
        """Begin with a ring, or without one, and nothing of another."""
        for link in self.links:
            self.flood.close(link.number)
        self.known = Known(self.me, ring)
        self.routing.clear()
        self._changed.clear()
        self.keep(ring=ring, promise=None, proposal=None, home=None, settled=False, grant=None, resting=())
        self.agreed = self.word = False
        self.stale = True
        for tell in self.changing:
            tell()
        for link in list(self.links):
            self.greet(link)

    def greet(self, link: Link) -> None:
        """On a new link, and on each when we have a ring now: tell it, or compare what is known."""
        ring = self.ring
        if ring is None:
            return
        begins = link.dialled is not None
        if link.ring is None:
            self.send(link, Offer(ring=ring))
            link.ring = ring.id
            begins = True
        if link.ring == ring.id:
            self.flood.open(link.number)
            if begins:
                self.send(link, Root(digest=self.known.digest.root))

    def recall(self, recalled: Recalled) -> None:
        """Take over what an earlier run knew of others in this ring; `Kept` knows better what is ours.

        Without a ring, its members are at least peers to dial.
        """
        if self.ring is not None and recalled.ring != self.ring.id:
            return
        promised = () if self.kept.promise is None else self.kept.promise.names
        removals = self.known.removals
        tokens = [each for each in recalled.tokens if each.owner != self.me and not removals.is_removed(each.owner)]
        self.known.moved(self.known.tokens.merge(tokens, frozen={self.me, *promised}))
        for member in recalled.members:
            self.put(member)

    def merged(self, change: Change, now: float, came: int | None = None) -> None:
        """Tokens have changed: the digest, the leases and the others have to know."""
        if change.new:
            self.known.moved(change)
            self.touched = self.touched or any(token.owner == self.me for token in change.gone)
            self._changed.update(dict.fromkeys(sorted(self._homes(change.gone) ^ self._homes(change.new))))
            self.flood.tell(Names(tokens=dict.fromkeys(token.start for token in change.new)), now, but=came)

    def _homes(self, tokens: Iterable[Token]) -> set[bytes]:
        """The owners whose home is among these."""
        owners = ((token, self.known.members.get(token.owner)) for token in tokens)
        return {own.key for token, own in owners if own and own.home in range(token.start, token.stop)}

    def write(self, tokens: list[Token], now: float) -> Change:
        """Tokens that are ours to write."""
        change = self.known.tokens.merge(tokens)
        self.merged(change, now)
        self.keep()
        return change

    def put(self, member: Member) -> bool:
        old = self.known.members.get(member.key)
        if not self.known.put(member):
            return False
        if old is None or any(getattr(old, each) != getattr(member, each) for each in SERVED):
            self._changed[member.key] = None
        return True

    def mark(self, key: bytes) -> None:
        """A member is removed, or the way to it is another."""
        self._changed[key] = None

    def take_changed(self) -> dict[bytes, None]:
        changed, self._changed = self._changed, {}
        return changed
