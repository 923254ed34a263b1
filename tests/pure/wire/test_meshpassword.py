"""Keys of passwords: the same on every node, and never the password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.value import Secret
from weft.wire import meshpassword

CHANCE = bytes(range(32))
MADE = "weft1-AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


def test_a_password_that_is_made_holds_all_the_chance():
    assert meshpassword.made(CHANCE).reveal() == MADE


def test_keys_stay_what_they_are():
    """Another key would part the nodes of two versions."""
    assert meshpassword.shared(Secret(MADE)).hex() == "cc20b22f5671c3f39d63b15e5309b754b903732f0a182c456729c7549c12cddc"
    assert (
        meshpassword.shared(Secret("correct horse battery staple")).hex()
        == "e8782084717cbc97176d1a434dc57686d49b8ed51e4a7446294c704ca0679955"
    )
    assert bytes(32) == meshpassword.NONE


@pytest.mark.parametrize("password", [MADE[:-1], MADE + "A", MADE.replace("E", "=", 1), "weft1-", MADE[:-1] + "9"])
def test_a_damaged_password_is_told(password: str):
    assert meshpassword.damaged(Secret(password))


@pytest.mark.parametrize("password", [MADE, "weft2-and-what-else", "correct horse battery staple", MADE[6:]])
def test_another_is_not(password: str):
    assert not meshpassword.damaged(Secret(password))


@given(st.binary(min_size=32, max_size=32))
def test_every_password_that_is_made_is_whole(chance: bytes):
    password = meshpassword.made(chance)
    assert not meshpassword.damaged(password)
    assert meshpassword.shared(password) not in (chance, meshpassword.NONE)
    assert chance.hex() not in repr(password)
