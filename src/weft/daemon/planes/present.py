"""The kernel's state as it was last known: from full looks, notices and our own steps.

A notice that comes while somebody looks or acts is newer than what he finds: `meanwhile` collects those.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Put, Step


class Present:
    """The objects that are known to be there.

    Of one that equals the one in `wanted`, which may change, no second copy is stored.
    """

    def __init__(self, wanted: Objects) -> None:
        self._wanted = wanted
        self._objects: dict[Key, Object] = {}
        self._noticed: set[Key] | None = None  # since somebody began to look or to act

    @property
    def objects(self) -> Objects:
        return self._objects

    def notice(self, key: Key, thing: Object | None) -> None:
        """`thing` is None if others removed it."""
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
        if isinstance(step, Put):
            self._objects[step.object.key] = step.object
        else:
            self._objects.pop(step.object.key, None)

    def replace(self, seen: dict[Key, Object], *, but: AbstractSet[Key]) -> Objects:
        """Take a full look, `but` for keys that are known better; returns what was known before."""
        before = self._objects
        for key in but:
            seen.pop(key, None)
            if key in before:
                seen[key] = before[key]
        self._objects = seen
        return before


def differences(one: Objects, other: Objects) -> dict[Key, Object]:
    """The objects that differ, from `one`, or from `other` where `one` has none."""
    return {key: thing for key, thing in one.items() if other.get(key) != thing} | {
        key: thing for key, thing in other.items() if key not in one
    }
