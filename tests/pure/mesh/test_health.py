"""When a path counts as one that carries packets, and how large ones, and when it is asked."""

from itertools import pairwise

from weft.mesh.health import FALLEN, IN_USE, Path
from weft.mesh.sizes import WHOLE


class Asked:
    """A path that is asked when it is due, on a network that answers or does not; seconds since the start."""

    def __init__(self) -> None:
        self.path = Path(0.0)
        self.now = 0.0
        self.answers = True
        self.largest = WHOLE
        self.sent: list[tuple[float, int]] = []

    def run(self, seconds: float, *, interval: float = IN_USE) -> None:
        end = self.now + seconds
        while self.path.due <= end:
            self.now = self.path.due
            size = self.path.tick(self.now, interval)
            if size is not None:
                self.sent.append((self.now, size))
                if self.answers and size <= self.largest:
                    self.path.answered(size, self.now, interval)
        self.now = end

    def at(self, *, large: bool) -> list[float]:
        """When large echoes were sent, or the others."""
        return [when for when, size in self.sent if (size > 0) is large]

    def mtu_is(self, mtu: int, *, within: float) -> bool:
        end = self.now + within
        while self.path.sizes.mtu != mtu and self.now < end:
            self.run(0.5)
        return self.path.sizes.mtu == mtu

    def until(self, usable: bool | None, *, within: float, interval: float = IN_USE) -> float:
        start = self.now
        while self.path.usable is not usable and self.now < start + within:
            self.run(0.5, interval=interval)
        return self.now - start


def test_nothing_is_known_before_the_first_answer():
    asked = Asked()
    assert asked.path.usable is None
    asked.run(0.0)
    assert asked.path.usable is True


def test_a_path_in_use_is_asked_each_second():
    asked = Asked()
    asked.run(10)
    assert sorted({when for when, _ in asked.sent}) == list(range(11))


def test_a_path_without_traffic_is_asked_once_an_interval_and_five_times_more_when_an_answer_is_missed():
    asked = Asked()
    asked.run(130, interval=60.0)
    assert asked.sent == [(0, 0), (0, WHOLE), (60, 0), (120, 0)]
    asked.answers = False
    asked.run(70, interval=60.0)
    assert asked.at(large=False)[3:] == [180, 181, 182, 183, 184]
    assert asked.path.usable is False


def test_a_path_that_never_answers_falls_too():
    asked = Asked()
    asked.answers = False
    assert asked.until(False, within=10) <= 5.5


def test_four_misses_are_none():
    asked = Asked()
    asked.run(3)
    asked.answers = False
    asked.run(4.5)
    assert asked.path.missing
    assert not asked.path.proved
    asked.answers = True
    asked.run(20)
    assert asked.path.proved
    assert asked.path.usable is True


def test_a_path_that_has_fallen_is_back_after_three_answers_and_ten_seconds():
    asked = Asked()
    asked.answers = False
    asked.run(6)
    asked.answers = True
    assert 5 <= asked.until(True, within=60, interval=FALLEN) <= 20


def test_a_path_that_falls_soon_after_its_return_waits_twice_as_long_each_time_but_no_more_than_five_minutes():
    asked, waits = Asked(), []
    for _ in range(8):
        asked.answers = False
        asked.until(False, within=30)
        asked.answers = True
        waits.append(asked.until(True, within=400))
    assert all(later >= 1.6 * sooner for sooner, later in pairwise(waits[:5]))
    assert 290 <= waits[-1] <= 310
    asked.run(61)
    asked.answers = False
    asked.until(False, within=30)
    asked.answers = True
    assert asked.until(True, within=400) <= 20


def test_an_answer_that_comes_late_counts():
    path = Path(0.0)
    for second in range(20):
        assert path.tick(float(second), IN_USE) is not None
        path.answered(0, second + 1.2, IN_USE) if second % 3 else None
        path.due = second + 1.0
    assert path.usable is True


def test_what_was_out_while_we_slept_is_no_miss():
    path = Path(0.0)
    for _ in range(10):
        path.tick(path.due, IN_USE)
        path.forgive(path.due)
    assert path.usable is None


def test_a_path_that_comes_into_use_is_asked_at_once_unless_an_echo_is_out():
    path = Path(50.0)
    path.hasten(2.0)
    assert path.due == 2.0
    path.tick(2.0, IN_USE)
    path.hasten(2.1)
    assert path.due == 3.0


def test_a_path_that_had_fallen_before_a_restart_has_fallen_still_and_comes_back_by_answers():
    asked = Asked()
    asked.path = Path(0.0, usable=False, mtu=1400)
    assert asked.path.sizes.mtu == 1400
    asked.answers = False
    asked.run(20, interval=FALLEN)
    assert asked.path.usable is False
    asked.answers = True
    assert asked.until(True, within=20, interval=FALLEN) <= 10
    assert asked.mtu_is(0, within=10)


def test_how_large_packets_may_be_is_known_soon_and_asked_again_all_the_time():
    asked = Asked()
    asked.run(100)
    assert asked.path.sizes.mtu == 0
    assert len(asked.at(large=True)) == 21


def test_a_path_of_smaller_packets_is_found_at_the_start_within_three_seconds_a_size():
    for largest, mtu in ((1410, 1400), (1390, 1380), (1300, 1280)):
        asked = Asked()
        asked.largest = largest
        assert asked.mtu_is(mtu, within=9)
        asked.run(300)
        assert asked.path.sizes.mtu == mtu
        assert asked.path.proved


def test_n12_a_path_that_is_lowered_is_found_in_time_and_one_that_is_raised_within_a_minute():
    asked = Asked()
    asked.run(30)
    asked.largest = 1300
    assert asked.mtu_is(1280, within=15)
    asked.largest = WHOLE
    assert asked.mtu_is(0, within=65)


def test_a_path_that_takes_no_size_has_the_least_one():
    asked = Asked()
    asked.largest = 100
    assert asked.mtu_is(1280, within=12)
    asked.run(60)
    assert asked.path.usable is True


def test_one_large_echo_that_is_lost_is_none():
    asked = Asked()
    asked.run(4.5)
    asked.largest = 100
    asked.run(1)  # one is out
    asked.largest = WHOLE
    asked.run(1)
    assert asked.path.sizes.mtu == 0


def test_a_path_that_falls_is_not_one_of_smaller_packets():
    asked = Asked()
    asked.run(4.5)
    asked.answers = False
    asked.run(120, interval=FALLEN)
    assert asked.path.sizes.mtu == 0


def test_large_answers_that_come_late_count_and_smaller_ones_then_not():
    path = Path(0.0)
    path.tick(0.0, IN_USE)
    path.answered(0, 0.1, IN_USE)
    assert path.tick(0.1, IN_USE) == WHOLE
    path.answered(0, 0.2, IN_USE)  # the small one, for the second time
    assert path.tick(1.1, IN_USE) == 0
    path.answered(WHOLE, 1.2, IN_USE)
    path.answered(1400, 1.3, IN_USE)
    assert path.sizes.mtu == 0
