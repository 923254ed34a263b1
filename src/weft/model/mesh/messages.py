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
    """What the sender has in some buckets, by what a record is called there, and its version.

    Who has newer sends it; who has older or none answers with `Pull`.
    """

    buckets: tuple[int, ...]
    versions: tuple[tuple[int, int], ...]


class Pull(Value):
    ids: tuple[int, ...]


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


class Grant(Value):
    """Tokens as the giver has written them; all that it knows, so that the taker sees who owns blocks.

    The answer to `Want`; unasked from one that leaves, and then answered by `Ack`. `refused` says why there are none.
    """

    tokens: tuple[Token, ...] = ()
    removals: tuple[Removal, ...] = ()
    refused: str = ""


class Note(Value):
    """A grant for the witness to keep on its disk; answered by `Ack`."""

    tokens: tuple[Token, ...]


class Propose(Value):
    """To every peer that is not named; answered by `Ack`. `number` counts the proposer's removals."""

    number: int
    named: tuple[bytes, ...]


class Ack(Value):
    """`refused` is empty or says why. To `Propose`: a promise with all that the promiser knows.

    `peers` are the keys of all members that it knows, `holder` is whom it has promised before, if it refuses for that.
    """

    refused: str = ""
    holder: bytes = b""
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
