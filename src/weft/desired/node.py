"""The union of what a node wants, and an index over it that costs what changed.

`Wanted` holds the objects of named parts: one for what the node needs once, one per peer. Setting a part
returns the keys that are touched, so that nobody else iterates over peers when one changes.
"""

from weft.desired.inputs import Backend, Inputs
from weft.model.objects import KernelState, Key, Object, Objects, Route

SHARED = ""
# Behind every other route: it catches what the bridge's own route does not (flannel.md §1.8).
_BLACKHOLE_PRIORITY = 2**31 - 1


def shared(backend: Backend, inputs: Inputs) -> KernelState:
    """What the node needs once, whatever the peers: the backend's part and the blackhole routes."""
    state = backend.shared(inputs)
    if inputs.blackhole_route:
        own = (net for net in (inputs.v4, inputs.v6) if net is not None)
        state |= {Route(dst=net, blackhole=True, priority=_BLACKHOLE_PRIORITY) for net in own}
    return state


class Wanted:
    """The objects wanted now, by key, and which part each belongs to."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}

    @property
    def objects(self) -> Objects:
        """All wanted objects by key."""
        return self._objects

    @property
    def parts(self) -> frozenset[str]:
        """The names of the parts that hold anything."""
        return frozenset(self._keys)

    def set(self, part: str, state: KernelState) -> set[Key]:
        """Make `part` hold exactly `state`. Returns the keys it held and the keys it holds."""
        touched = set(self._keys.pop(part, ()))
        for key in touched:
            del self._objects[key]
        new = {thing.key: thing for thing in state}
        if new:
            self._keys[part] = tuple(new)
            self._objects.update(new)
        return touched | new.keys()
