"""What became of a trial, in words too, and the further trials that make a cause exact. Pure."""

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Final, assert_never

from weft.diag.check.causes import Cause
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Fault, Outcome, Trial, Tried
from weft.diag.sizes import SMALLEST, Bounds
from weft.model.net import Family
from weft.model.value import replace

LEAST: Final[dict[Family, int]] = {4: SMALLEST, 6: 1280}  # bytes that every link carries (RFC 791 §3.2, RFC 8200 §5)
_AGAIN: Final = 12  # trials: of those that a third of packets fails, all fail once in 500,000 times
_AT_ONCE: Final = 40  # two rounds tell the sizes of an Ethernet apart


Attempt = Callable[[Sequence[Trial]], Sequence[Outcome]]


def judged(trials: Sequence[Trial], outcomes: Sequence[Outcome]) -> list[Tried]:
    """Judge each trial by its outcome, without those that could not be tried.

    Where a packet that is not too large is lost as well, a refusal is not missing.
    """
    found = [
        Tried(trial=trial, outcome=outcome, fault=_fault_by_policies(trial, outcome))
        for trial, outcome in zip(trials, outcomes, strict=True)
        if not _is_untried(trial, outcome)
    ]
    sized = (each for each in found if each.trial.size and BY_NAME[each.trial.scenario].size != "more")
    faults: dict[tuple[str, str, int], Fault] = {_way(each.trial): each.fault for each in sized if each.fault}
    return [_explained(each, faults.get(_way(each.trial), "")) for each in found]


def _explained(tried: Tried, fault: Fault) -> Tried:
    """A missing refusal has the `fault` of a packet that is not too large on the same way."""
    if tried.fault != "unrefused" or tried.outcome.answered:
        return tried
    same = fault == "narrow" if tried.outcome.refused else fault == "lost"
    return replace(tried, fault=fault) if same else tried


def _way(trial: Trial) -> tuple[str, str, int]:
    return trial.source, trial.target, trial.family


def untried(trials: Sequence[Trial], outcomes: Sequence[Outcome]) -> list[str]:
    found = (trial for trial, outcome in zip(trials, outcomes, strict=True) if _is_untried(trial, outcome))
    ports = dict.fromkeys((trial.target, trial.listens) for trial in found)
    return [
        f"{target}: a program in its pods has UDP port {port}, and need not answer a check's datagrams"
        for target, port in ports
    ]


def _is_untried(trial: Trial, outcome: Outcome) -> bool:
    return outcome.theirs and trial.protocol == "udp"


def _fault_by_policies(trial: Trial, outcome: Outcome) -> Fault:
    if trial.forbidden:
        return "forbidden" if outcome.answered or outcome.seen else ""
    may_be_lost = trial.forbidden is None and outcome.answered < trial.flows
    return "" if may_be_lost else _fault(trial, outcome)


def _fault(trial: Trial, outcome: Outcome) -> Fault:
    scenario = BY_NAME[trial.scenario]
    own = bool(outcome.refused) and not outcome.by  # the source's own link is so narrow, and its kernel says so
    if scenario.size == "more":
        return "" if outcome.refused == trial.size - 1 or (own and outcome.refused < trial.size) else "unrefused"
    if outcome.answered < trial.flows:
        return "narrow" if 0 < outcome.refused < trial.size else "lost"
    if trial.afar:
        return ""
    if not outcome.seen and not outcome.theirs:
        return "unseen"
    return "translated" if scenario.forbids_nat and outcome.seen != outcome.own else ""


def described(tried: Tried) -> str:
    trial = tried.trial
    size = f" of {trial.size} bytes" if trial.size else ""
    by = f"{trial.protocol.upper()}{size} by IPv{trial.family}"
    port = f" port {trial.port}" if trial.port else ""
    return f"{trial.source} -> {trial.target} ({trial.address}{port}), {by}: {_words(tried)}"


def _words(tried: Tried) -> str:
    trial, outcome = tried.trial, tried.outcome
    by = outcome.by or "its own kernel"
    match tried.fault:
        case "lost":
            return _lost(trial, outcome)
        case "unrefused":
            return _unrefused(trial, outcome)
        case "" | "narrow" | "unseen" | "translated" | "shared" | "forbidden":
            return {
                "": "as it should be",
                "narrow": f"refused by {by} with an MTU of {outcome.refused}: smaller packets pass",
                "unseen": f"answered, and not by {trial.target}, which saw nothing",
                "translated": f"seen there as {outcome.seen}, and the source is {outcome.own}: translated on the way",
                "shared": "another pod has this address, too",
                "forbidden": "it arrived, and policies forbid it",
            }[tried.fault]
    assert_never(tried.fault)


def _lost(trial: Trial, outcome: Outcome) -> str:
    if outcome.answered:
        return f"{outcome.answered} of {trial.flows} flows were answered"
    said = f"; {outcome.error}" if outcome.error else ""
    if outcome.seen:
        return f"it arrived from {outcome.seen}, and no answer came back{said}"
    return f"{'no answer came' if trial.afar else 'nothing arrived'}{said}"


def _unrefused(trial: Trial, outcome: Outcome) -> str:
    if outcome.refused:
        by = outcome.by or "its own kernel"
        return f"refused by {by} with an MTU of {outcome.refused}, and that of pods is {trial.size - 1}"
    if outcome.answered:
        return "it was answered, so it was not refused"
    if outcome.seen:
        return "it arrived, and the answer, as large, was lost: no error said why"
    return f"lost, and no error said why{f': {outcome.error}' if outcome.error else ''}"


def made(wanted: Sequence[Trial], attempt: Attempt) -> tuple[list[Trial], list[Outcome]]:
    """Make trials. One of the network's MTU is made again, smaller, if its source's own link has a smaller MTU.

    Pods keep the MTU that they were made with.
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
    """Some of what a cause of losses explains is tried again, few of them several times."""
    if cause.fault != "lost" or cause.passed:
        return cause
    wanted = [each.trial for each in islice(cycle(cause.examples), _AGAIN)]
    some = any(outcome.answered for outcome in (*(each.outcome for each in cause.examples), *attempt(wanted)))
    return replace(cause, partly=some)


def measured(cause: Cause, attempt: Attempt) -> Cause:
    if ("size", "mtu") not in cause.traits:
        return cause
    trial = cause.examples[0].trial
    bounds = Bounds(low=LEAST[trial.family], high=trial.size)
    while sizes := bounds.between(_AT_ONCE):
        wanted = [replace(trial, size=size) for size in sizes]
        bounds = bounds.narrowed((each.trial.size, not each.fault) for each in judged(wanted, attempt(wanted)))
    return replace(cause, limit=bounds.low)
