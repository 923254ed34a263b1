"""A wait of a lab goes on while something changes, however long that takes."""

import pytest

from weft.lab.inside.daemons import Patience


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_goes_on_while_something_changes_and_ends_when_nothing_does():
    clock = Clock()
    patience = Patience(30, clock)
    for step in range(20):
        patience.check(step)
        clock.now += 29
    patience.check(19)
    clock.now += 2
    with pytest.raises(TimeoutError):
        patience.check(19)


def test_what_is_seen_first_is_a_change_of_nothing():
    clock = Clock()
    patience = Patience(30, clock)
    clock.now = 100
    patience.check(None)
    clock.now = 129
    patience.check(None)
    clock.now = 131
    with pytest.raises(TimeoutError):
        patience.check(None)
