"""What a trial tells of the ways between nodes: its packet and its answer are two trips, of which each passed or not.

Whether the target saw the packet tells which one failed. Pure.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Literal

from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Fault, Trial, Tried
from weft.model.value import Value

PlaceKind = Literal["anywhere", "pair", "direction", "node", "others", "to", "from", "some"]
TraitName = Literal["family", "protocol", "size", "way"]
Traits = tuple[tuple[TraitName, str], ...]
Direction = tuple[str, str]
Path = tuple[Direction, ...]


class Place(Value):
    """Where a trip led: to or from a `node`, or inside it; between it and `others`, in one direction: `to` or `from`.

    `some` are several nodes, each of which has failures of its own.
    """

    kind: PlaceKind
    nodes: tuple[str, ...] = ()


class Trip(Value):
    """The way of a packet from node to node, or `back` that of its answer. It has several paths if it may be any.

    With `either` it is not known whether packet or answer failed. `hop` counts the nodes that the packet left before.
    """

    scenario: str
    traits: Traits
    paths: tuple[Path, ...]
    failed: bool
    back: bool = False
    either: bool = False
    hop: int = 0

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """The paths, and if it may be the answer, its paths."""
        return (*self.paths, *map(_reversed, self.paths)) if self.either else self.paths


def trips_of(tried: Tried, fault: Fault) -> Iterator[Trip]:
    """The trips of a trial that tell something of a kind of fault; those that passed one by one from node to node."""
    trial, scenario = tried.trial, BY_NAME[tried.trial.scenario]
    if (fault == "unrefused") != (scenario.size == "more") or tried.fault not in ("", fault):
        return
    if fault == "translated" and not scenario.forbids_nat:
        return
    if fault == "shared" and "own-address" not in scenario.demands:
        return
    there = _paths(trial, tried.outcome.at)
    trip = partial(Trip, scenario=trial.scenario, traits=_traits(trial))
    if fault != "lost" and tried.fault:
        yield trip(paths=there, failed=True)
    elif tried.fault and not tried.outcome.seen:
        # A connection is seen once it is open: the first packet may be lost, or the answer to it.
        yield trip(paths=there, failed=True, either=trial.afar or trial.protocol == "tcp")
    elif len(there) > 1:  # it passed, by one of them
        yield trip(paths=there, failed=False)
    else:
        back = _reversed(there[0])
        yield from (trip(paths=((each,),), failed=False, hop=hop) for hop, each in enumerate(there[0]))
        if tried.fault:
            yield trip(paths=(back,), back=True, failed=True)
        elif fault == "lost":
            yield from (trip(paths=((each,),), back=True, failed=False, hop=hop) for hop, each in enumerate(back))


def places(path: Path) -> set[Place]:
    """All places that a path leads by."""
    found = {Place(kind="anywhere")}
    for start, end in path:
        found |= {Place(kind="node", nodes=(start,)), Place(kind="node", nodes=(end,))}
        if start != end:
            found |= {
                Place(kind="pair", nodes=(min(start, end), max(start, end))),
                Place(kind="direction", nodes=(start, end)),
                Place(kind="others", nodes=(start,)),
                Place(kind="others", nodes=(end,)),
                Place(kind="from", nodes=(start,)),
                Place(kind="to", nodes=(end,)),
            }
    return found


def _paths(trial: Trial, at: str) -> tuple[Path, ...]:
    """The ways that a packet may go from node to node: of a Service one to each pod, until it arrived `at` one."""
    ends = [each.node for each in trial.behind if at in ("", each.pod)] or [""]
    stops = ([stop for stop in (trial.from_node, trial.to_node, end) if stop] for end in ends)
    return tuple(dict.fromkeys(tuple(pairwise(path)) for path in stops))


def _reversed(path: Path) -> Path:
    return tuple((end, start) for start, end in reversed(path))


def _traits(trial: Trial) -> Traits:
    scenario = BY_NAME[trial.scenario]
    return (
        ("family", str(trial.family)),
        ("protocol", trial.protocol),
        ("size", scenario.size),
        ("way", scenario.way),
    )
