"""The one diff: wanted and present objects in, ordered steps out.

The rules of the order, all of them needed:

- Adding comes before removing, so that a path is never without its objects while it changes.
- A link comes before what sits on it, and a neighbour and an FDB entry before the route that uses them.
- A link that cannot change in place is replaced by its one step, which looks first whether that is possible; what
  sat on it is then missing, not different.
- A plan may stop after any step, and each step may be done twice.
"""

from collections.abc import Iterable

from weft.model.kernel.links import Link
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.value import Value


class Put(Value, kw_only=False):
    """Replaces what has the key of `object`, and what sat on that where it is a link."""

    object: Object


class Delete(Value, kw_only=False):
    """Its absence is success."""

    object: Object


Step = Put | Delete


def diff(want: Objects, have: Objects, *, keys: Iterable[Key] | None = None, prune: bool = True) -> list[Step]:
    """Say which steps lead from `have` to `want`.

    With `keys`, look at those objects only (and at what sits on a link of theirs that must be recreated).
    Without `prune`, remove nothing, because the view is incomplete; a link is still replaced.
    """
    looked_at = want.keys() | have.keys() if keys is None else set(keys)
    recreated = {
        link.name for key in looked_at if isinstance(link := want.get(key), Link) and _in_the_way(link, have.get(key))
    }
    if recreated:
        looked_at |= {key for key, thing in want.items() if thing.link in recreated}
    steps: list[Step] = []
    for key in looked_at:
        wanted, present = want.get(key), have.get(key)
        if wanted is not None:
            if wanted != present or (recreated and wanted.link in recreated):
                steps.append(Put(wanted))
        elif present is not None and prune and not (recreated and present.link in recreated):
            steps.append(Delete(present))
    return ordered(steps)


def ordered(steps: Iterable[Step]) -> list[Step]:
    """Put steps of any number of diffs into the order of one."""
    puts: list[Step] = []
    deletes: list[Step] = []
    for step in steps:
        (puts if isinstance(step, Put) else deletes).append(step)
    puts.sort(key=_rank)
    deletes.sort(key=_rank, reverse=True)
    return [*puts, *deletes]


def _rank(step: Step) -> int:
    return step.object.rank


def _in_the_way(wanted: Link, present: Object | None) -> bool:
    return present is not None and not wanted.changes_in_place(present)
