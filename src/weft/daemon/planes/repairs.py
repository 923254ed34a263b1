"""What the log says of repairs: a code for each, and of thousands that are alike a few and their number."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from weft.plan.diff import Put, Step

log = logging.getLogger(__name__)

NAMED: Final = 10  # logged one by one; of what is beyond that, the number


# The code of the problem that the repair answers to, and what was done.
Repair = tuple[str, Step]


def report(repairs: Sequence[Repair]) -> None:
    """Log what someone else had changed."""
    if len(repairs) > NAMED:
        by_code = Counter(each for each, _ in repairs)
        log.warning("repaired %s", ", ".join(f"{count} x {each}" for each, count in sorted(by_code.items())))
        return
    for each, step in repairs:
        log.warning("%s: %s %s", each, "put back" if isinstance(step, Put) else "removed", step.object)


def say_some(say: Callable[[str], None], lines: Sequence[str], *, named: int = NAMED) -> None:
    """Log the first lines of many that say the like, and how many there are: thousands of peers fail together."""
    for line in lines[:named]:
        say(line)
    if len(lines) > named:
        say(f"and {len(lines) - named} more like that")
