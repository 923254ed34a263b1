"""A number that two peers share when they know the same records: 64 buckets, kept up to date record by record."""

from hashlib import blake2b

from weft.model.mesh.records import BUCKETS, Member, Removal, Token


def hashed(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def member_hash(member: Member) -> int:
    return hashed(b"m" + member.key + member.version.to_bytes(8, "big") + member.run.to_bytes(8, "big"))


def token_hash(token: Token) -> int:
    numbers = (token.start << 96) | (token.stop << 64) | token.version
    return hashed(b"t" + token.owner + numbers.to_bytes(16, "big"))


def removal_hash(removal: Removal) -> int:
    return hashed(b"r" + removal.key + removal.heir + removal.number.to_bytes(8, "big"))


def key_bucket(key: bytes) -> int:
    return key[0] * BUCKETS >> 8


class Digest:
    """Of records that are put in and taken out, each once: `flip` does both."""

    __slots__ = ("_root", "buckets")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self._root: int | None = None

    def flip(self, bucket: int, record: int) -> None:
        self.buckets[bucket] ^= record
        self._root = None

    @property
    def root(self) -> int:
        if self._root is None:
            self._root = hashed(b"".join(bucket.to_bytes(8, "big") for bucket in self.buckets))
        return self._root
