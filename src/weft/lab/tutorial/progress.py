"""How far a learner is, kept with the lab: so every terminal sees the same, and it ends with the lab. Pure."""

from collections.abc import Sequence

from weft.lab.tutorial.lesson import Lesson
from weft.lab.tutorial.lessons import LESSONS
from weft.model.value import Value, field


class Progress(Value):
    """The lesson that the learner is at, how many of its hints were given, and which lessons are done."""

    lesson: str
    hints: int = 0
    done: list[str] = field(default_factory=list)


def position(name: str) -> int:
    """Return the place of a lesson in LESSONS, which has it."""
    return [lesson.name for lesson in LESSONS].index(name)


def before(lesson: Lesson) -> Sequence[Lesson]:
    """Return the lessons that come before it."""
    return LESSONS[: position(lesson.name)]
