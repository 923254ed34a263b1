"""What peers know of each other, with its limits, which decoding checks (`weft.wire.mesh`) and making a value does not.

A peer is its key, 32 bytes of X25519. A ring's id has 16 bytes, runs and versions are of 64 bits, blocks are numbers
from 0. An address is `host:port`, an IPv6 host in brackets. Tuples of keys, tokens and numbers are sorted.
"""

from typing import Annotated, Final

from msgspec import Meta

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
MAX_REDIRECTS: Final = 4
MAX_REMOVALS: Final = 1024  # that are remembered: those of before are forgotten
BUCKETS: Final = 64
MAX_AGE: Final = 1 << 62
VERSIONS: Final = 1 << 63  # what is not below is refused: nobody could write a higher one

# New fields come last and have defaults: a peer of an earlier weft leaves them out.
Number = Annotated[int, Meta(ge=0)]  # of 64 bits, which is the most that msgpack has
Version = Annotated[int, Meta(ge=0, le=VERSIONS - 1)]
Short = Annotated[int, Meta(ge=0, lt=1 << 32)]
Block = Annotated[int, Meta(ge=0, lt=MAX_BLOCKS)]
Key = Annotated[bytes, Meta(min_length=KEY_SIZE, max_length=KEY_SIZE)]
RingId = Annotated[bytes, Meta(min_length=RING_SIZE, max_length=RING_SIZE)]
Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=r"^[ -~]+\Z")]
Address = Annotated[str, Meta(max_length=64, pattern=r"^([0-9.]+|\[[0-9a-f:.]+\]):[0-9]{1,5}\Z")]  # no name to look up
Keys = Annotated[tuple[Key, ...], Meta(max_length=MAX_PEERS)]
Addresses = Annotated[tuple[Address, ...], Meta(max_length=MAX_ENDPOINTS)]
Nat = Annotated[int, Meta(ge=0, lt=1 << 8)]

NO_NAT: Final = 0  # none was seen
ONE_PORT: Final = 1  # a NAT that keeps one port, the same for all peers
MANY_PORTS: Final = 2  # one that takes another port for each


def short(key: bytes) -> int:
    """What records name a peer by in lists: the first 32 bits of its key. Two peers may share it."""
    return int.from_bytes(key[:4], "big")


def peer_id(name: str, key: bytes) -> str:
    """What people, and leases, call a peer: two nodes may have one name."""
    return f"{name}-{key[:4].hex()}"


class Layout(Value, array_like=True):
    """What a network configuration means for a ring: so many blocks, of which the first are never given."""

    net_conf: Annotated[str, Meta(max_length=MAX_NET_CONF)]
    blocks: Annotated[int, Meta(ge=1, le=MAX_BLOCKS)]
    first: Block


class Ring(Value, array_like=True):
    """What is fixed at a ring's creation, so `secret`, too: WireGuard's pre-shared key is to be made of it."""

    id: RingId
    layout: Layout
    secret: Annotated[bytes, Meta(min_length=SECRET_SIZE, max_length=SECRET_SIZE)]

    def __repr__(self) -> str:
        return f"Ring({self.id.hex()}, {self.layout.blocks} blocks)"


# --- Records: each is written by one peer alone, and the higher version wins --------------------------------------


class Member(Value, array_like=True, gc=False):
    """A peer as it describes itself. `run` is drawn at each start; a version is never used twice, whatever the run.

    `links` and `cannot` are shorts. `home` is the block of its lease, `attrs` the lease's attributes as JSON, as etcd
    has them. Its own removals up to the number `over` are over: `done` was the last that came about, the others were
    withdrawn. `endpoints` are where it is dialled, `tunnels` where its WireGuard may be reached: empty if it has none.
    `clear`: it takes vxlan. `relays`: others' packets may go by it. `further` is what a later weft puts behind these,
    as it came: it goes on to peers that understand it.
    """

    key: Key
    run: Number
    version: Version
    name: Name
    endpoints: Addresses = ()
    attrs: Annotated[bytes, Meta(max_length=MAX_ATTRS)] = b""
    home: Block | None = None
    settled: bool = False  # it owns blocks, of which a witness knows, and may be a witness itself
    links: Annotated[tuple[Short, ...], Meta(max_length=MAX_LINKS)] = ()
    cannot: Annotated[tuple[Short, ...], Meta(max_length=MAX_CANNOT)] = ()
    over: Number = 0
    done: Number = 0
    tunnels: Addresses = ()
    nat: Nat = NO_NAT
    clear: bool = True
    relays: bool = True
    further: tuple[bytes, ...] = ()  # of msgpack each; stays last


class Token(Value, array_like=True, gc=False):
    """The blocks from `start` up to `stop` are `owner`'s. For each block the highest version wins, then the lower key.

    The upper 32 bits of `version` are the number of the removal by which the blocks were inherited last.
    """

    start: Block
    stop: Annotated[int, Meta(ge=1, le=MAX_BLOCKS)]
    owner: Key
    version: Number


class Removal(Value, array_like=True, gc=False):
    """`heir` has everything of the peer `key`, now and when it turns up later. One per removed key.

    `age` is above those of all removals that the heir knew. Those of the highest age are remembered, so all come to
    the same ones, whatever each has forgotten.

    `tokens` are what it has inherited, as its own. They are told with the removal: who is free of its promise must not
    hear of them later than of what the removed peer has written meanwhile.
    """

    key: Key
    heir: Key
    number: Number
    tokens: Annotated[tuple[Token, ...], Meta(max_length=MAX_TOKENS_AT_ONCE)] = ()
    age: Annotated[int, Meta(ge=0, le=MAX_AGE)] = 0


Record = Member | Token | Removal
