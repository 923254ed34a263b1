"""What peers know of each other, with its limits.

A peer is its key, 32 bytes of X25519. A ring's id has 16 bytes, runs and versions are of 64 bits, blocks are numbers
from 0. An address is `host:port`, an IPv6 host in brackets. Tuples of keys, tokens and numbers are sorted.
"""

from typing import Final

from weft.model.value import Value

KEY_SIZE: Final = 32
RING_SIZE: Final = 16
SECRET_SIZE: Final = 32  # of WireGuard's pre-shared key

MAX_HANDSHAKE: Final = 512  # bytes of a frame before the handshake is done
MAX_FRAME: Final = 1 << 20
MAX_UNFINISHED: Final = 16  # handshakes at once
HANDSHAKES_A_SECOND: Final = 64
HANDSHAKE_SECONDS: Final = 10.0
MAX_RECORD: Final = 4096  # bytes
MAX_NAME: Final = 63  # printable characters
MAX_ATTRS: Final = 1024  # bytes
MAX_NET_CONF: Final = 65536  # bytes
MAX_TEXT: Final = 512  # characters of a refusal
MAX_ENDPOINTS: Final = 8
MAX_LINKS: Final = 64
MAX_CANNOT: Final = 900  # of more, the lowest
MAX_PEERS: Final = 4096
MAX_BLOCKS: Final = 65536
MAX_HOPS: Final = 8
MAX_MEMBERS_AT_ONCE: Final = 200  # in one message of records, so that it is within a frame
MAX_TOKENS_AT_ONCE: Final = 8192
MAX_INHERITED: Final = 1024  # tokens in the record of one removal
MAX_REDIRECTS: Final = 4
BUCKETS: Final = 64


def short(key: bytes) -> int:
    """What records name a peer by in lists: the first 32 bits of its key. Two peers may share it."""
    return int.from_bytes(key[:4], "big")


class Layout(Value):
    """What a network configuration means for a ring: so many blocks, of which the first are never given."""

    net_conf: str
    blocks: int
    first: int


class Ring(Value):
    """What is fixed when a ring is created. `secret` is WireGuard's pre-shared key."""

    id: bytes
    layout: Layout
    secret: bytes

    def __repr__(self) -> str:
        return f"Ring({self.id.hex()}, {self.layout.blocks} blocks)"


# --- Records: each is written by one peer alone, and the higher version wins --------------------------------------


class Member(Value, gc=False):
    """A peer as it describes itself. `run` is drawn at each start; a version is never used twice, whatever the run.

    `links` and `cannot` are shorts. `home` is the block of its lease, `attrs` the lease's attributes as JSON, as etcd
    has them. Of its own removals, those with a number up to `over` are done or
    withdrawn.
    """

    key: bytes
    run: int
    version: int
    name: str
    endpoints: tuple[str, ...] = ()
    attrs: bytes = b""
    home: int | None = None
    settled: bool = False  # it owns blocks, of which a witness knows, and may be a witness itself
    links: tuple[int, ...] = ()
    cannot: tuple[int, ...] = ()
    over: int = 0


class Token(Value, gc=False):
    """The blocks from `start` up to `stop` are `owner`'s. For each block the highest version wins, then the lower key.

    The upper 32 bits of `version` are the number of the removal by which the blocks were inherited last.
    """

    start: int
    stop: int
    owner: bytes
    version: int


class Removal(Value, gc=False):
    """`heir` has everything of the peer `key`, now and when it turns up later. One per removed key, for ever.

    `tokens` are what it has inherited, as its own. They are told with the removal: who is free of its promise must not
    hear of them later than of what the removed peer has written meanwhile.
    """

    key: bytes
    heir: bytes
    number: int
    tokens: tuple[Token, ...] = ()


Record = Member | Token | Removal
