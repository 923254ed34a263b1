"""Whether a property gets to what it is about.

A property whose inputs are refused at the door proves nothing and passes. `reaches` counts, for each named point, the
examples that said `reached(point)`, and fails when they stay below a share of all in three turns. A share of a third of
what is usual does not fail by chance; `--hypothesis-show-statistics` shows the counts.

    @reaches(a_value=0.3)
    @given(…)
    def test_any_text_is_a_value_or_an_error(text):
        with suppress(Refused):
            parse(text)
            reached("a_value")
"""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import event

_MANY = 50  # examples from which a share says something; a property that failed or was shortened has fewer
_TURNS = 3  # until a share that is too small is no chance: the examples of one turn resemble each other
_running: list[set[str]] = []


def reached(point: str) -> None:
    """The example that runs has got to `point`."""
    _running[-1].add(point)


def reaches(**shares: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Above `given`: at least these shares of the examples get to these points."""

    def decorate(test: Any) -> Callable[..., None]:
        example = test.hypothesis.inner_test
        counts: Counter[str] = Counter()

        @functools.wraps(example)
        def counted(*args: Any, **kwargs: Any) -> None:
            _running.append(set())
            try:
                example(*args, **kwargs)
            finally:
                points = _running.pop()
                assert points <= shares.keys(), f"{points - shares.keys()} has no share"
                counts.update(points)
                counts["examples"] += 1
                for point in points:
                    event(f"reached {point}")

        @functools.wraps(test)
        def checked(*args: Any, **kwargs: Any) -> None:
            counts.clear()
            for _ in range(_TURNS):
                test(*args, **kwargs)
                examples = counts["examples"]
                if examples < _MANY or all(counts[point] >= share * examples for point, share in shares.items()):
                    return
            for point, share in shares.items():
                assert counts[point] >= share * examples, (
                    f"{counts[point]} of {examples} examples reached {point}, less than {share:.0%}"
                )

        test.hypothesis.inner_test = counted
        return checked

    return decorate
