"""Counts repairs, and words them for the log and the history: each with its code, and of thousands only a few."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from weft.model.kernel.objects import Key, Object, Objects
from weft.model.node.history import History, blame
from weft.model.node.nodestate import Durations
from weft.model.value import Value, field
from weft.plan.diff import Put, Step
from weft.plan.explain import was_and_now

log = logging.getLogger(__name__)

NAMED: Final = 10  # logged one by one; of what is beyond that, the number
_BLAMED: Final = 3  # programs that are named together
_ONE_MOMENT: Final = 5.0  # seconds
_LATELY: Final = 600.0
_MOST: Final = 20  # moments that are kept, of each code

Refused = tuple[Step, str]  # and the kernel's words


class Tally(Value, frozen=False):
    """`moments` are the latest repairs by code; `took` is from the store's word to the kernel."""

    rounds: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    unannounced: int = 0
    failing: dict[Key, str] = field(default_factory=dict)
    moments: dict[str, deque[float]] = field(default_factory=dict)
    took: Durations = field(default_factory=Durations)

    def repaired(self, codes: Iterable[str], now: float) -> None:
        """Repairs within some seconds are of one moment: a link takes its routes along."""
        more = Counter(codes)
        self.repairs.update(more)
        for code in more:
            moments = self.moments.setdefault(code, deque(maxlen=_MOST))
            if not moments or now - moments[-1] >= _ONE_MOMENT:
                moments.append(now)

    def lately(self, now: float) -> dict[str, int]:
        """The moments of the last ten minutes, by code."""
        counts = {code: sum(now - each < _LATELY for each in moments) for code, moments in self.moments.items()}
        return {code: count for code, count in counts.items() if count}


class Repair(Value):
    """`found` is what was there, `by` the program that had changed it; `code` is that of the problem."""

    code: str
    step: Step
    found: Object | None
    by: str = ""

    @property
    def words(self) -> str:
        return "put back" if isinstance(self.step, Put) else "removed"

    @property
    def blame(self) -> str:
        """What somebody had done, and who; empty if that is not known."""
        deed = "removed" if self.found is None else "changed" if isinstance(self.step, Put) else "put there"
        return blame(self.by, deed)

    def __str__(self) -> str:
        return "; ".join(part for part in (f"{self.words} {self.step.object}", self.blame) if part)


def repair(step: Step, wanted: Objects, present: Objects, *, by: str = "") -> Repair:
    thing = step.object
    found = present.get(thing.key)
    code = thing.code_of_repair(gone=found is None) if thing.key in wanted else thing.code_if_unwanted
    return Repair(code=code, step=step, found=found, by=by)


class Telling:
    def __init__(self, history: History) -> None:
        self._history = history
        self._said: set[Key] = set()  # that it is refused
        self._recovered: list[Object] = []  # since `repaired` was called last

    def repaired(self, repairs: Sequence[Repair]) -> None:
        recovered, self._recovered = self._recovered, []
        if len(repairs) > NAMED:
            by_code = Counter(each.code for each in repairs)
            counts = ", ".join(f"{count} x {each}" for each, count in sorted(by_code.items()))
            blames = list(dict.fromkeys(each.blame for each in repairs if each.blame))[:_BLAMED]
            log.warning("repaired %s", "; ".join((counts, *blames)))
        else:
            for each in repairs:
                log.warning("%s: %s", each.code, each)
        if not (repairs or recovered):
            return
        mended = {each.step.object.key for each in repairs}
        say_some(log.info, [f"no more refused: {thing}" for thing in recovered if thing.key not in mended])
        note, tried = self._history.note, {thing.key for thing in recovered}
        self._history.note_some("recovered", recovered, lambda thing: note("recovered", str(thing)))
        rest = [each for each in repairs if each.step.object.key not in tried]
        self._history.note_some("repaired", rest, self._note_repair)

    def refused(self, refused: Sequence[Refused]) -> None:
        self._said.update(step.object.key for step, _ in refused)
        lines = (f"cannot {'put' if isinstance(step, Put) else 'remove'} {step.object}: {why}" for step, why in refused)
        say_some(log.error, [f"{line}; trying again" for line in lines])
        note = self._history.note
        self._history.note_some("failing", refused, lambda each: note("failing", str(each[0].object), words=each[1]))

    def settled(self, key: Key, wanted: Object | None) -> None:
        """An object is no longer refused; `wanted` is None if it is not wanted either."""
        if key in self._said:
            self._said.discard(key)
            if wanted is not None:
                self._recovered.append(wanted)

    def held(self, held: Sequence[Repair]) -> None:
        """`retries` logs it."""
        words = "another program keeps changing it; it is put back less often"
        note = self._history.note
        self._history.note_some(
            "held", held, lambda each: note("held", str(each.step.object), code=each.code, words=words, by=each.by)
        )

    def _note_repair(self, each: Repair) -> None:
        thing = each.step.object
        was, now = was_and_now(thing, each.found) if isinstance(each.step, Put) else ("", "")
        self._history.note("repaired", str(thing), code=each.code, words=each.words, was=was, now=now, by=each.by)


def say_some(say: Callable[[str], None], lines: Sequence[str], *, named: int = NAMED) -> None:
    """Log the first of many lines that are alike, and how many more there are."""
    for line in lines[:named]:
        say(line)
    if len(lines) > named:
        say(f"and {len(lines) - named} more like that")
