"""One measured figure, and the table of them."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

# How much longer than a floor that lies beyond the bound a measurement may take.
BESIDE_FLOOR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measurement beside what it is to reach.

    `ours` and `theirs` are samples in `unit`; `peer` says what `theirs` is. `target` is a bound on the median of
    `ours`, `ratio` one on its ratio to that of `theirs`: from above, or from below when `more` is better. `floor` are
    samples of what no program can do without. Where their median lies beyond the bound, the machine is too slow for
    it; then `BESIDE_FLOOR` times the floor is the bound.
    """

    what: str
    unit: str
    ours: Sequence[float]
    target: float | None = None
    ratio: float | None = None
    more: bool = False
    peer: str = ""
    theirs: Sequence[float] = ()
    floor: Sequence[float] = ()
    upstream: str = ""

    @property
    def measured_ratio(self) -> float | None:
        beside = median(self.theirs) if self.theirs else 0
        return median(self.ours) / beside if 0 < beside < math.inf else None

    @property
    def bound(self) -> float | None:
        """The bound on the median, in `unit`."""
        if self.ratio is not None and self.theirs:
            return self.ratio * median(self.theirs)
        return self.target

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or `floor` with its median: beyond the bound as the floor is, but not far from the floor."""
        if self.bound is None:
            return ""
        sign = -1 if self.more else 1
        if sign * median(self.ours) <= sign * self.bound:
            return "met"
        if not self.floor or sign * median(self.floor) <= sign * self.bound:
            return "missed"
        beside = median(self.floor) * BESIDE_FLOOR**sign
        return f"floor {_number(median(self.floor))}" if sign * median(self.ours) <= sign * beside else "missed"


def table(figures: Iterable[Figure]) -> str:
    """The figures as text, a line each."""
    rows = [("measurement", "median", "spread", "peer or floor", "ratio", "to reach", "upstream", "")]
    rows += [_row(figure) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(figure: Figure) -> tuple[str, ...]:
    peer = f"{_number(median(figure.theirs))} {figure.peer}" if figure.theirs else ""
    ratio = f"{figure.measured_ratio:.2f}" if figure.measured_ratio is not None else ""
    sign = "≥" if figure.more else "≤"
    reach = f"{sign} {figure.ratio:g} x peer" if figure.ratio is not None else ""
    if figure.target is not None:
        reach = f"{sign} {figure.target:g} {figure.unit}"
    return (
        figure.what,
        f"{_number(median(figure.ours))} {figure.unit}",
        f"{_number(min(figure.ours))}–{_number(max(figure.ours))} ({len(figure.ours)})",
        peer,
        ratio,
        reach,
        figure.upstream,
        figure.verdict,
    )


def as_json(figures: Iterable[Figure]) -> str:
    """The figures for programs, one object a line."""
    return "\n".join(
        json.dumps(
            {
                "what": figure.what,
                "unit": figure.unit,
                "median": median(figure.ours),
                "samples": list(figure.ours),
                "peer": figure.peer,
                "theirs": list(figure.theirs),
                "bound": figure.bound,
                "verdict": figure.verdict,
            }
        )
        for figure in figures
    )


def p95(samples: Sequence[float]) -> float:
    """The value that 95 of 100 samples do not exceed."""
    return quantiles(samples, n=20)[-1]


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
