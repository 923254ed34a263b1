"""What becomes of a new link: the same ring, none on one side, or two rings that cannot be one.

A peer that owns all blocks alone, and whose block never had a pod, drops its ring for the other's; of two such peers
the one whose ring has the higher id.
"""

from math import inf
from typing import Final

from weft.mesh.flood import in_frames
from weft.mesh.links import Link
from weft.mesh.recent import Recent
from weft.mesh.state import State
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.effects import Adopt
from weft.model.mesh.messages import Hello, Offer
from weft.model.mesh.records import Member
from weft.model.value import replace

QUIET: Final = 300.0  # seconds between two words about one other ring
LATELY: Final = 180.0  # twice the longest pause between two dials: links to other rings do not last


class Meeting:
    def __init__(self, state: State) -> None:
        self._state = state
        self._said = Recent[bytes, float]()
        # Peers of other rings, when they had a link last, and their record of then: with a newer one they are of ours.
        self._seen = Recent[bytes, tuple[Hello, float, Member | None]]()
        self._wanted: bytes | None = None  # the ring to adopt, and no other
        self._until = -inf  # when our own is not dropped for it any more

    def met(self, link: Link, now: float) -> None:
        """A link is new, or belongs to a ring now."""
        state = self._state
        link.removed = state.known.removals.is_removed(link.key) and link.ring == state.known.ring
        if link.removed:
            for records in in_frames(removals=state.known.removals):
                state.send(link, records)
            return
        if state.ring is None or link.ring is None or link.ring == state.ring.id:
            state.greet(link)
            return
        other, ours = link.ring, state.ring.id
        self._saw(link, other, now)
        if now >= self._until:
            self._wanted = None
        wanted = other == self._wanted
        empty = state.lone and self._wanted is None and not (link.hello.lone and ours < other)
        if wanted or empty:
            state.say(f"drops its {'empty ' * empty}ring {ours[:4].hex()} for {other[:4].hex()}")
            state.belong(None)
            for each in list(state.links) if wanted else [link]:
                state.links.close(each, "joins the other ring")
            return
        if now >= self._said.get(other, 0.0):
            self._said[other] = now + QUIET
            rings = other[:4].hex(), ours[:4].hex()
            seen = f"{link.id} is of ring {rings[0]}, this node of {rings[1]}"
            hint = f"Type 'weft mesh adopt {rings[0]}' on all nodes of this ring, or adopt {rings[1]} on theirs."
            state.say("two rings", Problem(code="MESH-003", where="the mesh", seen=seen, hint=hint))
        state.links.close(link, "another ring")

    def offered(self, link: Link, message: Offer, now: float) -> None:
        state, ring = self._state, message.ring
        link.ring = ring.id
        if state.ring is not None:
            if state.ring.id != ring.id:
                self.met(link, now)
            return
        if self._wanted not in {None, ring.id}:
            self._saw(link, ring.id, now)
            state.links.close(link, "another ring is to be adopted")
            return
        self._wanted = None
        state.belong(ring)
        for other in list(state.links):
            if other.ring not in {None, ring.id}:
                self.met(other, now)

    def _saw(self, link: Link, ring: bytes, now: float) -> None:
        self._seen[link.key] = replace(link.hello, ring=ring), now, self._state.known.members.get(link.key)

    def strangers(self, now: float) -> list[Hello]:
        ours, members = self._state.known.ring, self._state.known.members
        found = {
            key: hello
            for key, (hello, when, record) in self._seen.items()
            if hello.ring != ours and now < when + LATELY and members.get(key) == record
        }
        for link in self._state.links:
            found.pop(link.key, None)
            if link.ring is None or link.ring != ours:
                found[link.key] = replace(link.hello, ring=link.ring)
        return list(found.values())

    def check(self, command: Adopt, now: float) -> None:
        """Raises `ConfigError`."""
        seen = "no neighbour is of that ring"
        rings = {hello.ring for hello in self.strangers(now) if hello.ring is not None}
        if command.ring == self._state.known.ring:
            seen = f"this node is of ring {command.ring[:4].hex()}"
        elif command.ring in rings:
            return
        hint = f"Neighbours are of these: {', '.join(sorted(ring[:4].hex() for ring in rings)) or 'none'}."
        raise ConfigError(Problem("MESH-001", "weft mesh adopt", seen, "another ring", hint=hint))

    def adopt(self, command: Adopt, now: float) -> None:
        """Our own ring is dropped when a link with the other one is up, not before."""
        self._wanted, self._until = command.ring, now + LATELY
