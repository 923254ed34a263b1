"""What a daemon would do now: one value, and exactly what `weft plan -o json` prints."""

from weft.model.errors import Problem
from weft.model.value import Value


class Planned(Value):
    """A step that was not done: `put` or `delete`, the kind of its object, both as one line, and why."""

    do: str
    kind: str
    text: str
    why: str


class Plan(Value):
    """`notes` say what it rests on, `problems` what is wrong with it."""

    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    steps: tuple[Planned, ...] = ()


class PlanAnswer(Value):
    """What a daemon answers who asks for its plan; `unable` says why there is none now."""

    plan: Plan | None = None
    unable: tuple[Problem, ...] = ()
