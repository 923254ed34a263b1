"""The kernel's state as it was last known, kept up by our own steps, by notices and by full looks.

Knows no kernel and decides nothing. What comes in while somebody else looks or acts is newer than what they find:
`meanwhile` collects it.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Put, Step


class Present:
    """What the kernel holds. Of what is as in `wanted`, which may change, no second copy is kept."""

    def __init__(self, wanted: Objects) -> None:
        self._wanted = wanted
        self._objects: dict[Key, Object] = {}
        self._noticed: set[Key] | None = None  # since somebody began to look or to act

    @property
    def objects(self) -> Objects:
        """All of it by key."""
        return self._objects

    def notice(self, key: Key, thing: Object | None) -> None:
        """Take what someone else has made of the object of `key`; None if it is gone."""
        if thing is None:
            self._objects.pop(key, None)
        else:
            wanted = self._wanted.get(key)
            self._objects[key] = wanted if wanted is not None and thing == wanted else thing
        if self._noticed is not None:
            self._noticed.add(key)

    @contextmanager
    def meanwhile(self) -> Iterator[AbstractSet[Key]]:
        """Collect the keys that are noticed until the end of the block."""
        self._noticed = newer = set[Key]()
        try:
            yield newer
        finally:
            self._noticed = None

    def did(self, step: Step) -> None:
        """Take a step of ours that was carried out."""
        if isinstance(step, Put):
            self._objects[step.object.key] = step.object
        else:
            self._objects.pop(step.object.key, None)

    def replace(self, seen: dict[Key, Object], *, but: AbstractSet[Key]) -> Objects:
        """Become what a full look has `seen`, `but` for keys that are known better. Returns what was known before."""
        before = self._objects
        for key in but:
            seen.pop(key, None)
            if key in before:
                seen[key] = before[key]
        self._objects = seen
        return before


def differences(one: Objects, other: Objects) -> dict[Key, Object]:
    """What is not the same in both, as it is in `one`, or as it is in `other` where `one` lacks it."""
    return {key: thing for key, thing in one.items() if other.get(key) != thing} | {
        key: thing for key, thing in other.items() if key not in one
    }
