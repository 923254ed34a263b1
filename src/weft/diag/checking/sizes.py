"""Further trials that make a cause exact: how large may a packet be, and is every one lost? Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from typing import Final

from weft.diag.checking.causes import Cause
from weft.diag.checking.judging import judged
from weft.diag.checking.scenarios import BY_NAME
from weft.diag.checking.trial import SMALLEST, Outcome, Trial
from weft.model.net import Family
from weft.model.value import Value, replace

LEAST: Final[dict[Family, int]] = {4: SMALLEST, 6: 1280}  # bytes that every link carries (RFC 791 §3.2, RFC 8200 §5)
_AGAIN: Final = 12  # trials: of those that a third of packets fails, all fail once in 500,000 times
_AT_ONCE: Final = 40  # two rounds tell the sizes of an Ethernet apart
# What answers may be anybody's, and limit its answers: a round has few packets, and a size is tried so often.
_FEW: Final = 3
_SURE: Final = 3
MOST: Final = 66  # packets of `largest`, of any size


class Bounds(Value):
    """Packets of `low` bytes arrive, those of `high` bytes do not."""

    low: int
    high: int

    def between(self, most: int) -> list[int]:
        """So many sizes at most to try next, evenly between; none once the bounds are next to each other."""
        inside = range(self.low + 1, self.high)
        step = len(inside) // (most + 1) + 1
        return list(inside[step - 1 :: step])

    def narrowed(self, outcomes: Iterable[tuple[int, bool]]) -> "Bounds":
        """The bounds after some sizes passed and others did not: `low` is below the smallest that failed."""
        tried = sorted(outcomes)
        high = min((size for size, passed in tried if not passed), default=self.high)
        return Bounds(low=max((size for size, passed in tried if passed and size < high), default=self.low), high=high)


def largest(size: int, passing: Callable[[Sequence[int]], Sequence[bool]]) -> int | None:
    """The largest packet that passes where one of `size` bytes does not; 0 if not even a small one does.

    None if that is not known: some pass that are larger than others that are lost, or of one size some pass and some do
    not. `passing` tells of each size. It is searched twice before that is said: on a busy machine an answer may come
    too late once.
    """
    found = _searched(size, passing)
    return _searched(size, passing) if found is None else found


def _searched(size: int, passing: Callable[[Sequence[int]], Sequence[bool]]) -> int | None:
    bounds, least = Bounds(low=SMALLEST, high=size), [SMALLEST] * _SURE
    while sizes := [*least, *bounds.between(_FEW)]:
        tried = list(zip(sizes, passing(sizes), strict=True))
        lost = [each for each, passed in tried if not passed]
        if least and len(lost) == len(tried):
            return 0
        if SMALLEST in lost or any(passed and each > min(lost, default=size) for each, passed in tried):
            return None
        bounds, least = bounds.narrowed(tried), []
    sure = passing([bounds.low] * _SURE + [bounds.high] * _SURE)
    return bounds.low if list(sure) == [True] * _SURE + [False] * _SURE else None


Attempt = Callable[[Sequence[Trial]], Sequence[Outcome]]


def made(wanted: Sequence[Trial], attempt: Attempt) -> tuple[list[Trial], list[Outcome]]:
    """Make trials. One of the network's MTU is made again, smaller, if its source's own link has a smaller MTU.

    Pods keep the MTU that they were made with, and send no larger packets.
    """
    trials, outcomes = list(wanted), list(attempt(wanted))
    again = [number for number, each in enumerate(trials) if _is_own(each, outcomes[number])]
    for number in again:
        trials[number] = replace(trials[number], size=outcomes[number].refused)
    if again:
        for number, outcome in zip(again, attempt([trials[number] for number in again]), strict=True):
            outcomes[number] = outcome
    return trials, outcomes


def _is_own(trial: Trial, outcome: Outcome) -> bool:
    return BY_NAME[trial.scenario].size == "mtu" and 0 < outcome.refused < trial.size and not outcome.by


def tried_again(cause: Cause, attempt: Attempt) -> Cause:
    """Try some of what a cause of losses explains again, few of them several times; `partly` says that some passed."""
    if cause.fault != "lost" or cause.passed:
        return cause
    wanted = [each.trial for each in islice(cycle(cause.examples), _AGAIN)]
    some = any(outcome.answered for outcome in (*(each.outcome for each in cause.examples), *attempt(wanted)))
    return replace(cause, partly=some)


def measured(cause: Cause, attempt: Attempt) -> Cause:
    """A cause of sizes with the largest size that arrives, by trials of other sizes that `attempt` makes."""
    if ("size", "mtu") not in cause.traits:
        return cause
    trial = cause.examples[0].trial
    bounds = Bounds(low=LEAST[trial.family], high=trial.size)
    while sizes := bounds.between(_AT_ONCE):
        wanted = [replace(trial, size=size) for size in sizes]
        bounds = bounds.narrowed((each.trial.size, not each.fault) for each in judged(wanted, attempt(wanted)))
    return replace(cause, limit=bounds.low)
