"""What peers of a mesh say over TCP: bytes to values and back.

    greeting    `weft`, lowest version, highest version, flags (bit 0: has a password), zero: each side's first 8 bytes
    frame       length (u32, big-endian), that many bytes
    message     an array of msgpack that begins with the number of its kind (`weft.model.mesh.messages`)

The greetings are followed by three frames of the handshake (`weft.wire.noise`), whose prologue they are: the
initiator's, then the responder's. Each frame behind them seals one message; the first of each side is its `Hello`,
which has no number. Where the third frame shows another password, the responder answers it with an empty frame.

Messages of unknown kinds and further fields of known ones are ignored; those of a member are passed on with it. The
integers of its `links` and `cannot` are joined, four bytes each.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta, MsgspecError, Raw, field, msgpack

from weft.model.mesh.messages import (
    Ack,
    Buckets,
    Copied,
    Founders,
    Grant,
    Hello,
    Message,
    Note,
    Offer,
    Ping,
    Pong,
    Pull,
    Records,
    Redirect,
    Removals,
    Root,
    Routed,
    Seen,
    SomeBuckets,
    Tokens,
    Versions,
)
from weft.model.mesh.records import (
    MAX_CANNOT,
    MAX_FRAME,
    MAX_LINKS,
    MAX_MEMBERS_AT_ONCE,
    MAX_RECORD,
    Member,
    Token,
)
from weft.model.value import Value, fields_of
from weft.wire.noise import TAG

VERSION: Final = 1
GREETING: Final = Struct(">4sBBBB")
LENGTH: Final = Struct(">I")
_MAGIC: Final = b"weft"
_HAS_PASSWORD: Final = 1

# What is wrong with what a peer has sent: MESH-006 is counted by these.
Kind = Literal["greeting", "version", "handshake", "length", "seal", "message", "ring", "late", "many"]


class Hostile(ValueError):
    """What came does not keep to the protocol. The link it came by is of no more use."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind: Kind = kind


# --- Greetings and frames ---------------------------------------------------------------------------------------------


class Greeting(Value):
    password: bool
    lowest: int = VERSION
    highest: int = VERSION


def greeting_bytes(greeting: Greeting) -> bytes:
    return GREETING.pack(_MAGIC, greeting.lowest, greeting.highest, _HAS_PASSWORD * greeting.password, 0)


def read_greeting(data: bytes) -> Greeting:
    """Raises `Hostile`, also if there is no version that both speak."""
    magic, lowest, highest, flags, _ = GREETING.unpack(data)
    if magic != _MAGIC:
        raise Hostile("greeting", f"{data!r} is no greeting of a weft")
    if not lowest <= VERSION <= highest:
        older = "this weft" if lowest > VERSION else "that one"
        spoken = f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"
        raise Hostile("version", f"it speaks {spoken} of the protocol, this weft version {VERSION}: {older} is older")
    return Greeting(password=bool(flags & _HAS_PASSWORD), lowest=lowest, highest=highest)


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def frame_size(head: bytes, *, limit: int) -> int:
    """Raises `Hostile`."""
    (size,) = LENGTH.unpack(head)
    if size > limit:
        raise Hostile("length", f"a frame of {size} bytes; at most {limit} are allowed")
    return int(size)


# --- Messages ---------------------------------------------------------------------------------------------------------


def _with_packed(kind: Any) -> Any:
    """The type with some lists of numbers joined, and all else as it is."""
    packed = {name: Annotated[bytes, Meta(max_length=4 * most)] for name, most in _PACKED.items()}
    fields = [
        (each.name, packed.get(each.name, each.type), field(default=b"" if each.name in packed else each.default))
        for each in msgspec.structs.fields(kind)
        if each.name != "further"
    ]
    return msgspec.defstruct(f"_{kind.__name__}", fields, array_like=True, gc=False)


_PACKED: Final = {"links": MAX_LINKS, "cannot": MAX_CANNOT}
_Member: Final = _with_packed(Member)
_WHOLE_MEMBER: Final = b"\xdc" + len(_Member.__struct_fields__).to_bytes(2, "big")  # how a member without more begins


class _Records(Value, array_like=True, tag=Records.__struct_config__.tag):
    """`Records`, with each member as its bytes, of which there is a most."""

    members: Annotated[tuple[Raw, ...], Meta(max_length=MAX_MEMBERS_AT_ONCE)] = ()
    tokens: Tokens = ()
    removals: Removals = ()
    whole: SomeBuckets = ()


_OTHERS: Final = Offer | Founders | Root | Buckets | Versions | Pull | Ping | Pong | Redirect | Copied | Seen | Routed
_encode: Final = msgpack.Encoder().encode
_decode_message: Final = msgpack.Decoder(_Records | _OTHERS).decode
_decode_member: Final = msgpack.Decoder(_Member).decode
_decode_hello: Final = msgpack.Decoder(Hello).decode
_decode_parts: Final = msgpack.Decoder(tuple[Raw, ...]).decode
_UNREADABLE: Final = (MsgspecError, UnicodeDecodeError, RecursionError)


def _tags(union: Any) -> frozenset[object]:
    return frozenset(each.__struct_config__.tag for each in get_args(union))


_TAGS: Final = _tags(Message)
_BODY: Final = Routed.__struct_fields__.index("body") + 1
_BODY_TAGS: Final = _tags(Routed.__annotations__["body"])


def hello_bytes(hello: Hello) -> bytes:
    return _encode(hello)


def read_hello(data: bytes, key: bytes) -> Hello:
    """`key` is the one that the handshake has proved. Raises `Hostile`."""
    try:
        hello = _decode_hello(data)
    except _UNREADABLE as error:
        raise Hostile("message", str(error)) from None
    if hello.key != key:
        raise Hostile("message", "it claims another key than its own")
    return hello


def encode(message: Message) -> bytes:
    """Raises `ValueError` for one that is too long for a frame."""
    said: object = message
    if isinstance(message, Records):
        members = tuple(Raw(_member_bytes(each)) for each in message.members)
        said = _Records(members=members, tokens=message.tokens, removals=message.removals, whole=message.whole)
    data = _encode(said)
    if len(data) > MAX_FRAME - TAG:
        raise ValueError(f"a message of {len(data)} bytes")
    return data


def decode(data: bytes) -> Message | None:
    """None for a kind of message that this weft does not know. Raises `Hostile`."""
    try:
        said = _decode_message(data)
        message = _records(said) if isinstance(said, _Records) else said
    except _UNREADABLE as error:
        if _is_unknown(data):
            return None
        raise Hostile("message", str(error)) from None
    if any(token.start >= token.stop for token in _tokens(message)):
        raise Hostile("message", "a token of no blocks")
    return message


def _member_bytes(member: Member) -> bytes:
    fields = fields_of(member)
    further = fields.pop("further")
    for name in _PACKED:
        fields[name] = _joined(fields[name])
    data = _encode(_Member(**fields))
    return _encode((*_decode_parts(data), *map(Raw, further))) if further else data


def _joined(shorts: tuple[int, ...]) -> bytes:
    return b"".join(each.to_bytes(4, "big") for each in shorts)


def _apart(data: bytes) -> tuple[int, ...]:
    if len(data) % 4:
        raise MsgspecError("shorts of four bytes each")
    return tuple(int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4))


def _records(said: _Records) -> Records:
    members = tuple(map(_member, said.members))
    return Records(members=members, tokens=said.tokens, removals=said.removals, whole=said.whole)


def _member(raw: Raw) -> Member:
    if len(memoryview(raw)) > MAX_RECORD:
        raise MsgspecError(f"a record of more than {MAX_RECORD} bytes")
    fields = fields_of(_decode_member(raw))
    for name in _PACKED:
        fields[name] = _apart(fields[name])
    return Member(**fields, further=_further(raw))


def _further(raw: Raw) -> tuple[bytes, ...]:
    """The fields that a later weft has put behind those that we know."""
    if bytes(memoryview(raw)[:3]) == _WHOLE_MEMBER:
        return ()
    return tuple(bytes(part) for part in _decode_parts(raw)[len(_Member.__struct_fields__) :])


def _is_unknown(data: bytes) -> bool:
    try:
        parts = _decode_parts(data)
        tag = msgpack.decode(parts[0])
        if tag == Routed.__struct_config__.tag:
            body = msgpack.decode(_decode_parts(parts[_BODY])[0])
            return isinstance(body, int) and body not in _BODY_TAGS
        return isinstance(tag, int) and tag not in _TAGS
    except (*_UNREADABLE, IndexError):
        return False


def _tokens(said: object) -> Iterator[Token]:
    if isinstance(said, Routed):
        yield from _tokens(said.body)
    elif isinstance(said, Note):
        yield from _tokens(said.grant)
    elif isinstance(said, Grant):
        yield from said.tokens
        yield from said.ring
    elif isinstance(said, Records | Versions | Ack):
        yield from said.tokens
        for removal in said.removals:
            yield from removal.tokens
