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
    """The objects wanted now, by key, and which part each belongs to.

    While a node moves to another subnet, its old lease and its new one want the same FDB entry: whoever was set last
    has it, and the other's end does not take it along.
    """

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._parts: dict[str, tuple[Object, ...]] = {}

    @property
    def objects(self) -> Objects:
        """All wanted objects by key."""
        return self._objects

    @property
    def parts(self) -> frozenset[str]:
        """The names of the parts that hold anything."""
        return frozenset(self._parts)

    def part(self, name: str) -> tuple[Object, ...]:
        """The objects of one part."""
        return self._parts.get(name, ())

    def set(self, part: str, state: KernelState) -> set[Key]:
        """Make `part` hold exactly `state`. Returns the keys it held and the keys it holds."""
        former = self._parts.pop(part, ())
        for thing in former:
            if self._objects.get(thing.key) is thing:
                del self._objects[thing.key]
        new = tuple(state)
        if new:
            self._parts[part] = new
            self._objects.update((thing.key, thing) for thing in new)
        return {thing.key for thing in (*former, *new)}
