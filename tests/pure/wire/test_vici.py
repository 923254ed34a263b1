"""vici's packets: bytes to values and back (vici's README.md, "Protocol")."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.value import Secret
from weft.wire import vici

# The example of vici's README.md.
EXAMPLE = {"key1": "value1", "section1": {"sub-section": {"key2": "value2"}, "list1": ["item1", "item2"]}}
BYTES = (
    b"\x03\x04key1\x00\x06value1"
    b"\x01\x08section1"
    b"\x01\x0bsub-section\x03\x04key2\x00\x06value2\x02"
    b"\x04\x05list1\x05\x00\x05item1\x05\x00\x05item2\x06"
    b"\x02"
)


def test_a_message_as_bytes_and_back():
    assert vici.encode(EXAMPLE) == BYTES
    assert vici.unpack(b"\x01" + BYTES) == (vici.RESPONSE, EXAMPLE)
    assert vici.unpack(b"\x07\x07list-sa" + BYTES) == (vici.EVENT, EXAMPLE)
    assert vici.unpack(b"\x05") == (vici.CONFIRM, {})


def test_packets_have_names():
    assert vici.packet(vici.REQUEST, "version", {"a": "b"}) == b"\x00\x07version\x03\x01a\x00\x01b"
    assert vici.packet(vici.REGISTER, "list-sa") == b"\x03\x07list-sa"


def test_a_secret_is_sent_and_shown_nowhere_else():
    message = {"data": Secret("hidden")}
    assert vici.encode(message) == b"\x03\x04data\x00\x06hidden"
    assert "hidden" not in str(message)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "1 bytes expected where 0 are left"),
        (b"\x01\x03\x04ke", "4 bytes expected where 2 are left"),
        (b"\x01\x09", "an element of kind 9"),
        (b"\x01\x02", "the end of a section that has not begun"),
        (b"\x01\x01\x01a", "a section without its end"),
        (b"\x01\x04\x01a\x03", "an element of kind 3 in a list"),
        (b"\x01" + b"\x01\x01a" * 30, "sections in sections without an end"),
    ],
)
def test_what_is_no_message(data: bytes, says: str):
    with pytest.raises(vici.Unreadable, match=re.escape(says)):
        vici.unpack(data)


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes):
    try:
        kind, told = vici.unpack(data)
    except vici.Unreadable:
        return
    assert 0 <= kind <= 255
    assert isinstance(told, dict)


TEXTS = st.text(max_size=20)
VALUES = st.recursive(
    TEXTS | st.lists(TEXTS, max_size=3), lambda inner: st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_is_encoded_is_read_again(message: dict[str, object]):
    assert vici.unpack(b"\x01" + vici.encode(message)) == (vici.RESPONSE, message)  # type: ignore[arg-type]
