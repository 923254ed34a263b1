"""What a node takes from outside, passed in by `main`: time, chance and where to report."""

from collections.abc import Callable

from weft.model.value import Value


class World(Value):
    """`now` is Unix time and `monotonic` a clock that only goes forward, in seconds; `random(n)` gives n bytes."""

    now: Callable[[], float]
    monotonic: Callable[[], float]
    random: Callable[[int], bytes]
    notify_socket: str = ""
