"""A kernel made of a dictionary: it applies steps as the real one does, and takes a link's objects along."""

from collections.abc import Iterable

from weft.desired.tunnels.vxlan import VxlanLink
from weft.model.kernel.objects import Key, Object, Objects
from weft.plan.diff import Delete, Step


def replay(have: Objects, steps: Iterable[Step], *, links: frozenset[str] = frozenset({"eth0"})) -> dict[Key, Object]:
    """Apply `steps` to `have`; `KeyError` when a step uses a link that is neither there nor in `links`."""
    state = dict(have)
    for step in steps:
        thing = step.object
        if isinstance(step, Delete):
            remove(state, thing.key)
            continue
        present = state.get(thing.key)
        if isinstance(thing, VxlanLink) and isinstance(present, VxlanLink) and not thing.changes_in_place(present):
            remove(state, thing.key)
        on = thing.link
        if on is not None and on not in links and ("link", on) not in state:
            raise KeyError(on)
        state[thing.key] = thing
    return state


def remove(state: dict[Key, Object], key: Key) -> None:
    """Remove an object and, if it is a link, what sits on it."""
    gone = state.pop(key, None)
    if isinstance(gone, VxlanLink):
        for other in [other for other, thing in state.items() if thing.link == gone.name]:
            del state[other]
