"""What a plane is to its keeper."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects, Ownership
from weft.model.value import Value
from weft.plan.diff import Step


class Place(Value):
    """The instance's directory, for what outlives the plane, and which boot this is."""

    directory: Path
    boot: str


class Wanting(Protocol):
    """What decides, as far as a keeper asks it; `wanted` is the same mapping for ever."""

    @property
    def wanted(self) -> Objects: ...

    @property
    def ownership(self) -> Ownership: ...


class Plane(Protocol):
    """Owns the objects whose keys begin with one of `kinds`.

    `sweep` is the seconds between two full looks. `announces`: notices tell of changes by others. `blind`: the first
    round puts without a look, because each step looks. `counts` are for people, as of the last look.
    """

    kinds: frozenset[str]
    sweep: float
    announces: bool
    blind: bool

    @property
    def counts(self) -> Mapping[str, int]: ...

    async def look(self, known: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        """See all, or `only` these; an object that equals one of `known` is given as that one."""
        ...

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        """Carry out `steps` in order; one that fails stops no other."""
        ...


class ServedPlane(Plane, Protocol):
    """One of a back end, open until it is closed, which leaves its objects as they are."""

    def close(self) -> None: ...
