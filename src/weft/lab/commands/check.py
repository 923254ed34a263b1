"""`weft lab check`: does everything reach everything in a lab, and if not, what do failures have in common."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import click

from weft.diag.check.causes import Cause, causes
from weft.diag.check.evidence import EXPLAINED, Evidence, concerned
from weft.diag.check.judging import judged, made, measured, tried_again, untried
from weft.diag.check.report import CheckReport, as_junit, as_text, summed_up
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import FAULTS, Outcome, Trial, Tried
from weft.diag.doctor.forms import DoctorReport
from weft.diag.trace.hops import OUTSIDE
from weft.lab import protocol
from weft.lab.call import Call
from weft.lab.commands import terminal
from weft.lab.commands.choose import ask, find, lab_option, within
from weft.lab.commands.trace import follow
from weft.lab.places import Place
from weft.lab.report import LabReport
from weft.lab.trials import IN_A_LAB, trials
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.text import counted
from weft.screen.documents import Progress, next_commands, output_with, show_report

_PORT: Final = 40000  # of a packet that is traced: trials have ports that the kernel chose
_EXAMINED: Final = 4  # nodes whose doctor is asked, and causes of which an example is traced
_AT_ONCE: Final = 2


@click.command("check")
@click.option(
    "--quick", is_flag=True, help="Try one pod of each node, and leave out the trials with many flows at once."
)
@lab_option
@output_with("junit")
def check(lab: str, output: str, *, quick: bool) -> int:
    """Try whether everything reaches everything, and say on one line what all failures have in common.

    Pods and nodes of the lab send to each other by ICMP, UDP and TCP, in both families, as large as a packet of pods
    may be and one byte larger, and to Services and host ports; each trial belongs to a demand or a problem of
    Kubernetes' network model. Where some fail, the way of one is traced and the doctors of the nodes concerned are
    asked, and the reason is named with its code. Nothing stays behind.

    In a lab with policies, what they forbid has to be lost: each trial is judged by them.

    \b
      weft lab check
      weft lab check --quick
      weft lab check -o junit >check.xml
      weft lab check -o json | jq -r .conclusion

    Exits 0 if every trial went as it should, 3 if one did not.
    """
    place, progress = find(lab), Progress(output)
    try:
        report = examine(place, quick=quick, note=progress)
    finally:
        progress.done()
    show_report(output, report, "".join(as_text(report)), junit=partial(as_junit, "weft lab check", report))
    if not report.failed:
        return 0
    option = within(place)
    failed = next((each.trial for each in report.trials if each.fault and _is_traceable(each.trial)), None)
    if failed is not None:
        next_commands(
            output,
            f"weft lab trace{option} {failed.source} {failed.target}{' -6' if failed.family == 6 else ''}",
            f"weft lab exec{option} {failed.to_node} weft doctor",
        )
    return terminal.FOUND


def tried(place: Place, report: LabReport) -> list[Tried]:
    wanted = trials(report, quick=True)
    outcomes = _try(place, wanted, lambda _: None)
    return judged(_marked(wanted, outcomes, report), outcomes)


def _marked(wanted: Sequence[Trial], outcomes: Sequence[Outcome], report: LabReport) -> Sequence[Trial]:
    """With what policies say of them, if there are any."""
    if not report.policies:
        return wanted
    from weft.lab.allowed import marked

    return marked(wanted, outcomes, report)


def examine(place: Place, *, quick: bool, note: Callable[[str], None]) -> CheckReport:
    report = ask(place, protocol.Ps())
    wanted = trials(report, quick=quick)
    if not wanted:
        hint = f"'weft lab run{within(place)} POD --node {report.nodes[0].name}' starts a pod."
        seen = f"a lab of {counted(len(report.nodes), 'node')} without pods"
        raise ConfigError(Problem("LAB-002", "weft lab check", seen, hint=hint))
    note(counted(len(wanted), "trial"))
    wanted, outcomes = made(wanted, partial(_try, place, note=note))
    wanted = list(_marked(wanted, outcomes, report))
    found_out, rest = judged(wanted, outcomes), untried(wanted, outcomes)
    found = [cause for fault in FAULTS for cause in causes(found_out, fault)]
    if not found:
        return summed_up(IN_A_LAB, found_out, (), (), untried=rest)
    note(f"{sum(bool(each.fault) for each in found_out)} failed: looking for the reason")
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        gathered = pool.map(
            lambda gather: gather(), _evidence(place, [each for each in found if each.fault in EXPLAINED])
        )
        attempt = partial(_try, place, note=lambda _: None)
        exact = [measured(tried_again(cause, attempt), attempt) for cause in found]
        evidence = [piece for pieces in gathered for piece in pieces]
    return summed_up(IN_A_LAB, found_out, exact, evidence, untried=rest)


def _try(place: Place, wanted: Sequence[Trial], note: Callable[[str], None]) -> list[Outcome]:
    call = Call(place.socket, protocol.Try(list(wanted)))
    try:
        return call.result(note=note)
    finally:
        call.close()


def _evidence(place: Place, found: Sequence[Cause]) -> Iterable[Callable[[], list[Evidence]]]:
    for cause in found[:_EXAMINED]:
        example = next((each.trial for each in cause.examples if _is_traceable(each.trial)), None)
        if example is not None and cause.fault == "lost":
            yield partial(_traced, place, example, named=("protocol", example.protocol) in cause.traits)
    yield from (partial(_doctors_word, place, node) for node in concerned(found)[:_EXAMINED])


def _is_traceable(trial: Trial) -> bool:
    return trial.source != OUTSIDE and (bool(trial.port) or BY_NAME[trial.scenario].between_ends)


def _traced(place: Place, trial: Trial, *, named: bool) -> list[Evidence]:
    """`named`: the packet must have the trial's protocol."""
    by_port = named and trial.protocol != "icmp"
    target = f"{trial.target}:{_PORT}" if by_port else trial.target
    if trial.port:
        target = f"{trial.to_node or trial.target}:{trial.port}"
    try:
        trace = follow(place, trial.source, target, six=trial.family == 6, udp=trial.protocol == "udp")
    except WeftError as error:
        return [Evidence(node=trial.from_node, by="trace", problem=problem) for problem in error.problems]
    if trace.problem is None:
        return []
    return [Evidence(node=trace.legs[trace.last].node, by="trace", problem=trace.problem)]


def _doctors_word(place: Place, node: str) -> list[Evidence]:
    try:
        found = terminal.answer(place, node, ["doctor"], DoctorReport).findings
    except Unavailable as error:
        return [Evidence(node=node, by="doctor", problem=problem) for problem in error.problems]
    return [Evidence(node=node, by="doctor", weight=each.weight, problem=each.problem) for each in found]
