"""Records that come and go: what is new is passed on, and every half minute one neighbour is compared with."""

from collections.abc import Iterable
from typing import Final

from weft.mesh.copies import Copies
from weft.mesh.flood import Names
from weft.mesh.links import Link
from weft.mesh.removing import Removing
from weft.mesh.state import State
from weft.model.errors import Problem
from weft.model.mesh.effects import Send
from weft.model.mesh.messages import Buckets, Pull, Records, Root, Versions
from weft.model.mesh.records import VERSIONS, Member, Removal

COMPARED: Final = 30.0  # seconds, and half of it more or less
SAME: Final = Buckets(digests=())
WRITTEN: Final = VERSIONS >> 1  # no record of ours has come to that version: who says so has made it up
SOON: Final = 1.0  # before the first time that all was equal; doubled each time


class Gossip:
    def __init__(self, state: State, removing: Removing, copies: Copies) -> None:
        self._state = state
        self._copies = copies
        self._removing = removing
        self._pause = SOON
        self.due = 0.0

    def tick(self, now: float) -> None:
        state = self._state
        self._pause = COMPARED if state.agreed else min(2 * self._pause, COMPARED)
        self.due = now + self._pause * (0.5 + state.chance())
        links = list(state.links.of(state.known.ring)) if state.ring else []
        if links:
            link = links[int(state.chance() * len(links))]
            state.send(link, Root(digest=state.known.digest.root))

    def again(self, now: float) -> None:
        """A link is new, or the ring: compare soon."""
        if not self._state.agreed:
            self._pause = SOON
            self.due = min(self.due, now + SOON)

    def flush(self) -> None:
        state = self._state
        same: dict[tuple[tuple[object, ...], ...], list[Records]] = {}  # most links are sent the same
        for number, names in state.flood.take():
            key = (tuple(names.members), tuple(names.tokens), tuple(names.removals))
            if key not in same:
                same[key] = state.known.records(names)
            for records in same[key]:
                state.out.append(Send(link=number, message=records))

    def received(self, message: Records | Root | Buckets | Versions | Pull, link: Link, now: float) -> None:
        state = self._state
        if state.ring is None or link.ring != state.ring.id:
            return
        if isinstance(message, Records):
            self._take(message, link, now)
        elif isinstance(message, Versions):
            self._take(Records(tokens=message.tokens, removals=message.removals), link, now)
        if not state.agreed and self._has_told(message) and state.known.tokens.count(link.key):
            state.agreed = state.touched = True
        if not isinstance(message, Records):
            for answer in state.known.answer(message):
                state.send(link, answer)

    def _has_told(self, message: Records | Root | Buckets | Versions | Pull) -> bool:
        """Whether we know now all that the sender knows of blocks; it may know less, and soon more."""
        digest = self._state.known.digest
        if isinstance(message, Root):
            return message.digest == digest.root
        if isinstance(message, Buckets):
            return message == SAME or message.digests == tuple(digest.buckets)
        if isinstance(message, Records):
            return bool(message.whole)
        return isinstance(message, Versions) and bool(message.buckets)

    def returned(self, message: Records, link: Link, now: float) -> bool:
        """What a removed peer has to say of removals; whether it turns out not to be removed."""
        self._state.flood.tell(self._heard(message.removals, now), now)
        return not self._state.known.removals.is_removed(link.key)

    def _heard(self, removals: Iterable[Removal], now: float) -> Names:
        """What of these is news."""
        return Names(removals=dict.fromkeys(one.key for one in removals if self._removing.hear(one, now)))

    def _take(self, records: Records, link: Link, now: float) -> None:
        state = self._state
        new = self._heard(records.removals, now)
        if records.tokens:
            self._removing.merge(records.tokens, now, link.number)
        for member in records.members:
            if member.key == state.me:
                self._ours(member)
            elif state.put(member):
                new.members[member.key] = None
                self._copies.look(member, now)
        known = state.known
        state.flood.has(
            link.number,
            [member.key for member in records.members if known.members.get(member.key) == member],
            [token.start for token in records.tokens if token in known.tokens],
        )
        if new:
            state.flood.tell(new, now, but=link.number)
            self._removing.look()

    def _ours(self, member: Member) -> None:
        """Others hold a record of ours that we did not write in this run: go beyond it."""
        state = self._state
        if member.run == state.options.run or not state.version <= member.version < WRITTEN:
            return
        if member.version > state.began and self._copies.beyond(member.run):
            seen = f"a peer has version {member.version} of our record, our disk had {state.began}"
            hint = "The disk holds an older state of this node, or another machine has a copy of it."
            state.say("rolled back", Problem(code="MESH-004", where="mesh.json", seen=seen, hint=hint))
        state.version = member.version
        state.stale = True
