"""Which cases of parametrised tests a run does.

`pytest --drawn=SEED` does one in four of each test, at least one, and what else proves an id of a specification; a test
that is marked `every` does all of its cases. The same seed draws the same. Without the option a run does all.
"""

import random
from collections.abc import Sequence
from typing import Final

from tests.spec.claims import Case

ONE_IN: Final = 4


def drawn(cases: Sequence[Case], seed: str) -> set[int]:
    """Draw from cases, by their place in the sequence; a test without parameters is always done."""
    places: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        places.setdefault(case.test, []).append(place)
    chosen: set[int] = set()
    for test, of_it in places.items():
        # For each test anew, so that a test that comes or goes leaves the others' cases as they are.
        order = random.Random(f"{seed} {test}").sample(of_it, len(of_it))
        chosen.update(order[: -(-len(of_it) // ONE_IN)])
        proved = {name for place in chosen.intersection(of_it) for name in cases[place].ids}
        for place in order:
            if not proved.issuperset(cases[place].ids):
                chosen.add(place)
                proved.update(cases[place].ids)
    return chosen
