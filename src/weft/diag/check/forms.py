"""A check's report for people and as JUnit's. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from weft.diag import junit
from weft.diag.check.judging import described
from weft.diag.check.summary import CheckReport, Share
from weft.diag.check.trial import Tried
from weft.model.table import table
from weft.model.text import one_line

_WIDEST: Final = 8  # nodes that have a column
_SHOWN: Final = 3  # failed trials of each scenario in words


def text(report: CheckReport) -> Iterator[str]:
    """The conclusion on the first line; what was tried from each node, by scenario, demand and problem; what failed."""
    yield f"{report.conclusion}\n"
    if report.failed:
        yield f"{report.failed} of {report.tried} trials failed\n"
    yield f"\n{_matrix(report)}"
    yield f"\n{_shares('DEMAND OF THE NETWORK MODEL', report.demands)}"
    yield f"\n{_shares('PROBLEM OF THE NETWORK MODEL', report.concerns)}"
    if report.evidence or report.untried:
        yield "\n"
    yield from (f"not tried: {each}\n" for each in report.untried)
    for each in report.evidence:
        yield f"{one_line(f'{each.node}, by {each.by}: {each.problem}')}\n"
    for scenario in report.scenarios:
        failed = [each for each in report.trials if each.fault and each.trial.scenario == scenario.name]
        if failed:
            yield f"\n{scenario.name}: {scenario.failed} of {scenario.tried} failed\n"
        yield from (f"  {one_line(described(each))}\n" for each in failed[:_SHOWN])
        if len(failed) > _SHOWN:
            yield f"  and {len(failed) - _SHOWN} more; -o json has all\n"


def _matrix(report: CheckReport) -> str:
    """A line for each scenario; a column for the trials that begin at each node, or of many nodes one for all."""
    nodes = list(dict.fromkeys(each.trial.from_node for each in report.trials))
    columns = nodes if len(nodes) <= _WIDEST else ["ALL"]
    rows = []
    for scenario in report.scenarios:
        own = [each for each in report.trials if each.trial.scenario == scenario.name]
        parts = (
            [[each for each in own if each.trial.from_node == node] for node in nodes] if columns == nodes else [own]
        )
        rows.append((scenario.name, *map(_passed, parts), scenario.about))
    return table(("TRIALS PASSED, FROM", *columns, "WHAT"), rows)


def _passed(tried: Sequence[Tried]) -> str:
    """`6` if all of six passed, `2 of 6` if not, `-` if there were none."""
    passed = sum(not each.fault for each in tried)
    if not tried:
        return "-"
    return str(passed) if passed == len(tried) else f"{passed} of {len(tried)}"


def _shares(heading: str, shares: Iterable[Share]) -> str:
    return table(
        (heading, "TRIED", "FAILED"),
        ((each.about, str(each.tried), str(each.failed)) if each.tried else (each.about, "-", "-") for each in shares),
    )


def as_junit(command: str, report: CheckReport) -> str:
    """A test case for each trial of a command, and one for each kind that could not be made."""
    group = f"{command.replace(' ', '.')}.untried"
    left = (junit.Case(group=group, name=each.partition(":")[0], skipped=each) for each in report.untried)
    return junit.suite(command, (*(_case(command, each) for each in report.trials), *left))


def _case(command: str, tried: Tried) -> junit.Case:
    trial = tried.trial
    size = f" {trial.size} bytes" if trial.size else ""
    name = f"{trial.source} to {trial.target} {trial.protocol}{size} IPv{trial.family}"
    failures = ((tried.fault, described(tried)),) if tried.fault else ()
    return junit.Case(group=f"{command.replace(' ', '.')}.{trial.scenario}", name=name, failures=failures)
