"""What peers tell each other over their links."""

from typing import Annotated

from msgspec import Meta

from weft.model.mesh.records import (
    BUCKETS,
    MAX_HOPS,
    MAX_MEMBERS_AT_ONCE,
    MAX_PEERS,
    MAX_REDIRECTS,
    MAX_REMOVALS,
    MAX_TEXT,
    MAX_TOKENS_AT_ONCE,
    Address,
    Block,
    Key,
    Keys,
    Member,
    Name,
    Number,
    Removal,
    Ring,
    RingId,
    Token,
)
from weft.model.value import Value

Text = Annotated[str, Meta(max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]  # for people
Tokens = Annotated[tuple[Token, ...], Meta(max_length=MAX_TOKENS_AT_ONCE)]
Removals = Annotated[tuple[Removal, ...], Meta(max_length=MAX_REMOVALS)]
SomeBuckets = Annotated[tuple[Annotated[int, Meta(ge=0, lt=BUCKETS)], ...], Meta(max_length=BUCKETS)]

# --- Between neighbours --------------------------------------------------------------------------------------------


class Hello(Value, array_like=True):
    """Told inside the handshake, which proves `key`. `lone`: it owns all of a ring that was never used."""

    key: Key
    run: Number
    name: Name
    ring: RingId | None
    lone: bool = False


class Offer(Value, array_like=True, tag=1):
    """The ring, for a neighbour that knows none."""

    ring: Ring


class Founders(Value, array_like=True, tag=2):
    """From one that has `--mesh-create` and no ring: whom its list names, itself included, as far as it knows them.

    `whole`: it has spoken with all that are listed, and none knows a ring.
    """

    keys: Keys
    whole: bool


class Records(Value, array_like=True, tag=3):
    """`whole`: of these buckets this was the last of all tokens and removals that the sender knows."""

    members: Annotated[tuple[Member, ...], Meta(max_length=MAX_MEMBERS_AT_ONCE)] = ()
    tokens: Tokens = ()
    removals: Removals = ()
    whole: SomeBuckets = ()


class Root(Value, array_like=True, tag=4):
    """The digest of all records; answered by `Buckets`."""

    digest: Number


class Buckets(Value, array_like=True, tag=5):
    """A digest for each of 64 buckets; none if the root is the same. Who has others answers with their `Versions`."""

    digests: Annotated[tuple[Number, ...], Meta(max_length=BUCKETS)]


class Versions(Value, array_like=True, tag=6):
    """What the sender has in some buckets: keys and versions of members; tokens and removals whole.

    Who has something else sends it, and asks by `Pull` for the members of which it has less.
    """

    buckets: SomeBuckets
    members: Annotated[tuple[tuple[Key, Number], ...], Meta(max_length=MAX_PEERS)] = ()
    tokens: Tokens = ()
    removals: Removals = ()


class Pull(Value, array_like=True, tag=7):
    members: Keys


class Ping(Value, array_like=True, tag=8):
    number: Number


class Pong(Value, array_like=True, tag=9):
    number: Number


class Redirect(Value, array_like=True, tag=10):
    """The sender has links enough: dial one of these. It closes the link."""

    addresses: Annotated[tuple[Address, ...], Meta(max_length=MAX_REDIRECTS)]


class Copied(Value, array_like=True, tag=12):
    """Another machine has the receiver's key and this `run`, and answers."""

    run: Number


class Seen(Value, array_like=True, tag=13):
    """Where the sender sees the receiver's WireGuard."""

    endpoint: Address


# --- Between any two peers, over several links -----------------------------------------------------------------------


class Want(Value, array_like=True, tag=17):
    """Asks for blocks. `home`: the asker has none at all."""

    home: bool


class Promise(Value, array_like=True):
    """Nobody but `proposer` inherits from `names`, until that has come about or its record says that it never will."""

    proposer: Key
    number: Number
    names: Keys


class Grant(Value, array_like=True, tag=18):
    """Blocks as the giver has written them on its disk; the answer to `Want`, and the same one if it is repeated.

    `ring` is all that the giver knows, so that the taker knows every owner that the giver does; none is sent on to a
    witness. The giver's own promise binds the taker, too. Unasked, from one that leaves, it is answered by `Ack`.
    `refused` says why there are no tokens.
    """

    giver: Key
    taker: Key
    home: Block | None = None
    tokens: Tokens = ()
    ring: Tokens = ()
    promise: Promise | None = None
    refused: Text = ""


class Note(Value, array_like=True, tag=19):
    """A grant for the witness to keep on its disk; answered by `Ack`."""

    grant: Grant


class Propose(Value, array_like=True, tag=20):
    """To every peer without a name in it; answered by `Ack`."""

    promise: Promise


class Ack(Value, array_like=True, tag=21):
    """`refused` is empty or says why. To `Propose`: a promise with all that the promiser knows.

    `peers` are the keys of all members that it knows, `holder` is the promise that it has given before, if it refuses
    for that, and `number` the highest of a removal that it has seen.
    """

    refused: Text = ""
    holder: Promise | None = None
    tokens: Tokens = ()
    removals: Removals = ()
    peers: Keys = ()
    number: Number = 0


class Routed(Value, array_like=True, tag=11):
    """`number` is the asker's, in answers too; it is never used twice in a run."""

    source: Key
    target: Key
    ring: RingId
    number: Number
    answer: bool
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    body: Want | Grant | Note | Propose | Ack


Message = (
    Offer | Founders | Records | Root | Buckets | Versions | Pull | Ping | Pong | Redirect | Copied | Seen | Routed
)
