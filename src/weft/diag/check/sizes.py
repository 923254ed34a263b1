"""Further trials that make a cause exact: how large may a packet be, and is every one lost? Pure."""

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Final

from weft.diag.check.causes import Cause
from weft.diag.check.judging import judged
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Outcome, Trial
from weft.diag.sizes import SMALLEST, Bounds
from weft.model.net import Family
from weft.model.value import replace

LEAST: Final[dict[Family, int]] = {4: SMALLEST, 6: 1280}  # bytes that every link carries (RFC 791 §3.2, RFC 8200 §5)
_AGAIN: Final = 12  # trials: of those that a third of packets fails, all fail once in 500,000 times
_AT_ONCE: Final = 40  # two rounds tell the sizes of an Ethernet apart


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
