"""How far a learner is, kept with the lab: so every terminal sees the same, and it ends with the lab. Pure."""

from collections.abc import Sequence

import msgspec

from weft.lab.tutorial.step import Step
from weft.lab.tutorial.steps import STEPS


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The step that the learner is at, how many of its hints were given, and which steps are done."""

    step: str
    hints: int = 0
    done: list[str] = []


def position(name: str) -> int:
    """Return the place of a step in STEPS, which has it."""
    return [step.name for step in STEPS].index(name)


def before(step: Step) -> Sequence[Step]:
    """Return the steps that come before it."""
    return STEPS[: position(step.name)]
