"""What becomes of a new link: the same ring, none on one side, or two rings that cannot be one.

A peer that owns all blocks alone, and whose block never had a pod, drops its ring for the other's; of two such peers
the one whose ring has the higher id.
"""

from weft.mesh.flood import in_frames
from weft.mesh.links import Link
from weft.mesh.recent import Recent
from weft.mesh.state import State
from weft.model.errors import ConfigError, Problem
from weft.model.mesh.effects import Adopt
from weft.model.mesh.messages import Offer

QUIET = 300.0  # seconds between two words about one other ring


class Meeting:
    def __init__(self, state: State) -> None:
        self._state = state
        self._said = Recent[bytes, float]()
        self._wanted: bytes | None = None  # the ring to adopt, and no other

    def met(self, link: Link, now: float) -> None:
        """A link is new, or belongs to a ring now."""
        state = self._state
        link.removed = link.key in state.known.removals and link.ring == state.known.ring
        if link.removed:
            for records in in_frames(removals=state.known.removals):
                state.send(link, records)
            return
        if state.ring is None or link.ring is None or link.ring == state.ring.id:
            state.greet(link)
            return
        other, ours = link.ring, state.ring.id
        empty = state.lone and self._wanted is None and not (link.hello.lone and ours < other)
        if empty or other == self._wanted:
            state.say(f"drops its {'empty ' * empty}ring {ours[:4].hex()} for {other[:4].hex()}")
            state.belong(None)
            state.links.close(link, "joins the other ring")
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
            state.links.close(link, "another ring is to be adopted")
            return
        self._wanted = None
        state.belong(ring)
        for other in list(state.links):
            if other.ring not in {None, ring.id}:
                self.met(other, now)

    def adopt(self, command: Adopt) -> None:
        """Raises `ConfigError`."""
        state = self._state
        if state.ring is not None and state.ring.id == command.ring:
            seen, expected = f"this node is of ring {command.ring[:4].hex()}", "another ring"
            where, hint = "weft mesh adopt", "Type it on the nodes that are of another one."
            raise ConfigError(Problem(code="MESH-001", where=where, seen=seen, expected=expected, hint=hint))
        self._wanted = command.ring  # ours is kept until somebody of that one answers
