"""What two readings of counters say of each second, and how people see it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.lab.commands import top
from weft.lab.report import Carried, TrafficReport, WayReport, rates


def carried(name: str, count: float, *, node: str = "", number: str = "") -> Carried:
    return Carried(
        name=name,
        node=node,
        id=number,
        sent_bytes=count,
        sent_packets=count,
        received_bytes=count,
        received_packets=count,
        lost=count,
    )


def way(source: str, target: str, count: float, lost: float = 0) -> WayReport:
    return WayReport(source=source, target=target, bytes=count, packets=count, lost=lost)


def reading(seconds: float, *, pods: list[Carried] | None = None, ways: list[WayReport] | None = None) -> TrafficReport:
    return TrafficReport(seconds=seconds, nodes=[], pods=pods or [], ways=ways or [])


@given(st.integers(0, 2**63), st.integers(0, 2**40), st.sampled_from([0.5, 1.0, 2.0]))
def test_a_rate_is_what_came_since_in_each_second(count: int, more: int, seconds: float):
    before = reading(10.0, pods=[carried("web", count, number="1")])
    [rate] = rates(before, reading(10.0 + seconds, pods=[carried("web", count + more, number="1")])).pods
    assert rate.sent_bytes == rate.lost == round(more / seconds, 1)


def test_what_begins_to_count_anew_counts_from_there():
    before = reading(
        1.0, pods=[carried("web", 500, number="1"), carried("db", 500, number="2")], ways=[way("a", "b", 9)]
    )
    now = reading(
        2.0,
        pods=[carried("web", 20, number="1"), carried("db", 30, number="3")],
        ways=[way("a", "b", 4), way("b", "a", 7)],
    )
    found = rates(before, now)
    assert [each.sent_bytes for each in found.pods] == [20.0, 30.0], "a link made anew, and another pod of that name"
    assert [(each.source, each.packets) for each in found.ways] == [("a", 4.0), ("b", 7.0)]


def test_ways_that_nothing_went_are_left_out_and_those_where_all_was_lost_are_not():
    before = reading(1.0, ways=[way("a", "b", 5), way("b", "a", 5), way("a", "c", 0)])
    now = reading(2.0, ways=[way("a", "b", 5), way("b", "a", 6), way("a", "c", 0, lost=2)])
    assert [(each.source, each.target) for each in rates(before, now).ways] == [("b", "a"), ("a", "c")]


def test_two_readings_at_one_moment_divide_by_no_zero():
    same = reading(1.0, pods=[carried("web", 5)])
    assert rates(same, same).pods[0].sent_bytes == 0.0


def test_the_busiest_come_first_and_those_without_room_are_counted():
    report = reading(
        1.0, pods=[carried(f"pod{n}", n * 1e6, node="node1") for n in range(5)], ways=[way("a", "b", 1500, 3)]
    )
    lines = top.text("weft", report).splitlines()
    assert lines[0] == "lab weft: in each second, over 1.0 s"
    assert [line.split()[0] for line in lines[3:8]] == ["pod4", "pod3", "pod2", "pod1", "pod0"]
    assert lines[3].split() == ["pod4", "node1", "4.0", "MB/s", "4.0", "MB/s", "4000000", "4000000", "4000000"]
    assert lines[-1].split() == ["a", "b", "1.5", "kB/s", "1500", "3"]
    short = top.text("weft", report, 6)
    assert "pod2" not in short
    assert "and 3 more, less busy\n" in short


@pytest.mark.parametrize(
    "amount, shown",
    [
        (0, "0 B/s"),
        (999, "999 B/s"),
        (1000, "1.0 kB/s"),
        (123_456, "123 kB/s"),
        (9_900_000_000, "9.9 GB/s"),
        (5e16, "50000 TB/s"),
    ],
)
def test_amounts_have_few_digits(amount: float, shown: str):
    assert top._bytes(amount) == shown
