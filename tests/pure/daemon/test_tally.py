"""What a loop has done: repairs, and the moments at which there were some."""

from weft.daemon.planes.repairs import Tally


def test_what_is_repaired_together_is_of_one_moment():
    tally = Tally()
    tally.repaired(["ROUTE-001", "ROUTE-001", "VTEP-003"], 0.0)
    tally.repaired(["ROUTE-001"], 4.9)
    assert tally.repairs == {"ROUTE-001": 3, "VTEP-003": 1}
    assert tally.lately(5.0) == {"ROUTE-001": 1, "VTEP-003": 1}
    tally.repaired(["ROUTE-001"], 5.0)
    assert tally.lately(5.0) == {"ROUTE-001": 2, "VTEP-003": 1}
    assert tally.lately(599.9) == {"ROUTE-001": 2, "VTEP-003": 1}
    assert tally.lately(600.0) == {"ROUTE-001": 1}
    assert tally.lately(605.0) == {}


def test_many_moments_cost_no_memory():
    tally = Tally()
    for second in range(0, 10_000, 5):
        tally.repaired(["ROUTE-001"], float(second))
    assert tally.lately(10_000.0) == {"ROUTE-001": 20}
    tally.repaired([], 10_001.0)
    assert tally.repairs == {"ROUTE-001": 2000}
