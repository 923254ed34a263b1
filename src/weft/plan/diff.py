"""The one diff: wanted and present objects in, ordered steps out.

The rules of the order, all of them needed:

- Adding comes before removing, so that a path is never without its objects while it changes.
- A link comes before what sits on it, and a neighbour and an FDB entry before the route that uses them.
- A link that cannot change in place is deleted first, and what sat on it is then missing, not different.
- A plan may stop after any step, and each step may be done twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from weft.model.objects import Key, Object, Objects, VxlanLink, device_of


@dataclass(frozen=True, slots=True)
class Put:
    """Make the kernel hold `object`, replacing what has its key."""

    object: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Take `object` out of the kernel; its absence is success."""

    object: Object


Step = Put | Delete

_ORDER: Final = {"link": 0, "sysctl": 1, "address": 2, "neighbour": 3, "fdb": 4, "route": 5, "ruleset": 6}


def diff(want: Objects, have: Objects, *, keys: Iterable[Key] | None = None, prune: bool = True) -> list[Step]:
    """Say which steps lead from `have` to `want`.

    With `keys`, look at those objects only. Without `prune`, remove nothing (the view is incomplete), but a
    link that must be recreated is still recreated.
    """
    looked_at = want.keys() | have.keys() if keys is None else set(keys)
    recreated = _recreated(want, have, looked_at)
    if recreated:
        # What sat on the link goes with it, whether or not it was asked about. Routes name their device too.
        looked_at = looked_at | {key for key in want if _sits_on(want[key], recreated)}
    puts: list[Object] = []
    deletes: list[Object] = []
    for key in looked_at:
        wanted, present = want.get(key), have.get(key)
        if wanted is not None and (wanted != present or _sits_on(wanted, recreated)):
            puts.append(wanted)
        elif wanted is None and present is not None and prune and not _sits_on(present, recreated):
            deletes.append(present)
    puts.sort(key=_rank)
    deletes.sort(key=_rank, reverse=True)
    return [*(Delete(have[("link", name)]) for name in sorted(recreated)), *map(Put, puts), *map(Delete, deletes)]


def _rank(thing: Object) -> int:
    return _ORDER[str(thing.key[0])]


def _recreated(want: Objects, have: Objects, keys: Iterable[Key]) -> set[str]:
    names = set()
    for key in keys:
        wanted, present = want.get(key), have.get(key)
        if isinstance(wanted, VxlanLink) and isinstance(present, VxlanLink) and not wanted.changes_in_place(present):
            names.add(wanted.name)
    return names


def _sits_on(thing: Object, links: set[str]) -> bool:
    if not links:
        return False
    return thing.key[0] == "link" and thing.key[1] in links or getattr(thing, "dev", "") in links or _settings(thing, links)


def _settings(thing: Object, links: set[str]) -> bool:
    return thing.key[0] == "sysctl" and any(f"/{name}/" in str(thing.key[1]) for name in links)


__all__ = ["Delete", "Put", "Step", "device_of", "diff"]
