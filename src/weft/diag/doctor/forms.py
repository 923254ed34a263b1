"""A diagnosis in words: for people, as JSON, as JUnit's report and as SARIF 2.1.0 (OASIS). Pure."""

from collections.abc import Iterator
from typing import Any, Final

from weft import __version__
from weft.diag.finding import Answer, Diagnosis, Finding, Weight
from weft.diag.junit import Case, suite
from weft.diag.sight.node import Proof
from weft.model.errors import Problem
from weft.model.text import counted
from weft.model.value import Value, fields_of

_NAMED: Final = 3


class FindingReport(Value):
    """A finding of a check, with the commands that mend it."""

    check: str
    weight: Weight
    code: str
    where: str
    seen: str
    expected: str
    hint: str
    fix: list[str]

    @property
    def problem(self) -> Problem:
        return Problem(self.code, self.where, self.seen, expected=self.expected, hint=self.hint)


class AnswerReport(Value):
    """`found` counts its findings; `unseen` is why a check could not be asked."""

    check: str
    about: str
    found: int
    unseen: str


class PacketsReport(Value):
    """How many packets were tried between this node's pods and to peers, and how many arrived."""

    tried: int
    arrived: int
    pods: int
    peers: int


class DoctorReport(Value):
    """What `weft doctor -o json` prints."""

    version: str
    findings: list[FindingReport]
    checks: list[AnswerReport]
    packets: PacketsReport | None = None


def lines(diagnosis: Diagnosis, proof: Proof | None, *, verbose: bool) -> Iterator[str]:
    """What was found, each with what mends it; what could not be seen; the packets that were sent; the sum."""
    if verbose:
        fine = (each for each in diagnosis.answers if not each.findings and not each.unseen)
        yield from (f"ok       {each.check}: {each.about}" for each in fine)
    for finding in diagnosis.findings:
        yield f"{finding.weight:8} {finding.problem}"
        yield from (f"           {command}" for command in finding.fix)
    unseen = [each for each in diagnosis.answers if each.unseen]
    yield from (f"not seen {each.check}: {each.unseen}" for each in unseen)
    if proof is not None and proof.tried:
        yield f"packets: {proof.arrived} of {proof.tried} arrived: {_among(proof)}"
        yield _sum(diagnosis, len(unseen))
    else:
        yield f"{_sum(diagnosis, len(unseen))}; no packet was sent, so nothing is proved"


def _among(proof: Proof) -> str:
    """Between how many, and what was left out."""
    among = f"{counted(proof.pods, 'pod')} here, {counted(proof.peers, 'peer')}"
    forbidden = sum(each.forbidden for each in proof.lost)
    refused = f"{forbidden} more are refused by policies" if forbidden > 1 else "1 more is refused by a policy"
    silent = f"no answer is due from {', '.join(proof.silent[:_NAMED])}{' …' * (len(proof.silent) > _NAMED)}"
    rest = (
        refused if forbidden else "",
        silent if proof.silent else "",
        f"{proof.more} more pods and peers were not tried" if proof.more else "",
    )
    return "; ".join([among, *filter(None, rest)])


def _sum(diagnosis: Diagnosis, unseen: int) -> str:
    faults = sum(finding.weight == "fault" for finding in diagnosis.findings)
    warnings = len(diagnosis.findings) - faults
    rest = (
        f", {counted(unseen, 'check')} could not see what {'it needs' if unseen == 1 else 'they need'}"
        if unseen
        else ""
    )
    return (
        f"{counted(len(diagnosis.answers), 'check')}: {counted(faults, 'fault')}, {counted(warnings, 'warning')}{rest}"
    )


def report(diagnosis: Diagnosis, proof: Proof | None = None) -> DoctorReport:
    sent = proof if proof is not None and proof.tried else None
    return DoctorReport(
        version=__version__,
        packets=None
        if sent is None
        else PacketsReport(tried=sent.tried, arrived=sent.arrived, pods=sent.pods, peers=sent.peers),
        findings=[
            FindingReport(
                check=answer.check, weight=each.weight, **fields_of(each.problem), fix=list(map(str, each.fix))
            )
            for answer in diagnosis.answers
            for each in answer.findings
        ],
        checks=[
            AnswerReport(check=each.check, about=each.about, found=len(each.findings), unseen=each.unseen)
            for each in diagnosis.answers
        ],
    )


def junit(diagnosis: Diagnosis) -> str:
    """A test case for each check: a fault fails it, what could not be seen skips it."""
    return suite("weft doctor", map(_case, diagnosis.answers))


def _case(answer: Answer) -> Case:
    faults = [each.problem for each in answer.findings if each.weight == "fault"]
    failures = tuple((problem.code, str(problem)) for problem in faults)
    return Case(group="weft.doctor", name=answer.check, failures=failures, skipped=answer.unseen)


def sarif(diagnosis: Diagnosis) -> dict[str, Any]:
    codes = sorted({finding.problem.code for finding in diagnosis.findings})
    driver = {"name": "weft doctor", "version": __version__, "rules": [{"id": code} for code in codes]}
    results = [_result(finding) for finding in diagnosis.findings]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _result(finding: Finding) -> dict[str, Any]:
    where = {"logicalLocations": [{"fullyQualifiedName": finding.problem.where}]}
    level = "error" if finding.weight == "fault" else "warning"
    message = {"text": str(finding.problem)}
    return {"ruleId": finding.problem.code, "level": level, "message": message, "locations": [where]}
