"""What a lesson of the tutorial is. Pure."""

from collections.abc import Callable, Iterator

from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.seen import Seen
from weft.model.value import Value

Judge = Callable[[Seen], Iterator[Demand]]


class Typed(Value, kw_only=False):
    """A command for a node's shell, and what to see in its output.

    `changes`: it makes something that the lesson is about. `fails`: it is meant to.
    """

    node: str
    command: str
    look: str = ""
    changes: bool = True
    fails: bool = False


def look(node: str, command: str, seen: str, *, fails: bool = False) -> Typed:
    return Typed(node, command, seen, changes=False, fails=fails)


class Attempt(Value, kw_only=False):
    """A command that a check runs in a node; its answer has this name."""

    name: str
    node: str
    command: str


def ping(name: str, node: str, inside: str, address: str) -> Attempt:
    """Pings until there is an answer, from a namespace or with "" from the node.

    A bridge's port forwards a moment after its link was set up: the kernel looks at new carriers once a second.
    """
    enter = f"ip netns exec {inside} " if inside else ""
    return Attempt(name, node, f"{enter}ping -c 1 -w 2 -i 0.2 {address}")


class Lesson(Value):
    """What to type, what is left to do, and how it is judged.

    `why`, `hints` and `answer` are paragraphs with blank lines between them. `typed` is shown whole; `rest` is the
    learner's task, which `task` describes and `hints` lead to. After both, `judge` has no complaint about what
    `attempts` and, where `wire` names a node, a capture on its eth0 have seen. `answer` answers `question`.
    """

    name: str
    title: str
    question: str
    why: str
    typed: tuple[Typed, ...]
    task: str
    rest: tuple[Typed, ...]
    hints: str
    judge: Judge
    answer: str
    attempts: tuple[Attempt, ...] = ()
    wire: str = ""

    @property
    def solution(self) -> tuple[Typed, ...]:
        """All commands that change something, from beginning to end."""
        return tuple(each for each in (*self.typed, *self.rest) if each.changes)


def paragraphs(text: str) -> list[str]:
    """As they are written: a sentence a line."""
    return text.strip().split("\n\n")


def judged(lesson: Lesson, seen: Seen) -> list[Demand]:
    """Up to the first that is not so: what follows may be wrong because of it."""
    demands: list[Demand] = []
    for demand in lesson.judge(seen):
        demands.append(demand)
        if demand.problem:
            break
    return demands


def right(demands: list[Demand]) -> bool:
    return not demands[-1].problem
