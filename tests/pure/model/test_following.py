"""What of a daemon's answers is news."""

from weft.model.errors import Problem
from weft.model.node.history import HEALTH, Event, EventsSince, Follower, Wanted, merged, recent
from weft.model.node.nodestate import HealthState
from weft.model.value import replace


def event(number: int, time: float = 0, kind: str = "joined", code: str = "") -> Event:
    return Event(number=number, time=time or float(number), kind=kind, subject=f"s{number}", code=code)


def told(*events: Event, last: int) -> EventsSince:
    return EventsSince(unix=100, last=last, events=list(events))


def test_each_event_is_news_once():
    follower = Follower()
    assert follower.events(told(event(1), event(2), last=2)) == [event(1), event(2)]
    assert follower.last == 2
    assert follower.events(told(last=2)) == []
    assert follower.events(told(event(3), last=3)) == [event(3)]


def test_two_that_are_alike_are_two():
    follower = Follower()
    alike = [event(1, 7), replace(event(1, 7), number=2)]
    assert follower.events(told(*alike, last=2)) == alike


def test_a_daemon_that_tells_all_again_tells_nothing_twice():
    follower = Follower()
    follower.events(told(event(1), event(2), event(3), last=3))
    # It has just started, and has not read its history: what happened meanwhile is its first event.
    new = Event(number=1, time=50, kind="lease-taken", subject="new")
    assert follower.events(told(new, last=1)) == [new]
    # It has read it, without the last before it was killed.
    again = [event(1), event(2), replace(new, number=3), Event(number=4, time=51, kind="started", subject="weftd")]
    assert follower.events(told(*again, last=4)) == again[3:]


def state(**troubles: Problem | None) -> HealthState:
    store = troubles.pop("store", None)
    lost = {name: problem for name, problem in troubles.items() if name == "pods" and problem is not None}
    parts = {name: problem for name, problem in troubles.items() if name != "pods"}
    return HealthState(ready=True, parts=parts, losses=lost, store=store)


DOWN = Problem(code="IFACE-002", where="eth0", seen="down")
AWAY = Problem(code="STORE-001", where="etcd", seen="away")


def said(events: list[Event]) -> list[tuple[str, str, str]]:
    assert all((each.kind, each.number, each.time) == (HEALTH, 0, 9.123) for each in events)
    return [(each.subject, each.code, each.words) for each in events]


def test_what_is_wrong_is_told_when_it_begins_changes_and_ends():
    follower = Follower()
    assert said(follower.health(state(uplink=None), 9.1234)) == []
    begun = [("uplink", "IFACE-002", "eth0: down"), ("pods", "IFACE-002", "eth0: down")]
    begun.append(("store", "STORE-001", "etcd: away"))
    assert said(follower.health(state(uplink=DOWN, pods=DOWN, store=AWAY), 9.1234)) == begun
    assert said(follower.health(state(uplink=DOWN, pods=DOWN, store=AWAY), 9.1234)) == []
    other = replace(DOWN, seen="gone")
    assert said(follower.health(state(uplink=other, pods=DOWN, store=AWAY), 9.1234)) == [
        ("uplink", "IFACE-002", "eth0: gone")
    ]
    assert said(follower.health(state(uplink=other, store=AWAY), 9.1234)) == [("pods", "", "is well again")]


def test_a_daemon_that_does_not_answer_is_told_once():
    follower = Follower()
    assert said(follower.silence(9.1234)) == [("weftd", "INST-003", "does not answer")]
    assert said(follower.silence(9.1234)) == []
    assert said(follower.health(state(), 9.1234)) == [("weftd", "", "answers again")]
    assert said(follower.health(state(), 9.1234)) == []


def test_what_is_recent():
    events = [event(1, 10), event(2, 90), event(3, 95)]
    assert recent(events, 100, 10) == events[1:]
    assert recent(events, 100, None) == []


def test_nodes_are_merged_by_time():
    assert merged([("b", [event(2), event(4)]), ("a", [event(3)])]) == [
        ("b", event(2)),
        ("a", event(3)),
        ("b", event(4)),
    ]


def test_which_are_wanted():
    repaired = event(1, kind="repaired", code="ROUTE-001")
    for wanted, wants in (
        (Wanted(), True),
        (Wanted(kinds=("joined", "repaired")), True),
        (Wanted(kinds=("joined",)), False),
        (Wanted(codes=("FDB-001", "ROUTE")), True),
        (Wanted(codes=("FDB",)), False),
        (Wanted(kinds=("joined",), codes=("ROUTE",)), False),
    ):
        assert wanted.wants(repaired) == wants
