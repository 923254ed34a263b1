"""What a check finds: a problem, how much it matters, and what mends it."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from weft.diag.sight.node import Part, Sight
from weft.model.errors import Problem
from weft.model.value import Value

# Codes that say that packets are lost, and not by what was seen to lose them.
CONCLUDED: Final = ("REACH-001", "LOST-001")

Weight = Literal["fault", "warning"]  # packets are lost, or may be


class Command(Value, kw_only=False):
    """A command for this node: its words, which no shell reads, and what it does. As text it can be pasted."""

    words: tuple[str, ...]
    does: str

    def __str__(self) -> str:
        return shlex.join(self.words)


def setting(name: str, value: str, does: str) -> Command:
    """The setting is named with slashes; the names of links in it may have dots."""
    return Command(("sysctl", "-w", f"{name if '.' in name else name.replace('/', '.')}={value}"), does)


def link_up(name: str) -> Command:
    return Command(("ip", "link", "set", name, "up"), f"sets {name} up")


class Finding(Value):
    """A problem as found. `fix` are commands that mend it, in order: only what is safe and certain to."""

    problem: Problem
    weight: Weight = "fault"
    fix: tuple[Command, ...] = ()


def finding(
    code: str,
    where: str,
    seen: str,
    hint: str,
    *,
    expected: str = "",
    weight: Weight = "fault",
    fix: tuple[Command, ...] = (),
) -> Finding:
    problem = Problem(code, where, seen, expected=expected, hint=hint)
    return Finding(problem=problem, weight=weight, fix=fix)


def mended(
    command: Command,
    code: str,
    where: str,
    seen: str,
    *,
    why: str = "",
    expected: str = "",
    weight: Weight = "fault",
) -> Finding:
    """A finding that one command mends; `why` is said before it."""
    hint = f"{why}. Run: {command}" if why else f"Run: {command}"
    return finding(code, where, seen, hint, expected=expected, weight=weight, fix=(command,))


class Check(Value):
    """A question to a sight: `about` is the answer if nothing is found. `needs` are the parts that it judges by.

    A daemon can afford to ask some `each_minute`, of `weft.diag.sight.quick_look`'s sight. With `unless_said` it has
    no finding of which an earlier check has the code or the words: that knows more of it.
    """

    name: str
    about: str
    needs: tuple[Part, ...]
    find: Callable[[Sight], Iterable[Finding]]
    each_minute: bool = False
    unless_said: bool = False


def check(
    name: str, about: str, *needs: Part, each_minute: bool = False, unless_said: bool = False
) -> Callable[[Callable[[Sight], Iterable[Finding]]], Check]:
    """Make a check of a function that finds."""
    return lambda find: Check(
        name=name, about=about, needs=needs, find=find, each_minute=each_minute, unless_said=unless_said
    )


class UndecidedError(Exception):
    """A check cannot tell, and why."""


class Answer(Value):
    """What became of a check. `unseen` is why it could not be asked."""

    check: str
    about: str
    findings: tuple[Finding, ...] = ()
    unseen: str = ""


class Diagnosis(Value):
    answers: tuple[Answer, ...]

    @property
    def findings(self) -> list[Finding]:
        """Faults first."""
        found = [finding for answer in self.answers for finding in answer.findings]
        return sorted(found, key=lambda finding: finding.weight != "fault")

    @property
    def is_well(self) -> bool:
        return all(finding.weight != "fault" for finding in self.findings)


def ask(checks: Iterable[Check], sight: Sight) -> Diagnosis:
    answers = list[Answer]()
    for each in checks:
        before = [finding for answer in answers for finding in answer.findings] if each.unless_said else []
        answers.append(_answer(each, sight, before))
    return Diagnosis(answers=tuple(answers))


def _is_said(finding: Finding, before: Sequence[Finding]) -> bool:
    """One that is concluded adds nothing where another fault explains it."""
    said = {text for each in before for text in (each.problem.code, each.problem.seen)}
    faults = any(each.weight == "fault" for each in before)
    return not said.isdisjoint((finding.problem.code, finding.problem.seen)) or (
        faults and finding.problem.code in CONCLUDED
    )


def _answer(check: Check, sight: Sight, before: Sequence[Finding]) -> Answer:
    unseen = "; ".join(f"{name}: {sight.unseen[name]}" for name in check.needs if name in sight.unseen)
    findings: tuple[Finding, ...] = ()
    try:
        findings = () if unseen else tuple(check.find(sight))
    except UndecidedError as error:
        unseen = str(error)
    except Exception as error:  # noqa: BLE001 - a check that meets what it does not know ends no other
        unseen = f"this check failed by itself: {error!r}"
    fresh = tuple(each for each in findings if not _is_said(each, before))
    return Answer(check=check.name, about=check.about, findings=fresh, unseen=unseen)
