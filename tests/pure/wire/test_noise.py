"""The handshake against the package `noiseprotocol`, both ways, and whatever an attacker may send instead."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection

from weft.wire.noise import Forged, Handshake, Session, WrongKey, public

NAME = b"Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s"
PROLOGUE = b"weft\x01\x01\x00\x00" * 2
SHARED, OLD = bytes(range(32)), bytes(range(1, 33))
KEYS = {True: b"A" * 32, False: b"b" * 32}  # the static ones of initiator and responder


def ours(initiator: bool, shared: tuple[bytes, ...] = (SHARED,), prologue: bytes = PROLOGUE) -> Handshake:
    return Handshake(
        initiator=initiator,
        static=KEYS[initiator],
        ephemeral=bytes((3 + initiator,)) * 32,
        shared=shared,
        prologue=prologue,
    )


def theirs(initiator: bool) -> NoiseConnection:
    end = NoiseConnection.from_name(NAME)
    end.set_psks(SHARED)
    end.set_prologue(PROLOGUE)
    end.set_as_initiator() if initiator else end.set_as_responder()
    end.set_keypair_from_private_bytes(Keypair.STATIC, KEYS[initiator])
    end.set_keypair_from_private_bytes(Keypair.EPHEMERAL, bytes((3 + initiator,)) * 32)
    end.start_handshake()
    return end


def met(first: Handshake, second: Handshake) -> tuple[Session, Session]:
    second.read(first.write())
    first.read(second.write())
    second.read(first.write())
    return first.session(), second.session()


@pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set")
@pytest.mark.parametrize("initiator", [True, False])
def test_it_is_the_protocol_of_that_name(initiator: bool):
    end, other, twin = ours(initiator), theirs(not initiator), theirs(initiator)
    for turn in range(3):
        if (turn % 2 == 0) == initiator:
            message = end.write()
            assert message == twin.write_message()
            assert other.read_message(message) == b""
        else:
            message = bytes(other.write_message())
            end.read(message)
            twin.read_message(message)
    session = end.session()
    for number in range(300):
        text = bytes((number % 256,)) * number
        sealed = session.seal(text)
        assert sealed == twin.encrypt(text)
        assert other.decrypt(sealed) == text
        assert session.open(bytes(other.encrypt(text))) == text


@pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set")
def test_no_message_has_a_payload():
    with pytest.raises(Forged, match="a payload where none is expected"):
        ours(False).read(bytes(theirs(True).write_message(b"text")))


def test_each_end_knows_the_key_of_the_other():
    first, second = ours(True), ours(False)
    met(first, second)
    assert first.peer == public(KEYS[False])
    assert second.peer == public(KEYS[True])


def test_a_message_is_as_long_as_a_frame_may_be():
    first, second = met(ours(True), ours(False))
    text = bytes(1 << 20)
    assert second.open(first.seal(text)) == text


def test_of_two_shared_keys_the_first_is_offered_and_both_are_taken():
    for offers, takes in [((OLD,), (SHARED, OLD)), ((OLD, SHARED), (SHARED, OLD)), ((SHARED, OLD), (SHARED,))]:
        first, second = met(ours(True, offers), ours(False, takes))
        assert second.open(first.seal(b"text")) == b"text"
        assert first.open(second.seal(b"text")) == b"text"


@pytest.mark.parametrize("takes", [(SHARED,), (SHARED, bytes(32))])
def test_another_shared_key_is_told_from_a_forgery(takes: tuple[bytes, ...]):
    first, second = ours(True, (OLD, SHARED)), ours(False, takes)
    second.read(first.write())
    first.read(second.write())
    with pytest.raises(WrongKey):
        second.read(first.write())


def test_another_prologue_is_a_forgery():
    """Who changes the clear greeting on its way, so that ends speak an older version, ends the handshake."""
    first, second = ours(True), ours(False, prologue=PROLOGUE.replace(b"\1", b"\2"))
    with pytest.raises(Forged):
        second.read(first.write())


TURNS = pytest.mark.parametrize("turn", [0, 1, 2])
SIZES = (48, 96, 64)


def until(turn: int) -> tuple[bytes, Handshake, list[bytes]]:
    """The message of that turn, who is to read it, and the messages before it."""
    ends = (ours(True), ours(False))
    said: list[bytes] = []
    for now in range(turn + 1):
        said.append(ends[now % 2].write())
        if now < turn:
            ends[1 - now % 2].read(said[-1])
    return said.pop(), ends[1 - turn % 2], said


@TURNS
def test_a_message_has_one_size(turn: int):
    message, _, _ = until(turn)
    assert len(message) == SIZES[turn]


@TURNS
@pytest.mark.parametrize(
    "bent",
    [
        lambda _: b"",
        lambda message: message[:-1],
        lambda message: message[:20],
        lambda message: message + b"\0",
        lambda message: bytes(len(message)),
        lambda message: bytes(32) + message[32:],
        lambda message: message * 2,
    ],
)
def test_a_bent_message_is_refused(turn: int, bent: Callable[[bytes], bytes]):
    message, reader, _ = until(turn)
    with pytest.raises(Forged):
        reader.read(bent(message))


class Zeros:
    """A key of which no secret comes (RFC 7748 §6.1)."""

    def public_key(self) -> "Zeros":
        return self

    def public_bytes_raw(self) -> bytes:
        return bytes(32)


def test_a_key_of_which_no_secret_comes_is_refused():
    first, second = ours(True), ours(False)
    first._keys["e"] = Zeros()
    second.read(first.write())
    with pytest.raises(Forged):
        second.write()


@given(st.data())
def test_no_bit_can_be_changed(data: st.DataObject):
    turn = data.draw(st.integers(0, 2))
    message, reader, _ = until(turn)
    bit = data.draw(st.integers(0, len(message) * 8 - 1))
    changed = bytearray(message)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Forged):
        reader.read(bytes(changed))


@given(st.integers(0, 2), st.binary(max_size=600))
def test_whatever_comes_is_refused(turn: int, message: bytes):
    _, reader, _ = until(turn)
    with pytest.raises(Forged):
        reader.read(message)


@TURNS
def test_a_replayed_handshake_is_refused(turn: int):
    """What was said in another handshake, whose ephemeral keys were others."""
    if turn == 0:
        return  # anybody may say hello; the third message shows whether it was an echo
    message, _, _ = until(turn)
    fresh = Handshake(
        initiator=turn == 1, static=KEYS[turn == 1], ephemeral=b"n" * 32, shared=(SHARED,), prologue=PROLOGUE
    )
    if turn == 1:
        fresh.write()
    else:
        fresh.read(until(0)[0])
        fresh.write()
    with pytest.raises(Forged):
        fresh.read(message)


def test_messages_have_their_order_and_are_opened_once():
    first, second = met(ours(True), ours(False))
    one, two, three = (first.seal(text) for text in (b"1", b"2", b"3"))
    assert second.open(one) == b"1"
    for wrong in (one, three, two[:-1]):
        later = met(ours(True), ours(False))[1]
        later.open(one)
        with pytest.raises(Forged):
            later.open(wrong)
    with pytest.raises(Forged):
        first.open(two)  # sent back to who has sealed it
    assert [second.open(each) for each in (two, three)] == [b"2", b"3"]


def test_equal_texts_are_sealed_apart():
    first, _ = met(ours(True), ours(False))
    sealed = [first.seal(b"text") for _ in range(10)]
    assert all(one != two for one, two in pairwise(sealed))
