"""What peers of a mesh say: bytes to values and back, and each limit at its edge."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from tests.pure.wire.meshwords import hellos, messages
from tests.support.checkout import CHECKOUT
from weft.model.mesh.messages import (
    Ack,
    Buckets,
    Founders,
    Grant,
    Hello,
    Message,
    Note,
    Offer,
    Ping,
    Promise,
    Propose,
    Pull,
    Records,
    Redirect,
    Root,
    Routed,
    Versions,
    Want,
)
from weft.model.mesh.records import MAX_FRAME, MAX_HANDSHAKE, MAX_RECORD, Layout, Member, Removal, Ring, Token
from weft.model.value import replace
from weft.wire import mesh
from weft.wire.mesh import Greeting, Hostile

KEY = bytes(range(32))
RING = bytes(range(16))
NUMBER = (1 << 64) - 1


def member(**fields: object) -> Member:
    return replace(Member(key=KEY, run=1, version=2, name="node1"), **fields)


def token(start: int = 5, stop: int = 6, **fields: object) -> Token:
    return replace(Token(start=start, stop=stop, owner=KEY, version=3), **fields)


def records(**fields: object) -> Records:
    return Records(members=(member(**fields),))


def routed(body: object, **fields: object) -> Routed:
    plain = Routed(source=KEY, target=KEY, ring=RING, number=1, answer=False, hops=0, body=body)
    return replace(plain, **fields)


def offer(*, ring: bytes = RING, secret: bytes = KEY, **layout: object) -> Offer:
    plain = Layout(net_conf="{}", blocks=256, first=2)
    return Offer(ring=Ring(id=ring, layout=replace(plain, **layout), secret=secret))


# --- Greetings and frames


def test_a_greeting_is_eight_bytes():
    assert mesh.greeting_bytes(Greeting(password=False)) == b"weft\x01\x01\x00\x00"
    assert mesh.greeting_bytes(Greeting(password=True)) == b"weft\x01\x01\x01\x00"
    assert mesh.read_greeting(b"weft\x01\x01\x01\x00") == Greeting(password=True)


def test_what_a_later_weft_may_add_to_its_greeting_is_ignored():
    assert mesh.read_greeting(b"weft\x01\x09\xfe\x07") == Greeting(password=False, lowest=1, highest=9)


@pytest.mark.parametrize(
    "greeting, kind, words",
    [
        (b"GET / HT", "greeting", "is no greeting of a weft"),
        (
            b"weft\x02\x04\x00\x00",
            "version",
            "it speaks versions 2 to 4 of the protocol, this weft version 1: this weft is older",
        ),
        (
            b"weft\x00\x00\x00\x00",
            "version",
            "it speaks version 0 of the protocol, this weft version 1: that one is older",
        ),
    ],
)
def test_another_greeting_is_refused(greeting: bytes, kind: str, words: str):
    with pytest.raises(Hostile, match=re.escape(words)) as refused:
        mesh.read_greeting(greeting)
    assert refused.value.kind == kind


@pytest.mark.parametrize("limit", [MAX_HANDSHAKE, MAX_FRAME])
def test_a_frame_has_a_most(limit: int):
    assert mesh.frame_size(mesh.framed(bytes(limit))[:4], limit=limit) == limit
    with pytest.raises(Hostile, match=f"a frame of {limit + 1} bytes") as refused:
        mesh.frame_size((limit + 1).to_bytes(4, "big"), limit=limit)
    assert refused.value.kind == "length"


# --- Messages


@given(messages())
def test_every_message_is_read_as_it_was_said(message: Message):
    assert mesh.decode(mesh.encode(message)) == message


@given(hellos())
def test_every_hello_is_read_as_it_was_said_and_is_short(hello: Hello):
    data = mesh.hello_bytes(hello)
    assert mesh.read_hello(data, hello.key) == hello
    assert len(data) + 16 <= MAX_HANDSHAKE


def test_a_hello_says_the_key_that_the_handshake_has_proved():
    with pytest.raises(Hostile, match="another key"):
        mesh.read_hello(mesh.hello_bytes(Hello(key=KEY, run=1, name="node1", ring=None)), bytes(32))
    with pytest.raises(Hostile, match="length <= 63"):
        mesh.read_hello(mesh.hello_bytes(Hello(key=KEY, run=1, name="n" * 64, ring=None)), KEY)


def record_size(record: Member) -> int:
    return len(mesh.encode(Records(members=(record,)))) - len(mesh.encode(Records()))


def test_a_member_with_twelve_links_takes_little():
    """Digests and floods of 1,000 peers are reckoned with it."""
    attrs = b'{"PublicIP":"10.0.0.5","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"0a:58:0a:f4:00:00"}}'
    usual = member(run=NUMBER, endpoints=("10.0.0.5:51820",), attrs=attrs, home=40, links=tuple(range(12)))
    assert record_size(usual) == 230


@pytest.mark.parametrize(
    "most, built",
    [
        (63, lambda n: records(name="n" * n)),
        (8, lambda n: records(endpoints=("10.0.0.5:51820",) * n)),
        (1024, lambda n: records(attrs=bytes(n))),
        (64, lambda n: records(links=(1,) * n)),
        (900, lambda n: records(cannot=(1 << 31,) * n)),
        (65535, lambda n: records(home=n)),
        ((1 << 63) - 1, lambda n: records(version=n)),
        (32, lambda n: records(key=bytes(n))),
        (200, lambda n: Records(members=(member(),) * n)),
        (8192, lambda n: Records(tokens=(token(),) * n)),
        (1024, lambda n: Records(removals=(Removal(key=KEY, heir=KEY, number=1),) * n)),
        (8192, lambda n: Records(removals=(Removal(key=KEY, heir=KEY, number=1, tokens=(token(),) * n),))),
        (65536, lambda n: Records(tokens=(token(stop=n),))),
        (65535, lambda n: Records(tokens=(token(start=n, stop=65536),))),
        (32, lambda n: Records(tokens=(token(owner=bytes(n)),))),
        (NUMBER, lambda n: Root(digest=n)),
        (64, lambda n: Buckets(digests=(NUMBER,) * n)),
        (64, lambda n: Versions(buckets=(63,) * n)),
        (63, lambda n: Versions(buckets=(n,))),
        (4096, lambda n: Versions(buckets=(), members=((KEY, NUMBER),) * n)),
        (8192, lambda n: Versions(buckets=(), tokens=(token(),) * n)),
        (4096, lambda n: Pull(members=(KEY,) * n)),
        (4096, lambda n: Founders(keys=(KEY,) * n, whole=True)),
        (4, lambda n: Redirect(addresses=("[fd00::1]:51820",) * n)),
        (64, lambda n: Redirect(addresses=("1" * (n - 6) + ":51820",))),
        (16, lambda n: offer(ring=bytes(n))),
        (32, lambda n: offer(secret=bytes(n))),
        (65536, lambda n: offer(blocks=n)),
        (65535, lambda n: offer(first=n)),
        (65536, lambda n: offer(net_conf=" " * n)),
        (8, lambda n: routed(Want(home=True), hops=n)),
        (512, lambda n: routed(Ack(refused="–" * n))),
        (512, lambda n: routed(Grant(giver=KEY, taker=KEY, refused="–" * n))),
        (4096, lambda n: routed(Ack(peers=(KEY,) * n))),
        (4096, lambda n: routed(Propose(promise=Promise(proposer=KEY, number=1, names=(KEY,) * n)))),
        (8192, lambda n: routed(Grant(giver=KEY, taker=KEY, ring=(token(),) * n))),
        (8192, lambda n: routed(Note(grant=Grant(giver=KEY, taker=KEY, tokens=(token(),) * n)))),
    ],
)
def test_every_count_has_a_most(most: int, built: Callable[[int], Message]):
    message = built(most)
    assert mesh.decode(mesh.encode(message)) == message
    if most < NUMBER:
        with pytest.raises(Hostile) as refused:
            mesh.decode(mesh.encode(built(most + 1)))
        assert refused.value.kind == "message"


@pytest.mark.parametrize(
    "message",
    [
        records(name=""),
        records(name="two\nlines"),
        records(name="node1\n"),
        records(name="nöde"),
        records(key=bytes(31)),
        records(run=-1),
        records(endpoints=("example.org:51820",)),
        records(endpoints=("10.0.0.5",)),
        records(endpoints=("10.0.0.5:51820\n",)),
        Records(tokens=(token(6, 6),)),
        Records(removals=(Removal(key=KEY, heir=KEY, number=1, tokens=(token(6, 5),)),)),
        Versions(buckets=(), tokens=(token(6, 5),)),
        Buckets(digests=(1,) * 65),
        offer(blocks=0),
        routed(Ack(refused="\x1b[2J")),
        routed(Ack(tokens=(token(6, 5),))),
        routed(Grant(giver=KEY, taker=KEY, ring=(token(6, 5),))),
        routed(Note(grant=Grant(giver=KEY, taker=KEY, tokens=(token(6, 5),)))),
    ],
)
def test_a_field_that_says_what_cannot_be_is_refused(message: Message):
    with pytest.raises(Hostile):
        mesh.decode(mesh.encode(message))


def test_a_record_has_a_most():
    """Whatever it is made of: a name and 900 of whom it cannot reach leave room for so many bytes of attributes."""
    full = member(cannot=(1,) * 900)
    room = MAX_RECORD - record_size(replace(full, attrs=bytes(256))) + 256
    largest = replace(full, attrs=bytes(room))
    assert record_size(largest) == MAX_RECORD
    assert mesh.decode(mesh.encode(Records(members=(largest,)))) == Records(members=(largest,))
    with pytest.raises(Hostile, match="a record of more than 4096 bytes"):
        mesh.decode(mesh.encode(Records(members=(replace(largest, attrs=bytes(room + 1)),))))


def test_the_most_records_in_a_message_are_within_a_frame():
    largest = member(attrs=bytes(400), cannot=(1,) * 900)
    assert len(mesh.encode(Records(members=(largest,) * 200))) < MAX_FRAME
    assert len(mesh.encode(Records(tokens=(token(start=60000, stop=65536, version=NUMBER),) * 8192))) < MAX_FRAME


def test_a_message_is_within_a_frame_or_is_not_said():
    with pytest.raises(ValueError, match="a message of"):
        mesh.encode(Records(tokens=(token(version=NUMBER),) * 30000))


# --- What another version says


def test_further_fields_of_a_member_go_on_as_they_came():
    tag, [fields], *rest = msgpack.decode(mesh.encode(records(links=(1, 2))))
    later = msgpack.encode([tag, [[*fields, {"more": [1.5, None]}, "and more"]], *rest])
    said = mesh.decode(later)
    assert said == records(links=(1, 2), further=(msgpack.encode({"more": [1.5, None]}), msgpack.encode("and more")))
    assert mesh.encode(said) == later


def test_further_fields_are_ignored():
    tag, _, *rest = msgpack.decode(mesh.encode(records()))
    said = {
        Ping(number=7): [8, 7, "more"],
        Records(): [tag, [], *rest, None],
        Records(tokens=(token(),)): [3, [], [[5, 6, KEY, 3, 1]]],
        routed(Want(home=True)): [11, KEY, KEY, RING, 1, False, 0, [17, True, "more"], "more"],
    }
    for message, parts in said.items():
        assert mesh.decode(msgpack.encode(parts)) == message


def test_fields_that_an_earlier_weft_does_not_have_are_left_out():
    assert mesh.decode(msgpack.encode([3, [[KEY, 1, 2, "node1"]]])) == records()
    assert mesh.decode(msgpack.encode([3])) == Records()


@pytest.mark.parametrize(
    "parts", [[14], [99, "anything", [1]], [11, KEY, KEY, RING, 1, False, 0, [22, 5]], [11, 1, 2, 3, 4, 5, 6, [99]]]
)
def test_messages_of_unknown_kinds_are_ignored(parts: list[object]):
    assert mesh.decode(msgpack.encode(parts)) is None


# --- What is none


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x90",
        b"\x91\xc0",
        b"\x92\x08",
        b"\x92\x08\x01\x00",  # bytes behind it
        b"\x92\xa4Ping\x01",
        b"\x81\x08\x01",
        b"\x92\x03\xdd\xff\xff\xff\xff",  # a list of four thousand million members
        b"\x93\x08\x01" + b"\x91" * 100_000 + b"\xc0",  # lists in lists
        b"\x92\x03\x91\xc4\x01\x00",
        b"\x9d\x63" + b"\xc1" * 12,
        b"\x98\x0b\x01\x02\x03\x04\x05\x06\x90",
        msgpack.encode([3, [[KEY, 1, 2, "node1", [], b"", None, False, b"123"]]]),
        b"\x92\x03\x91\x94\xc4\x20" + KEY + b"\x01\x02\xa1\xff",  # a name that is not UTF-8
    ],
)
def test_what_is_no_message(data: bytes):
    with pytest.raises(Hostile) as refused:
        mesh.decode(data)
    assert refused.value.kind == "message"


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(data: bytes):
    with suppress(Hostile):
        mesh.decode(data)


@given(messages(), st.data())
def test_a_bent_message_is_read_or_refused(message: Message, data: st.DataObject):
    bent = bytearray(mesh.encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        bent[data.draw(st.integers(0, len(bent) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = mesh.decode(bytes(bent))
    except Hostile:
        return
    assert read is None or mesh.decode(mesh.encode(read)) == read


def test_the_page_of_the_protocol_lists_all_messages():
    page = (CHECKOUT / "docs" / "reference" / "mesh-protocol.md").read_text()
    listed = [(int(number), name) for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", page, flags=re.MULTILINE)]
    kinds = [*get_args(Message), *get_args(Routed.__annotations__["body"])]
    assert listed == sorted((kind.__struct_config__.tag, kind.__name__) for kind in kinds)
