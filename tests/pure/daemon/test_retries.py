"""When an object is looked at again: one alarm each, later after each refusal, less often when somebody fights us."""

import asyncio
from collections.abc import Iterable

import pytest

from tests.support import builders
from tests.support.waiting import HANGS
from weft.daemon.planes.retries import Retries
from weft.model.kernel.objects import Key, Route
from weft.plan.backoff import BURST

ROUTE = Route(dst=builders.subnet_v4(2), via=builders.public_v4(2), dev="eth0")
ONE, TWO = ROUTE.key, ("link", "flannel.1")


class Woken:
    """Retries on a clock of the test's own, and what they woke."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.up = asyncio.Event()
        self.now = 100.0
        self.retries = Retries(self.wake, clock=lambda: self.now)

    def wake(self, keys: Iterable[Key]) -> None:
        self.keys += keys
        self.up.set()

    def pause(self, key: Key) -> float | None:
        """Seconds until the alarm of an object, None if it has none."""
        alarm = self.retries._alarms.get(key)
        return None if alarm is None else round(alarm.when() - asyncio.get_running_loop().time())

    def pauses(self, key: Key, *, longest: float, times: int) -> list[float | None]:
        found = []
        for _ in range(times):
            self.retries.refused(key, longest=longest)
            found.append(self.pause(key))
        return found


@pytest.mark.parametrize("longest, pauses", [(60, [1, 2, 4, 8, 16, 32, 60, 60]), (4, [1, 2, 4, 4, 4, 4, 4, 4])])
async def test_each_refusal_makes_the_next_pause_longer(longest, pauses):
    assert Woken().pauses(ONE, longest=longest, times=8) == pauses


async def test_the_first_refusal_of_each_object_is_told():
    woken = Woken()
    assert [woken.retries.refused(key, longest=60) for key in (ONE, ONE, TWO, ONE)] == [True, False, True, False]
    woken.retries.settled(ONE)
    assert woken.pause(ONE) is None
    assert woken.pause(TWO) == 1
    assert woken.retries.refused(ONE, longest=60)
    assert woken.pause(ONE) == 1
    woken.retries.settled(("link", "never heard of"))


async def test_an_alarm_takes_the_place_of_the_one_before_and_goes_off_once():
    woken = Woken()
    woken.retries.later(0, ONE)
    woken.retries.later(3600, ONE)
    woken.retries.later(0, TWO)
    await asyncio.wait_for(woken.up.wait(), HANGS)
    assert woken.keys == [TWO]
    assert (woken.pause(ONE), woken.pause(TWO)) == (3600, None)


async def test_a_fight_is_told_once_and_repairs_get_their_time(caplog):
    woken = Woken()
    assert all(woken.retries.may_repair(ROUTE, "ROUTE-001") for _ in range(BURST))
    assert woken.pause(ONE) is None
    assert not woken.retries.may_repair(ROUTE, "ROUTE-001")
    assert not woken.retries.may_repair(ROUTE, "ROUTE-001")
    assert woken.pause(ONE) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "ROUTE-001: someone keeps changing route 10.5.2.0/24 via 192.168.0.2 dev eth0; repairing it less often"
    ]
    woken.now += 3
    assert woken.retries.may_repair(ROUTE, "ROUTE-001")


async def test_an_object_tells_for_how_long_it_was_refused_or_is_not_any_more():
    woken = Woken()
    assert woken.retries.age(ONE) is None
    woken.retries.refused(ONE, longest=60)
    woken.now += 5
    woken.retries.refused(ONE, longest=60)
    assert woken.retries.age(ONE) == 5
    woken.retries.settled(ONE)
    woken.now += 2
    assert woken.retries.age(ONE) == 2
    woken.retries.gone(ONE)
    assert woken.retries.age(ONE) is None
    woken.retries.gone(ONE)
