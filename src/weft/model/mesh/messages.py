"""What peers tell each other over their links."""

from weft.model.mesh.records import Member, Removal, Ring, Token
from weft.model.value import Value

# --- Between neighbours --------------------------------------------------------------------------------------------


class Hello(Value):
    """Told inside the handshake, which proves `key`."""

    key: bytes
    run: int
    name: str
    ring: bytes | None


class Offer(Value):
    """The ring, for a neighbour that knows none."""

    ring: Ring


class Founders(Value):
    """From one that has `--mesh-create` and no ring: whom its list names, itself included, as far as it knows them.

    `whole`: it has spoken with all that are listed, and none knows a ring.
    """

    keys: tuple[bytes, ...]
    whole: bool


class Records(Value):
    members: tuple[Member, ...] = ()
    tokens: tuple[Token, ...] = ()
    removals: tuple[Removal, ...] = ()


class Root(Value):
    """The digest of all records. Who has another one answers with `Buckets`."""

    digest: int


class Buckets(Value):
    """A digest for each of 64 buckets. Who has others answers with `Versions` of these buckets."""

    digests: tuple[int, ...]


class Versions(Value):
    """What the sender has in some buckets: keys and versions of members; tokens and removals whole.

    Who has something else sends it, and asks by `Pull` for the members of which it has less.
    """

    buckets: tuple[int, ...]
    members: tuple[tuple[bytes, int], ...] = ()
    tokens: tuple[Token, ...] = ()
    removals: tuple[Removal, ...] = ()


class Pull(Value):
    members: tuple[bytes, ...]


class Ping(Value):
    number: int


class Pong(Value):
    number: int


class Redirect(Value):
    """The sender has links enough: dial one of these. It closes the link."""

    addresses: tuple[str, ...]


# --- Between any two peers, over several links -----------------------------------------------------------------------


class Want(Value):
    """Asks for blocks. `home`: the asker has none at all."""

    home: bool


class Promise(Value):
    """Nobody but `proposer` inherits from `names`, until its record says that `number` is over."""

    proposer: bytes
    number: int
    names: tuple[bytes, ...]


class Grant(Value):
    """Blocks as the giver has written them on its disk; the answer to `Want`, and the same one if it is repeated.

    `ring` is all that the giver knows, so that the taker knows every owner that the giver does; none is sent on to a
    witness. The giver's own promise binds the taker, too. Unasked, from one that leaves, it is answered by `Ack`.
    `refused` says why there are no tokens.
    """

    giver: bytes
    taker: bytes
    home: int | None = None
    tokens: tuple[Token, ...] = ()
    ring: tuple[Token, ...] = ()
    promise: Promise | None = None
    refused: str = ""


class Note(Value):
    """A grant for the witness to keep on its disk; answered by `Ack`."""

    grant: Grant


class Propose(Value):
    """To every peer without a name in it; answered by `Ack`."""

    promise: Promise


class Ack(Value):
    """`refused` is empty or says why. To `Propose`: a promise with all that the promiser knows.

    `peers` are the keys of all members that it knows, `holder` is the promise that it has given before, if it refuses
    for that.
    """

    refused: str = ""
    holder: Promise | None = None
    tokens: tuple[Token, ...] = ()
    removals: tuple[Removal, ...] = ()
    peers: tuple[bytes, ...] = ()


class Routed(Value):
    """`number` is the asker's, in answers too; it is never used twice in a run."""

    source: bytes
    target: bytes
    ring: bytes
    number: int
    answer: bool
    hops: int
    body: Want | Grant | Note | Propose | Ack


Message = Offer | Founders | Records | Root | Buckets | Versions | Pull | Ping | Pong | Redirect | Routed
