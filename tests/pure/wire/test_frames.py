"""The protocol between the CNI client and the daemon: what one side writes the other reads, and nothing else."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes
from tests.pure.reach import reached, reaches
from tests.support.cni.frames import decode_done, decode_run, encode_call, encode_opened, encode_ran
from weft.wire import frames
from weft.wire.cni import Ran
from weft.wire.frames import Call, Frame, FrameError, FrameReader, Kind, Run, VariableError, VersionError

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
names = st.text(st.sampled_from("ABCXYZ_"), min_size=1, max_size=8)
tokens = st.text(st.sampled_from("abcxyz46"), min_size=1, max_size=8)


def decode(data: bytes) -> Frame:
    frame = FrameReader().feed(data)
    assert frame is not None
    return frame


CALLS = st.builds(
    Call,
    plugin=words,
    stdin=st.binary(max_size=200),
    env=st.dictionaries(names.map(lambda name: f"CNI_{name}"), words, max_size=5),
    descriptors=st.lists(tokens, max_size=7).map(tuple),
    netns_problem=words,
    stdin_error=words,
)
ENDINGS = st.builds(
    Ran, exit=st.integers(0, 255), stdout=st.binary(max_size=100), stderr=st.binary(max_size=100), ending=st.just("")
)


@given(CALLS)
def test_a_call_comes_back_as_it_was(call: Call):
    assert frames.decode_call(decode(encode_call(call))) == call


@given(st.builds(Run, name=words, stdin=st.binary(max_size=200), changes=st.dictionaries(names, words)))
def test_an_order_to_run_comes_back_as_it_was(run: Run):
    assert decode_run(decode(frames.encode_run(run))) == run


@given(st.none() | ENDINGS)
def test_the_end_of_a_delegate_comes_back_as_it_was(ran: Ran | None):
    assert frames.decode_ran(decode(encode_ran(ran))) == ran


@given(words, st.integers(0, 4095))
def test_a_directory_asked_for_and_how_that_went_come_back_as_they_were(name: str, number: int):
    order = decode(frames.encode_open(name))
    assert (order.kind, order.fields) == (Kind.OPEN, (name.encode(),))
    assert frames.decode_opened(decode(encode_opened(number))) == number


@pytest.mark.parametrize("fields", [(), (b"",), (b"-1",), (b"4096",), (b"x",), (b"0", b""), (b"\xc2\xb2",)])
def test_a_directory_that_came_otherwise_is_refused(fields: tuple[bytes, ...]):
    with pytest.raises(FrameError):
        frames.decode_opened(Frame(kind=Kind.OPENED, fields=fields))
    with pytest.raises(FrameError):
        frames.decode_opened(Frame(kind=Kind.RAN, fields=(b"0",)))


@pytest.mark.parametrize("version", sorted(frames.ACCEPTED))
def test_the_beginning_is_a_header_alone(version: int):
    assert decode(frames.encode_begun(version=version)) == Frame(kind=Kind.BEGUN, version=version, fields=())
    assert len(frames.encode_begun()) == frames.HEADER_SIZE


@given(ENDINGS)
def test_an_answer_comes_back_as_it_was(done: Ran):
    assert decode_done(decode(frames.encode_done(done))) == done


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_pieces_make_the_same_frame_as_the_whole(fields: list[bytes], data: st.DataObject):
    whole = frames.encode(Frame(kind=Kind.CALL, fields=tuple(fields)))
    reader = FrameReader()
    at = 0
    while len(whole) - at > 1:
        step = data.draw(st.integers(1, len(whole) - at - 1))
        assert reader.feed(whole[at : at + step]) is None
        assert not reader.empty
        at += step
    assert reader.feed(whole[at:]) == Frame(kind=Kind.CALL, fields=tuple(fields))
    assert reader.empty


DECODERS = (frames.decode_call, decode_run, frames.decode_ran, decode_done, frames.decode_opened)
MESSAGES = st.one_of(
    CALLS.map(encode_call),
    st.builds(Run, name=words, stdin=st.binary(max_size=20), changes=st.dictionaries(names, words)).map(
        frames.encode_run
    ),
    (st.none() | ENDINGS).map(encode_ran),
    ENDINGS.map(frames.encode_done),
    st.integers(0, 4095).map(encode_opened),
)


@reaches(frame=0.12, error=0.2, message=0.1)
@given(st.one_of(bent_bytes(MESSAGES), bent_bytes(MESSAGES), st.binary(max_size=200)))
def test_any_bytes_are_a_frame_or_an_error(data: bytes):
    for decoder in DECODERS:
        try:
            frame = FrameReader().feed(data)
            if frame is not None:
                reached("frame")
                decoder(frame)
                reached("message")
        except FrameError:
            reached("error")


@st.composite
def odd_frames(draw: st.DrawFn) -> Frame:
    """The fields of a message, perhaps of another kind, with one of them replaced, left out or added."""
    frame = decode(draw(MESSAGES))
    fields = list(frame.fields)
    at = draw(st.integers(0, len(fields)))
    fields[at : at + draw(st.integers(0, 1))] = draw(st.lists(st.binary(max_size=12), max_size=1))
    return Frame(kind=draw(st.sampled_from([frame.kind, frame.kind, *Kind])), fields=tuple(fields))


@reaches(message=0.2, error=0.2)
@given(odd_frames())
def test_any_fields_are_a_message_or_an_error(frame: Frame):
    for decoder in DECODERS:
        with contextlib.suppress(FrameError):
            decoder(frame)
            reached("message")
            return
    reached("error")


@pytest.mark.parametrize("version", [frames.VERSION - 1, frames.VERSION])
def test_the_own_and_the_previous_version_are_accepted(version: int):
    call = Call(plugin="bridge", stdin=b"{}", env={})
    assert decode(encode_call(call, version=version)).version == version


@pytest.mark.parametrize("version", [frames.VERSION + 1, 0xFFFF])
def test_another_version_is_refused_by_its_header_alone(version: int):
    data = frames.encode(Frame(kind=Kind.CALL, version=version, fields=(b"whatever it means by then",)))
    with pytest.raises(VersionError, match=f"version {version} of the protocol.*upgrade the older"):
        FrameReader().feed(data[: frames.HEADER_SIZE])


@pytest.mark.parametrize(
    "data, reason",
    [
        (b"\x00\x10\x00\x01" + b"\x00\x01\x00\x01", "at most 1048576"),
        (b"\xff\xff\xff\xff" + b"\x00\x01\x00\x01", "at most 1048576"),
        (b"\x00\x00\x00\x02" + b"\x00\x01\x00\x01" + b"ab", "without its size"),
        (b"\x00\x00\x00\x06" + b"\x00\x01\x00\x01" + b"\x00\x00\x00\x03ab", "3 bytes where 2"),
        (b"\x00\x00\x00\x04" + b"\x00\x01\x00\x01" + b"\xff\xff\xff\xff", "where 0 are left"),
        (b"\x00\x00\x00\x00" + b"\x00\x01\x00\x01" + b"x", "more bytes than one frame"),
    ],
)
def test_broken_frames_are_named(data: bytes, reason: str):
    with pytest.raises(FrameError, match=reason):
        FrameReader().feed(data)


def test_no_more_fields_than_a_frame_may_have():
    count = frames.MAX_FIELDS + 1
    data = (count * 4).to_bytes(4, "big") + b"\x00\x01\x00\x01" + bytes(count * 4)
    with pytest.raises(FrameError, match="more than 320 fields"):
        FrameReader().feed(data)
    with pytest.raises(FrameError, match="321 fields"):
        frames.encode(Frame(kind=Kind.CALL, fields=(b"",) * count))


def test_the_largest_frame_fits_and_one_byte_more_does_not():
    largest = Frame(kind=Kind.CALL, fields=(bytes(frames.MAX_PAYLOAD - 4),))
    assert decode(frames.encode(largest)) == largest
    with pytest.raises(FrameError, match="do not fit"):
        frames.encode(Frame(kind=Kind.CALL, fields=(bytes(frames.MAX_PAYLOAD - 3),)))


def test_of_a_long_log_the_end_is_kept():
    done = decode(frames.encode_done(Ran(exit=1, stdout=b"{}", stderr=bytes(frames.MAX_PAYLOAD) + b"why")))
    assert decode_done(done).stderr.endswith(b"why")
    with pytest.raises(FrameError, match="do not fit"):
        frames.encode_done(Ran(exit=0, stdout=bytes(frames.MAX_PAYLOAD), stderr=b"log"))


@pytest.mark.parametrize("status", [b"", b"-1", b"256", b"0000", b"one", b"missing"])
def test_an_exit_status_is_a_number_up_to_255(status: bytes):
    with pytest.raises(FrameError, match="no exit status"):
        decode_done(Frame(kind=Kind.DONE, fields=(status, b"", b"")))


@pytest.mark.parametrize(
    "variable, reason",
    [
        (b"CNI_ARGS", "no CNI_ variable"),
        (b"PATH=/bin", "no CNI_ variable"),
        (b"CNI_ARGS=a\0b", "NUL"),
        (b"CNI_ARGS=\xff", "the environment variable CNI_ARGS is not UTF-8"),
        (b"CNI_\xff=a", "the environment variable CNI_\ufffd is not UTF-8"),
    ],
)
def test_a_call_carries_cni_variables_in_utf_8_alone(variable: bytes, reason: str):
    error = VariableError if b"\xff" in variable or b"\0" in variable else FrameError
    with pytest.raises(error, match=reason):
        frames.decode_call(Frame(kind=Kind.CALL, fields=(b"bridge", b"", b"", b"", b"{}", variable)))


@pytest.mark.parametrize("decoder", [frames.decode_call, decode_run, frames.decode_ran, decode_done])
def test_a_message_of_another_kind_is_refused(decoder):
    with pytest.raises(FrameError, match="kind 9"):
        decoder(Frame(kind=9, fields=(b"",) * 5))
    for kind in Kind:
        with pytest.raises(FrameError):
            decoder(Frame(kind=kind, fields=(b"",)))


@pytest.mark.parametrize(
    "name, fits",
    [
        ("host-local", True),
        ("x" * 63, True),
        ("x", True),
        ("", False),
        ("x" * 64, False),
        ("é" * 32, False),
        ("a/b", False),
        ("a\0", False),
        ("\ud800", False),
    ],
)
def test_a_program_has_the_name_of_a_file(name: str, fits: bool):
    assert frames.is_name(name) is fits
