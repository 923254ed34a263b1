"""MAC addresses: made, read and printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.net import Mac

SIX_BYTES = st.binary(min_size=6, max_size=6)


@pytest.mark.spec("flannel.md 11.7/mac")
@given(SIX_BYTES)
def test_a_made_address_is_local_and_unicast_whatever_chance_gives(chance):
    made = Mac.local(chance)
    assert len(made) == 6
    assert (made[0] & 1, made[0] & 2) == (0, 2)
    assert made.is_unicast
    assert made[1:] == chance[1:]


@pytest.mark.spec("flannel.md 11.7/mac")
@given(SIX_BYTES, SIX_BYTES)
def test_two_made_addresses_differ_unless_chance_repeats_itself(one, other):
    assert (Mac.local(one) == Mac.local(other)) == (one[1:] == other[1:] and one[0] & 0xFC == other[0] & 0xFC)


@pytest.mark.parametrize("size", [0, 5, 7])
def test_six_bytes_are_needed(size):
    with pytest.raises(ValueError, match="six bytes"):
        Mac.local(bytes(size))


@given(SIX_BYTES)
def test_every_notation_is_read(raw):
    mac = Mac(raw)
    digits = raw.hex()
    assert Mac.parse(str(mac)) == Mac.parse(str(mac).replace(":", "-").upper()) == mac
    assert Mac.parse(".".join(digits[at : at + 4] for at in (0, 4, 8))) == mac
    assert repr(mac) == f"Mac({mac})"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aa:bb:cc:dd:ee",
        "aa:bb:cc:dd:ee:ff:00",
        "a:b:c:d:e:f",
        "gg:bb:cc:dd:ee:ff",
        "aabbccddeeff",
        "é" * 12,
        "aa:  :cc:dd:ee:ff",
    ],
)
def test_anything_else_is_no_address(text):
    with pytest.raises(ValueError, match=r"MAC|hexadecimal"):
        Mac.parse(text)


def test_zero_and_groups_are_not_one_stations():
    assert not Mac(bytes(6)).is_unicast
    assert not Mac.parse("01:00:5e:00:00:01").is_unicast
