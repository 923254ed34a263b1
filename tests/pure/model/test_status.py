"""What the daemon says of itself is asked of each part, each time."""

from weft.model.errors import Problem
from weft.model.node.status import Status

WAITS = Problem(code="LEASE-001", where="weftd", seen="starting")
FAILS = Problem(code="VTEP-002", where="link", seen="refused")


def test_a_part_that_fails_is_named_before_the_lease_that_waits_for_it():
    wrong: list[Problem] = []
    status = Status(waiting=WAITS, parts={"devices": lambda: wrong[0] if wrong else None})
    assert (status.unable, status.ready) == (WAITS, False)
    wrong.append(FAILS)
    assert status.look() == {"lease": WAITS, "devices": FAILS}
    assert status.unable == FAILS
    status.waiting = None
    assert not status.ready
    wrong.clear()
    assert status.ready


def test_a_store_that_refuses_costs_readiness_and_no_pod_and_a_silent_one_nothing():
    status = Status(store=Problem(code="STORE-001", where="store", seen="silent"))
    assert (status.ready, status.refused, status.unable) == (True, False, None)
    status.store = Problem(code="STORE-002", where="store", seen="refuses")
    assert (status.ready, status.refused, status.unable) == (False, True, None)


def test_what_pods_have_lost_is_asked_for_now():
    lost = [None]
    status = Status(losses={"pods": lambda: lost[0], "bridge": lambda: None})
    assert status.lost() == {}
    lost[0] = WAITS
    assert status.lost() == {"pods": WAITS}
