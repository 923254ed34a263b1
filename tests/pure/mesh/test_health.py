"""When a path counts as one that carries packets, and when it is asked."""

from itertools import pairwise

from weft.mesh.health import FALLEN, IN_USE, Path


class Asked:
    """A path that is asked when it is due, on a network that answers or does not; seconds since the start."""

    def __init__(self) -> None:
        self.path = Path(0.0)
        self.now = 0.0
        self.answers = True
        self.sent: list[float] = []

    def run(self, seconds: float, *, interval: float = IN_USE) -> None:
        end = self.now + seconds
        while self.path.due <= end:
            self.now = self.path.due
            if self.path.tick(self.now, interval):
                self.sent.append(self.now)
                if self.answers:
                    self.path.answered(self.now, interval)
        self.now = end

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
    assert asked.sent == list(range(11))


def test_a_path_without_traffic_is_asked_once_an_interval_and_five_times_more_when_an_answer_is_missed():
    asked = Asked()
    asked.run(130, interval=60.0)
    assert asked.sent == [0, 60, 120]
    asked.answers = False
    asked.run(70, interval=60.0)
    assert asked.sent[3:] == [180, 181, 182, 183, 184]
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
    asked.answers = True
    asked.run(20)
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
        assert path.tick(float(second), IN_USE)
        path.answered(second + 1.2, IN_USE) if second % 3 else None
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
