"""The helper that counts how often a property gets to what it is about."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches


def counted(share: float, limit: int):
    @reaches(small=share)
    @settings(max_examples=100, database=None)
    @given(number=st.integers(0, 99))
    def property_of(number: int) -> None:
        if number < limit:
            reached("small")

    return property_of


def test_a_property_that_gets_there_passes():
    counted(0.5, 100)()


def test_a_property_that_hardly_gets_there_fails():
    with pytest.raises(AssertionError, match=r"of \d+ examples reached small, less than 50%"):
        counted(0.5, 1)()


def test_a_failure_is_the_property_s_own():
    @reaches(small=0.5)
    @settings(database=None)
    @given(number=st.integers())
    def property_of(number: int) -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        property_of()
