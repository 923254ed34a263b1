"""What the log says of repairs: a code for each, and of thousands that are alike a few and their number."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from weft.model.marks import FORWARDING
from weft.model.objects import NodeLink, Object, Sysctl, VxlanLink
from weft.plan.diff import Put, Step
from weft.plan.explain import describe

log = logging.getLogger(__name__)

NAMED: Final = 10  # logged one by one; of what is beyond that, the number

FORWARDING_CODE: Final = "KERN-002"
NODE_LINK_CODE: Final = "BRIDGE-006"

# The code of the problem that the repair answers to, and what was done.
Repair = tuple[str, Step]

_CODES: Final[Mapping[str, str]] = {
    "address": "VTEP-001",
    "sysctl": "VTEP-003",
    "neighbour": "FDB-001",
    "fdb": "FDB-001",
    "route": "ROUTE-001",
}


def code(thing: Object, *, wanted: bool, there: bool) -> str:
    """The code of the problem that repairing `thing` answers to."""
    if not wanted:
        return "ROUTE-002"
    if isinstance(thing, Sysctl) and thing.name in FORWARDING.values():
        return FORWARDING_CODE
    if isinstance(thing, NodeLink):
        return NODE_LINK_CODE
    if isinstance(thing, VxlanLink):
        return "VTEP-003" if there else "VTEP-004"
    return _CODES[str(thing.key[0])]


def report(repairs: Sequence[Repair]) -> None:
    """Log what someone else had changed."""
    if len(repairs) > NAMED:
        by_code = Counter(each for each, _ in repairs)
        log.warning("repaired %s", ", ".join(f"{count} x {each}" for each, count in sorted(by_code.items())))
        return
    for each, step in repairs:
        log.warning("%s: %s %s", each, "put back" if isinstance(step, Put) else "removed", describe(step.object))


def say_some(say: Callable[[str], None], lines: Sequence[str], *, named: int = NAMED) -> None:
    """Log the first lines of many that say the like, and how many there are: thousands of peers fail together."""
    for line in lines[:named]:
        say(line)
    if len(lines) > named:
        say(f"and {len(lines) - named} more like that")
