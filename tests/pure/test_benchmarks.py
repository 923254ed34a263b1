"""What `make bench` says of a figure."""

import math

import pytest

from benchmarks.figures import Figure, table


@pytest.mark.parametrize(
    "ours,floor,more,verdict",
    [
        (10, 5, False, "met"),
        (11, 5, False, "missed"),
        (11, 10.5, False, "floor 10.5"),
        (21, 10.5, False, "floor 10.5"),
        (21.1, 10.5, False, "missed"),
        (10, 20, True, "met"),
        (9, 20, True, "missed"),
        (9, 9.5, True, "floor 9.5"),
        (4.7, 9.5, True, "missed"),
    ],
)
def test_a_floor_beyond_the_bound_excuses_only_what_stays_near_it(ours, floor, more, verdict):
    figure = Figure(what="a row", unit="ms", ours=[ours], target=10, more=more, floor=[floor])
    assert figure.verdict == verdict


def test_without_a_floor_the_bound_decides():
    assert Figure(what="a row", unit="ms", ours=[9, 10, 30], target=10).verdict == "met"
    assert Figure(what="a row", unit="ms", ours=[9, 11, 30], target=10).verdict == "missed"
    assert Figure(what="a row", unit="ms", ours=[9], theirs=[5], ratio=2, peer="a peer").verdict == "met"
    assert not Figure(what="a row", unit="ms", ours=[9]).verdict


@pytest.mark.parametrize("theirs", [0, math.inf])
def test_there_is_no_ratio_to_nothing_or_to_what_never_came(theirs):
    figure = Figure(what="a row", unit="s", ours=[math.inf], theirs=[theirs], peer="a peer", target=2)
    assert figure.measured_ratio is None
    assert figure.verdict == "missed"
    assert "inf s" in table([figure])
