"""What a lesson of the tutorial is. Pure."""

from collections.abc import Callable, Iterator

from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.seen import Seen
from weft.model.value import Value

Judge = Callable[[Seen], Iterator[Demand]]


class Typed(Value, kw_only=False):
    """A command for a shell of a node, and what there is to see in its output.

    `changes`: it makes something that the lesson is about; without it, it only looks. `fails`: as it is meant to.
    """

    node: str
    command: str
    look: str = ""
    changes: bool = True
    fails: bool = False


def look(node: str, command: str, seen: str, *, fails: bool = False) -> Typed:
    """Return a command that only looks."""
    return Typed(node, command, seen, changes=False, fails=fails)


class Attempt(Value, kw_only=False):
    """A command that a check runs in a node, and by whose name its answer is known."""

    name: str
    node: str
    command: str


def ping(name: str, node: str, inside: str, address: str) -> Attempt:
    """Return an attempt that pings until there is an answer, from a namespace or with "" from the node.

    A bridge's port forwards a moment after its link was set up: the kernel looks at new carriers once a second.
    """
    enter = f"ip netns exec {inside} " if inside else ""
    return Attempt(name, node, f"{enter}ping -c 1 -w 2 -i 0.2 {address}")


class Lesson(Value):
    """One lesson: what to type, what is left to do, and how it is judged.

    `why`, `hints` and `answer` are paragraphs with blank lines between them. `typed` is shown whole; `rest` is the
    learner's own task, which `task` describes and `hints` lead to; the last hint is `rest` itself. After `typed` and
    `rest`, `judge` has no complaint about what `attempts` and, where `wire` names a node, a capture on its eth0 have
    seen. `answer` is the answer to `question`.
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
        """All commands that change something, from the lesson's beginning to its end."""
        return tuple(each for each in (*self.typed, *self.rest) if each.changes)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each as it is written: a sentence a line."""
    return text.strip().split("\n\n")


def judged(lesson: Lesson, seen: Seen) -> list[Demand]:
    """Return what a lesson demands, up to the first that is not so: what comes after may be wrong because of it."""
    demands: list[Demand] = []
    for demand in lesson.judge(seen):
        demands.append(demand)
        if demand.problem:
            break
    return demands


def right(demands: list[Demand]) -> bool:
    """Tell whether nothing of what is demanded is missing."""
    return not demands[-1].problem
