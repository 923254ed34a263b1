"""One end of a link: greetings, handshake, messages, and what ends it."""

import pytest

from tests.pure.wire.meshends import OLD, SHARED, STATIC, end, hello, joined, taken
from weft.model.mesh.messages import Hello, Ping, Pong, Records
from weft.model.mesh.records import MAX_FRAME, MAX_HANDSHAKE, Token
from weft.wire import noise
from weft.wire.mesh import Hostile, framed
from weft.wire.meshlink import End, OtherPassword


def up(*shared: bytes) -> tuple[End, End]:
    ends = end(True, *shared), end(False, *shared)
    joined(*ends)
    return ends


@pytest.mark.parametrize("shared", [(), (SHARED,)])
def test_both_ends_know_each_other(shared: tuple[bytes, ...]):
    first, second = up(*shared)
    assert (first.peer, second.peer) == (hello(False), hello(True))
    first.say(Ping(number=1))
    first.say(Ping(number=2))
    assert second.feed(taken(first)) == [Ping(number=1), Ping(number=2)]
    second.say(Pong(number=2))
    assert first.feed(taken(second)) == [Pong(number=2)]


def test_what_comes_byte_by_byte_is_the_same():
    first, second = end(True, SHARED), end(False, SHARED)
    while first.unsent or second.unsent:
        for one, other in ((first, second), (second, first)):
            for byte in taken(one):
                assert other.feed(bytes((byte,))) == []
    assert (first.peer, second.peer) == (hello(False), hello(True))
    first.say(Ping(number=1))
    *some, last = taken(first)
    assert [second.feed(bytes((byte,))) for byte in some] == [[]] * len(some)
    assert second.feed(bytes((last,))) == [Ping(number=1)]


def test_what_is_said_with_the_third_message_is_heard():
    """An initiator sees the link up first, and may say something at once."""
    first, second = end(True), end(False)
    for one, other in ((first, second), (second, first)) * 2:
        other.feed(taken(one))
    assert first.peer is None
    assert second.peer is None
    second.feed(taken(first))
    second.say(Ping(number=1))
    assert first.feed(taken(second)) == [Ping(number=1)]


def test_of_two_passwords_the_first_is_offered_and_both_are_taken():
    first, second = end(True, OLD, SHARED), end(False, SHARED, OLD)
    joined(first, second)
    assert first.peer == hello(False)


@pytest.mark.parametrize(
    "ours, theirs, cases",
    [
        ((SHARED,), (OLD,), ("another", "another")),
        ((SHARED, OLD), (OLD,), ("another", "another")),  # the first alone is offered
        ((SHARED,), (), ("only ours", "only theirs")),
        ((), (SHARED,), ("only theirs", "only ours")),
    ],
)
def test_another_password_is_told_on_both_sides(
    ours: tuple[bytes, ...], theirs: tuple[bytes, ...], cases: tuple[str, str]
):
    first, second = end(True, *ours), end(False, *theirs)
    ended = joined(first, second)
    assert all(isinstance(each, OtherPassword) for each in ended)
    assert tuple(each.case for each in ended) == cases
    assert first.peer is second.peer is None


def test_without_the_password_nothing_is_told():
    """But for a greeting, and the key of who is dialled."""
    called = []

    def says() -> Hello:
        called.append(True)
        return hello(False)

    second = End(initiator=False, static=STATIC[False], ephemeral=b"e" * 32, shared=(SHARED,), hello=says)
    joined(end(True, OLD), second)
    assert called == []


def third_message(*shared: bytes) -> tuple[End, End]:
    first, second = end(True, *shared), end(False, *shared)
    for one, other in ((first, second), (second, first)) * 2:
        other.feed(taken(one))
    return first, second


def test_the_refusal_is_of_no_use_to_who_is_dialled():
    _, second = third_message()
    with pytest.raises(Hostile) as ended:
        second.feed(framed(b""))
    assert ended.value.kind == "handshake"


@pytest.mark.parametrize(
    "data, kind",
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "greeting"),  # TLS
        (b"weft\x02\x03\x00\x00", "version"),
        (b"weft\x01\x01\x00\x00" + (MAX_HANDSHAKE + 1).to_bytes(4, "big"), "length"),
        (b"weft\x01\x01\x00\x00" + framed(bytes(48)), "handshake"),
        (b"weft\x01\x01\x00\x00" + framed(b""), "handshake"),
    ],
)
def test_who_does_not_keep_to_the_protocol_is_told_from_others(data: bytes, kind: str):
    with pytest.raises(Hostile) as ended:
        end(False).feed(data)
    assert ended.value.kind == kind


def test_a_version_that_is_changed_on_its_way_ends_the_handshake():
    first, second = end(True), end(False)
    second.feed(taken(first).replace(b"weft\x01\x01", b"weft\x00\x01"))
    first.feed(taken(second))
    with pytest.raises(Hostile) as ended:
        second.feed(taken(first))
    assert ended.value.kind == "handshake"


def test_a_password_that_is_hidden_on_its_way_ends_the_link():
    first, second = end(True, SHARED), end(False, SHARED)
    with pytest.raises(OtherPassword):
        second.feed(taken(first).replace(b"\1\0", b"\0\0"))


@pytest.mark.parametrize("size", [MAX_HANDSHAKE, MAX_HANDSHAKE + 1])
def test_frames_are_short_until_the_hello(size: int):
    first, second = third_message()
    second.feed(taken(first)[:68])  # the third message, without the hello
    with pytest.raises(Hostile) as ended:
        second.feed(framed(bytes(size)))
    assert ended.value.kind == ("handshake" if size == MAX_HANDSHAKE else "length")


@pytest.mark.parametrize("size, kind", [(MAX_FRAME, "seal"), (MAX_FRAME + 1, "length"), (0, "seal")])
def test_frames_have_a_most_afterwards(size: int, kind: str):
    _, second = up()
    with pytest.raises(Hostile) as ended:
        second.feed(framed(bytes(size)))
    assert ended.value.kind == kind


def test_the_largest_message_arrives():
    first, second = up(SHARED)
    tokens = tuple(Token(start=0, stop=65536, owner=bytes(32), version=1 << 62) for _ in range(8192))
    first.say(Records(tokens=tokens))
    assert second.feed(taken(first)) == [Records(tokens=tokens)]


def test_frames_that_are_replayed_reordered_or_lost_end_the_link():
    first, second = up(SHARED)
    first.say(Ping(number=1))
    one = taken(first)
    first.say(Ping(number=2))
    two = taken(first)
    for wrong in (one + one, two, one + two + two):
        receiver = up(SHARED)[1]  # the same keys
        with pytest.raises(Hostile) as ended:
            receiver.feed(wrong)
        assert ended.value.kind == "seal"
    assert second.feed(one + two) == [Ping(number=1), Ping(number=2)]


def test_a_link_that_is_replayed_is_none():
    """Who has recorded all that an initiator said gets no further than the third message."""
    first, second = end(True), end(False)
    recorded = [taken(first)]
    second.feed(recorded[0])
    first.feed(taken(second))
    recorded += [taken(first)]
    second.feed(recorded[1])
    first.feed(taken(second))
    recorded += [taken(first)]
    later = End(initiator=False, static=STATIC[False], ephemeral=b"l" * 32, shared=(), hello=lambda: hello(False))
    later.feed(recorded[0] + recorded[1])
    with pytest.raises(Hostile) as ended:
        later.feed(recorded[2])
    assert ended.value.kind == "handshake"


def test_a_hello_of_another_key_ends_the_link():
    first = End(
        initiator=True,
        static=STATIC[True],
        ephemeral=b"e" * 32,
        shared=(),
        hello=lambda: Hello(key=noise.public(b"x" * 32), run=1, name="first", ring=None),
    )
    _, ended = joined(first, end(False))
    assert isinstance(ended, Hostile)
    assert ended.kind == "message"


def test_a_message_of_an_unknown_kind_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    first, second = up()
    monkeypatch.setattr("weft.wire.meshlink.encode", lambda _: b"\x92\x63\x01")
    first.say(Ping(number=1))
    monkeypatch.undo()
    first.say(Ping(number=2))
    assert second.feed(taken(first)) == [Ping(number=2)]
