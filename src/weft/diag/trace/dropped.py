"""Why the kernel has dropped probes, by its own word (drop_monitor), where nothing else shows the cause. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from weft.diag import reasons
from weft.diag.trace.outcome import UNSEEN
from weft.diag.trace.probe_report import TraceReport
from weft.diag.trace.probes import Probe, find
from weft.model.errors import Problem
from weft.model.kernel.dropped import Drop
from weft.model.value import replace

_AS_TOLD: Final = "as the kernel tells"


def explained(found: TraceReport, probe: Probe, drops: Iterable[Drop]) -> TraceReport:
    """Name the reason for which probes that were sent once more were dropped.

    It has a code of its own only if each probe met it: a bridge that does not know a MAC makes copies of a packet,
    which are dropped elsewhere.
    """
    numbers: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for each in drops:
        seen = find(each.frame, probe.kind, probe.numbers, ports=(probe.port,))
        if seen is not None and not (seen.mtu or reasons.has_arrived(each)):
            numbers[each.reason, each.function, each.device].add(seen.number)
    if found.problem is None or found.problem.code != UNSEEN or not numbers:
        return found
    said = max(numbers, key=lambda which: (which[0] in reasons.BY_WORD, len(numbers[which])))
    problem = _named(found.problem, *said, whole=len(numbers[said]) == len(probe.numbers))
    return replace(found, problem=problem, verdict=str(problem))


def _named(problem: Problem, word: str, function: str, device: str, *, whole: bool) -> Problem:
    at = f", which came in by {device}" if device else ""
    evidence = f"{word or 'no reason is given'} in {function}{at}, {_AS_TOLD}"
    reason = reasons.BY_WORD.get(word)
    if reason is None or not whole:
        return replace(problem, seen=f"{problem.seen}; dropped: {evidence}", hint="")
    return reason.problem(problem.where, evidence)
