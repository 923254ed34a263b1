"""The rules of the quiz: what may be drawn, what an answer is worth, how a game stands. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Tried
from weft.lab.faults.fault import Fault
from weft.lab.faults.table import FAULTS
from weft.lab.quiz.areas import Area, area, family
from weft.model.value import Value, field, replace

Level = Literal["easy", "hard"]
Judgement = Literal["right", "no node", "wrong node", "near", "wrong"]

_WORTH: Final = 10
_HINT: Final = 2  # points that a hint costs, and
_WRONG: Final = 1  # a wrong answer
_LEAST: Final = 1


def _drawable() -> dict[str, tuple[Fault, Area]]:
    """Faults that stay until a command mends them, and do not show at the first look.

    Where the daemon is ended, `weft lab ps` shows it.
    """
    lasting = [fault for fault in FAULTS if fault.mends and not fault.repaired and not fault.kills]
    return {fault.name: (fault, known) for fault in lasting if (known := area(fault)) is not None}


DRAWABLE: Final[Mapping[str, tuple[Fault, Area]]] = _drawable()


class Puzzle(Value):
    """A fault to be found, its symptoms, and how it went so far."""

    level: Level
    seed: int
    fault: str
    node: str
    symptoms: list[str] = field(default_factory=list)
    hints: int = 0
    wrong: int = 0

    @property
    def worth(self) -> int:
        return max(_WORTH - self.hints * _HINT - self.wrong * _WRONG, _LEAST)


class Score(Value):
    """What was won in a lab."""

    points: int = 0
    found: int = 0
    given_up: int = 0


class Game(Value):
    """`now` is the open puzzle."""

    score: Score = Score()
    now: Puzzle | None = None


def ended(score: Score, now: Puzzle, *, found: bool) -> Score:
    if found:
        return replace(score, points=score.points + now.worth, found=score.found + 1)
    return replace(score, given_up=score.given_up + 1)


def of_level(level: Level) -> list[Fault]:
    """Of an easy level, those by which something fails now."""
    return [fault for fault, known in DRAWABLE.values() if level == "hard" or not known.complaint]


def draw(faults: Sequence[Fault], nodes: Sequence[str], seed: int) -> tuple[Fault, str]:
    """The fault and node that a number means; over all numbers, each pair is as likely."""
    number, place = divmod(seed, len(faults))
    return faults[place], nodes[number % len(nodes)]


def judge(fault: Fault, node: str, code: str, at: str) -> Judgement:
    """With `at` "" no node was named."""
    if code != fault.code:
        return "near" if family(code) == family(fault.code) else "wrong"
    if not at:
        return "no node"
    return "right" if at == node else "wrong node"


def noticed(tried: Sequence[Tried]) -> list[str]:
    """A sentence for each place that does not reach others as it should."""
    usual = [each for each in tried if BY_NAME[each.trial.scenario].size != "more"]  # packets that are to be refused
    said: dict[tuple[str, str], list[str]] = {}
    for source, target in dict.fromkeys((each.trial.source, each.trial.target) for each in usual):
        pair = [each for each in usual if (each.trial.source, each.trial.target) == (source, target)]
        failed = [each for each in pair if each.fault in ("lost", "unseen")]
        if failed:
            others = said.setdefault((source, _how(failed, pair)), [])
            others.append("itself" if source == target else target)
    return [f"{source} does not reach {', '.join(targets)}{how}" for (source, how), targets in said.items()]


def _how(failed: Sequence[Tried], pair: Sequence[Tried]) -> str:
    """With which packets a target is not reached; "" if with none."""
    if len(failed) == len(pair):
        return ""
    if all(each.trial.size for each in failed):
        sizes = " or ".join(map(str, sorted({each.trial.size for each in failed})))
        return f" with packets of {sizes} bytes, and does with smaller ones"
    return f" by {' and '.join(sorted({each.trial.protocol.upper() for each in failed}))} each time"
