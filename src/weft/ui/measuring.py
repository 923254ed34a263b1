"""What pings between nodes have shown, and which pair is measured next. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from weft.model.value import Value

Pair = tuple[str, str]  # two nodes by name, in the lab's order

AGAIN: Final = 5.0  # seconds after which two nodes are measured again
SOON: Final = 1.0  # and where the last probe was lost
KEPT: Final = 10  # the probes that count


class Measured(Value):
    """The newest last: milliseconds of the round trip, None if lost. `at` is the Unix time of the newest."""

    probes: tuple[float | None, ...]
    at: float
    words: str = ""

    @property
    def lost(self) -> int:
        return self.probes.count(None)

    @property
    def is_cut(self) -> bool:
        return not any(probe is not None for probe in self.probes[-2:])

    @property
    def milliseconds(self) -> float | None:
        """The median of those that came back."""
        there = sorted(probe for probe in self.probes if probe is not None)
        return there[len(there) // 2] if there else None


def noted(before: Measured | None, probe: float | None, *, at: float, words: str = "") -> Measured:
    probes = () if before is None else before.probes
    return Measured(probes=(*probes, probe)[-KEPT:], at=at, words=words)


def due(pairs: Iterable[Pair], measured: Mapping[Pair, Measured], *, now: float) -> Pair | None:
    """The pair that has waited longest beyond its time."""
    waiting = {pair: now - _next(measured.get(pair)) for pair in pairs}
    pair = max(waiting, key=lambda each: waiting[each], default=None)
    return pair if pair is not None and waiting[pair] >= 0 else None


def _next(measured: Measured | None) -> float:
    if measured is None:
        return 0.0
    return measured.at + (SOON if measured.probes[-1] is None else AGAIN)
