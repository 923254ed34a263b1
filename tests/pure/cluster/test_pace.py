"""How long is waited before a store that failed is asked again."""

import asyncio
from types import SimpleNamespace

import pytest

from weft.cluster.pace import Pace


@pytest.fixture
def waited(monkeypatch):
    """The seconds of each wait, of which none passes."""
    seconds: list[float] = []

    async def sleep(duration: float) -> None:
        seconds.append(duration)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return seconds


async def test_each_wait_is_twice_as_long_up_to_a_limit_and_begins_anew_after_a_success(waited, monkeypatch):
    pace = Pace(1.0, 5.0, lambda: 1.0)
    for _ in range(5):
        await pace.wait()
    now = [0.0]
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now[0]))
    pace.answered()
    now[0] = 2.4
    pace.answered()
    await pace.wait()
    now[0] = 5.0
    pace.answered()
    now[0] = 7.5
    pace.answered()
    await pace.wait()
    assert waited == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 1.0], "what lasted for a moment was none"


async def test_chance_makes_a_wait_shorter_by_up_to_a_half(waited):
    for chance in (0.0, 0.5, 1.0):
        await Pace(1.0, 5.0, lambda chance=chance: chance).wait()
    assert waited == [0.5, 0.75, 1.0]


async def test_a_store_may_fail_for_weeks(waited):
    pace = Pace(0.1, 10.0, lambda: 1.0)
    for _ in range(2000):
        await pace.wait()
    assert waited[-1] == 10.0
