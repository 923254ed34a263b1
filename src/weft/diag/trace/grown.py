"""Counters of the kernel that grew by the probes that were lost: its own word for why. Pure."""

from collections.abc import Mapping
from typing import Final

from weft.diag import reasons
from weft.model.errors import Problem

Counted = Mapping[str, int]  # by the counter's name


_MOST: Final = 3  # times the lost probes: a counter that grew by more tells of others' packets


def difference(before: Counted, after: Counted) -> dict[str, int]:
    """What has grown."""
    return {name: grown for name, count in after.items() if (grown := count - before.get(name, 0)) > 0}


def telling(grown: Counted) -> dict[str, int]:
    """Those that say why packets are lost."""
    return {name: count for name, count in grown.items() if reasons.of_counter(name) is not None}


def queues_in(grown: Counted) -> dict[str, int]:
    """Those of queueing disciplines and their filters."""
    return {name: count for name, count in grown.items() if name.startswith(reasons.QUEUE)}


def by_probes(grown: Counted, without: Counted, *, times: float) -> dict[str, int]:
    """What grew with probes, less `times` what grew in a while without, unless that is far less: a packet is chance."""
    found = dict[str, int]()
    for name, count in grown.items():
        expected = round(without.get(name, 0) * times)
        found[name] = count if 2 * expected <= count else count - expected
    return {name: count for name, count in found.items() if count > 0}


def explained(place: str, grown: Counted, lost: int) -> Problem | None:
    """What the kernel of a place says of `lost` probes; None if no counter grew by as many, or all by far more.

    A full queue drops what else comes, too.
    """
    enough = {
        name: count
        for name, count in grown.items()
        if count >= lost > 0 and (count <= _MOST * lost or name.startswith(reasons.QUEUE))
    }
    for name in (*reasons.BY_COUNTER, *enough):
        if name in enough and (reason := reasons.of_counter(name)) is not None:
            return reason.problem(place, f"its counter {name} grew by {enough[name]}")
    return None
