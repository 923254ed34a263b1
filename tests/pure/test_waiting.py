"""The tests' own waiting: limits are for what hangs, and what is waited for keeps the processor."""

import pytest

from tests.support import waiting
from tests.support.weftd import eventually


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks, which take no time beside them."""
    made: list[float] = []
    monkeypatch.setattr(waiting.time, "sleep", made.append)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: sum(made))
    return made


def test_what_is_there_at_once_is_not_waited_for(pauses: list[float]):
    assert eventually(lambda: 7) == 7
    assert not pauses


def test_a_busy_machine_has_a_multiple_of_the_time(pauses: list[float]):
    assert eventually(lambda: sum(pauses) > 5 * 3, seconds=3)


def test_what_never_comes_is_given_up_with_what_was_seen_last(pauses: list[float]):
    with pytest.raises(AssertionError, match=r"last seen \[\]"):
        eventually(list, seconds=3)
    assert 6 * 3 < sum(pauses) < 6 * 3 + 1


def test_pauses_are_a_small_part_of_the_wait(pauses: list[float]):
    with pytest.raises(AssertionError):
        eventually(list, seconds=3)
    assert pauses[0] == 0.005
    for number, pause in enumerate(pauses):
        assert 0.005 <= pause <= max(0.005, min(0.1, sum(pauses[:number]) / 20)) + 1e-9
    assert len(pauses) < 400  # 3,600 at the first one's rate


def test_what_takes_as_long_as_it_may_here_is_in_time(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now)
    monkeypatch.setattr(waiting, "slowness", lambda: 3.0)
    assert waiting.in_time(99, 2)
    assert waiting.in_time(95, 2)
    assert not waiting.in_time(93, 2)


def test_how_slow_a_machine_is_is_seen_from_work():
    assert waiting.slowness() >= 0.99
