"""All records that a peer knows, their digest, and what two peers send each other until they know the same."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from weft.mesh.digest import Digest, key_bucket, member_hash, removal_hash, token_hash
from weft.mesh.flood import Names, in_frames
from weft.mesh.graph import Neighbours
from weft.mesh.removal import Removals
from weft.mesh.ring import Change, Tokens
from weft.model.mesh.messages import Buckets, Message, Pull, Records, Root, Versions
from weft.model.mesh.records import (
    BUCKETS,
    MAX_PEERS,
    VERSIONS,
    Layout,
    Member,
    Removal,
    Ring,
)
from weft.model.value import replace

_R = TypeVar("_R", Member, Removal)
_NO_BLOCKS: Final = Layout(net_conf="", blocks=0, first=0)


class Known:
    """Tokens and removals are merged by their owner, who tells the digest by `moved` and `removed`."""

    def __init__(self, me: bytes, ring: Ring | None) -> None:
        self.ring = ring.id if ring else None
        self.members: dict[bytes, Member] = {}
        self.removals = Removals()
        self.tokens = Tokens(ring.layout if ring else _NO_BLOCKS)
        self.digest = Digest()
        self.neighbours = Neighbours(me)
        self.epoch = 0  # rises when a list of links changes

    def put(self, member: Member) -> bool:
        """Take a member if it is newer than ours."""
        key = member.key
        old = self.members.get(key)
        if member.version >= VERSIONS:
            return False
        if old is None:
            if self.removals.is_removed(key) or len(self.members) >= MAX_PEERS:
                return False
            self.neighbours.add(key)
            self.epoch += 1
        else:
            if (member.version, member.run) <= (old.version, old.run):
                return False
            self.digest.flip(key_bucket(key), member_hash(old))
            self.epoch += old.links != member.links
        self.members[key] = member
        self.digest.flip(key_bucket(key), member_hash(member))
        return True

    def moved(self, change: Change) -> None:
        """Tokens have changed."""
        for token in (*change.gone, *change.new):
            if token.owner:
                self.digest.flip(self._bucket(token.start), token_hash(token))

    def remove(self, removal: Removal) -> bool:
        """Take a removal if it is new, or later than the one before, and among the last; the member goes."""
        key = removal.key
        old = self.removals.last_of(key)
        if self.removals.merge(removal) is None:
            return False
        if old:
            self.digest.flip(key_bucket(key), removal_hash(old))
        self.digest.flip(key_bucket(key), removal_hash(removal))
        if oldest := self.removals.forget():
            self.digest.flip(key_bucket(oldest.key), removal_hash(oldest))
            if oldest is removal:
                return False
        if self.removals.is_removed(key) and (member := self.members.pop(key, None)):
            self.digest.flip(key_bucket(key), member_hash(member))
            self.neighbours.remove(key)
            self.epoch += 1
        return True

    def records(self, names: Names) -> list[Records]:
        """What is known now under these names."""
        tokens = (self.tokens.at(start) for start in names.tokens)
        return in_frames(
            [self.members[key] for key in names.members if key in self.members],
            dict.fromkeys(token for token in tokens if token),
            [one for key in names.removals if (one := self.removals.last_of(key))],
        )

    def answer(self, message: Root | Buckets | Versions | Pull) -> Iterator[Message]:
        """The next step of comparing what the sender knows with what we know."""
        if isinstance(message, Root):
            same = message.digest == self.digest.root
            yield Buckets(digests=() if same else tuple(self.digest.buckets))
        elif isinstance(message, Buckets):
            pairs = zip(message.digests, self.digest.buckets, strict=False)
            yield from self._versions({at for at, (theirs, ours) in enumerate(pairs) if theirs != ours})
        elif isinstance(message, Pull):
            yield from in_frames([self.members[key] for key in message.members if key in self.members])
        else:
            yield from self._difference(message)

    def _versions(self, buckets: set[int]) -> Iterator[Versions]:
        """All in some buckets, in messages within a frame each, that may have some of a bucket's tokens alone."""
        tokens = [token for token in self.tokens if self._bucket(token.start) in buckets]
        for records in in_frames((), tokens, self._of(self.removals, buckets)):
            yield Versions(buckets=(), tokens=records.tokens, removals=records.removals)
        members = tuple((one.key, one.version) for one in self._of(self.members.values(), buckets))
        yield Versions(buckets=tuple(sorted(buckets)), members=members)

    def _difference(self, theirs: Versions) -> Iterator[Message]:
        """`theirs` has been merged, so that what differs now is ours alone."""
        buckets = set(theirs.buckets)
        if not buckets:  # a part, of which the last follows
            return
        versions = dict(theirs.members)
        tokens = [token for token in self.tokens if self._bucket(token.start) in buckets]
        *parts, last = in_frames((), tokens, self._of(self.removals, buckets)) or [Records()]
        yield from (*parts, replace(last, whole=theirs.buckets))
        members = self._of(self.members.values(), buckets)
        yield from in_frames([one for one in members if one.version > versions.get(one.key, -1)])
        known = ((key, self.members.get(key)) for key in versions if not self.removals.is_removed(key))
        if keys := tuple(key for key, one in known if one is None or one.version < versions[key]):
            yield Pull(members=keys)

    def _of(self, records: Iterable[_R], buckets: set[int]) -> list[_R]:
        return [one for one in records if key_bucket(one.key) in buckets]

    def _bucket(self, start: int) -> int:
        return start * BUCKETS // self.tokens.layout.blocks
