"""A check summed up: what of each scenario, demand and problem of the model was tried, and what failed. Pure."""

from collections.abc import Iterable, Sequence

from weft.diag.check.causes import Cause
from weft.diag.check.evidence import Evidence, reason
from weft.diag.check.scenarios import BY_NAME, CONCERNS, DEMANDS, Scenario
from weft.diag.check.trial import Tried
from weft.diag.check.words import conclusion, sentence
from weft.model.value import Value


class Share(Value):
    """How many of the trials of one kind were `tried`, and how many `failed`."""

    name: str
    about: str
    tried: int
    failed: int


class Explained(Value):
    """A cause in words, with the nodes that it names and the evidence for it: code, node and words; or none."""

    sentence: str
    nodes: tuple[str, ...]
    failed: int
    passed: int
    code: str = ""
    node: str = ""
    seen: str = ""


class CheckReport(Value):
    """What `weft check` and `weft lab check` answer; `conclusion` is all of it on one line."""

    conclusion: str
    tried: int
    failed: int
    causes: list[Explained]
    demands: list[Share]
    concerns: list[Share]
    scenarios: list[Share]
    evidence: list[Evidence]
    untried: list[str]
    trials: list[Tried]


def summed_up(
    scenarios: Iterable[Scenario],
    tried: Sequence[Tried],
    causes: Sequence[Cause],
    evidence: Sequence[Evidence],
    *,
    untried: Sequence[str] = (),
) -> CheckReport:
    """Return all that came of a check of these scenarios."""
    return CheckReport(
        conclusion=conclusion(tried, causes, evidence, untried),
        tried=len(tried),
        failed=sum(bool(each.fault) for each in tried),
        causes=[_explained(cause, evidence, alone=len(causes) == 1) for cause in causes],
        demands=[_share(name, about, _of_demand(tried, name)) for name, about in DEMANDS.items()],
        concerns=[_share(name, about, _of_concern(tried, name)) for name, about in CONCERNS.items()],
        scenarios=[
            _share(each.name, each.about, [one for one in tried if one.trial.scenario == each.name])
            for each in scenarios
        ],
        evidence=list(evidence),
        untried=list(untried),
        trials=list(tried),
    )


def _explained(cause: Cause, evidence: Sequence[Evidence], *, alone: bool) -> Explained:
    why = reason(cause, evidence)
    known = {} if why is None else {"code": why.problem.code, "node": why.node, "seen": str(why.problem)}
    return Explained(
        sentence=sentence(cause, alone=alone),
        nodes=cause.place.nodes,
        failed=cause.failed,
        passed=cause.passed,
        **known,
    )


def _of_demand(tried: Iterable[Tried], name: str) -> list[Tried]:
    return [each for each in tried if name in BY_NAME[each.trial.scenario].demands]


def _of_concern(tried: Iterable[Tried], name: str) -> list[Tried]:
    return [each for each in tried if BY_NAME[each.trial.scenario].concern == name]


def _share(name: str, about: str, tried: Sequence[Tried]) -> Share:
    return Share(name=name, about=about, tried=len(tried), failed=sum(bool(each.fault) for each in tried))
