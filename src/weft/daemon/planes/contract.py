"""What a plane is to its keeper."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.value import Value
from weft.plan.diff import Step


class Place(Value):
    """Where a plane may keep what is to outlive it: the instance's directory, and which boot this is."""

    directory: Path
    boot: str


class Plane(Protocol):
    """What owns some kinds of objects, where they are.

    `kinds` are the first parts of their keys, `sweep` the seconds between two full looks; `announces` says that
    changes by others come as notices. With `blind` the first round puts without a look, because each step looks.
    `counts` are numbers of its own by their names, for people, as they were at the last look.
    """

    kinds: frozenset[str]
    sweep: float
    announces: bool
    blind: bool
    counts: Mapping[str, int]

    async def look(self, known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        """See all that is there, or `only` these; of what is as in `known` no second copy is made."""
        ...

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        """Carry out `steps` in order; a step that fails stops no other."""
        ...
