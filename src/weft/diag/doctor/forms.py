"""A diagnosis in words: for people, as JSON, as JUnit's report and as SARIF 2.1.0 (OASIS). Pure."""

from collections.abc import Iterator
from typing import Any

from weft import __version__
from weft.diag.finding import Answer, Diagnosis, Finding, Weight
from weft.diag.junit import Case, suite
from weft.model.errors import Problem
from weft.model.text import counted
from weft.model.value import Value, fields_of


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


class DoctorReport(Value):
    """What `weft doctor -o json` prints."""

    version: str
    findings: list[FindingReport]
    checks: list[AnswerReport]


def lines(diagnosis: Diagnosis, *, verbose: bool) -> Iterator[str]:
    """What was found, each with what mends it; what could not be seen; the sum."""
    if verbose:
        fine = (each for each in diagnosis.answers if not each.findings and not each.unseen)
        yield from (f"ok       {each.check}: {each.about}" for each in fine)
    for finding in diagnosis.findings:
        yield f"{finding.weight:8} {finding.problem}"
        yield from (f"           {command}" for command in finding.fix)
    unseen = [each for each in diagnosis.answers if each.unseen]
    yield from (f"not seen {each.check}: {each.unseen}" for each in unseen)
    yield _sum(diagnosis, len(unseen))


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


def report(diagnosis: Diagnosis) -> DoctorReport:
    return DoctorReport(
        version=__version__,
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
