"""Repairs of one object: a burst, then ever fewer while the fight goes on."""

from weft.plan.backoff import BURST, LONGEST_PAUSE, PAUSE, QUIET, Backoff

KEY = ("route", 254, b"\x0a\x05\x01\x00", 24, 0)


def test_a_burst_is_repaired_at_once():
    backoff = Backoff()
    assert [backoff.wait(KEY, now=0.0) for _ in range(BURST)] == [0.0] * BURST
    assert backoff.wait(KEY, now=0.0) == PAUSE


def test_pauses_grow_to_a_minute():
    backoff, now, waits = Backoff(), 0.0, []
    for _ in range(BURST + 10):
        wait = backoff.wait(KEY, now)
        if wait:
            waits.append(wait)
            now += wait
            assert backoff.wait(KEY, now) == 0.0
    assert waits[0] == PAUSE
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_PAUSE


def test_objects_do_not_share_a_fuse():
    backoff = Backoff()
    for _ in range(BURST + 1):
        backoff.wait(KEY, now=0.0)
    assert backoff.wait(("route", 254, b"\x0a\x05\x02\x00", 24, 0), now=0.0) == 0.0


def test_peace_resets_it_and_a_fight_is_announced_once():
    backoff = Backoff()
    for _ in range(BURST + 1):
        backoff.wait(KEY, now=0.0)
    assert backoff.announce(KEY)
    assert not backoff.announce(KEY)
    later = QUIET + 1
    assert [backoff.wait(KEY, now=later) for _ in range(BURST)] == [0.0] * BURST
    assert backoff.announce(KEY)


def test_what_is_quiet_for_long_is_forgotten_and_a_fight_is_not():
    backoff = Backoff()
    for number in range(1000):  # a node of weeks, whose peers come and go
        backoff.wait(("route", 254, number.to_bytes(4), 24, 0), now=float(number))
    assert len(backoff._records) == QUIET + 1
    for _ in range(BURST):
        backoff.wait(KEY, now=1000.0)
    for now in range(1000, 3000):
        backoff.wait(KEY, now=float(now))
    assert list(backoff._records) == [KEY]
    assert backoff.wait(KEY, now=3000.0) > 0


def test_a_fight_is_not_forgotten_in_the_pauses_that_it_is_given():
    backoff, now = Backoff(), 0.0
    for _ in range(BURST):
        backoff.wait(KEY, now)
    for pause in (LONGEST_PAUSE, LONGEST_PAUSE, QUIET):
        now += pause
        assert backoff.wait(KEY, now) == 0.0
        assert backoff.wait(KEY, now) > 0.0, f"after {now} s a whole burst is let through again"
