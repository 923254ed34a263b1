"""What failures have in common: the smallest set of causes that explains them all. Pure.

A cause is a place (a node, a pair of nodes, a direction, or anywhere) with traits (a family, a protocol, a size, the
way between nodes); it explains the failed trips that match. A set of causes costs

- something for each cause, and a little for each trait, so that few and short ones win;
- much for trips that match and passed, where others like them failed: the cause does not tell them apart;
- a little for all other trips that match and passed: a cause that says more exactly what failed wins;
- a little for failed trips that may have taken another path.

All single causes and all pairs are compared, and a greedy choice of more; the cheapest set wins.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import combinations, pairwise
from operator import or_
from typing import Final, Literal

from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Fault, Trial, Tried
from weft.model.value import Value

PlaceKind = Literal["anywhere", "pair", "direction", "node", "others", "to", "from", "some"]
TraitName = Literal["family", "protocol", "size", "way"]
Traits = tuple[tuple[TraitName, str], ...]
Direction = tuple[str, str]
Path = tuple[Direction, ...]

# In the order in which a place is preferred where two explain the same.
_KINDS: Final[tuple[PlaceKind, ...]] = ("anywhere", "pair", "direction", "node", "others", "to", "from")
_CAUSE: Final = 10.0
_TRAIT: Final = 1.0
_CONTRADICTED: Final = 30.0  # times the share of passed trips among those like failed ones
_PASSED: Final = 5.0  # times the share of passed trips among all that match
_DOUBT: Final = 5.0  # times the share of paths that lead elsewhere, of failed trips


class Place(Value):
    """Where a trip led: by a `node`, or between it and `others`, or in one direction, `to` or `from` it.

    `some` are several nodes, each of which has failures of its own.
    """

    kind: PlaceKind
    nodes: tuple[str, ...] = ()


_Name = tuple[Place, Traits]


class Trip(Value):
    """The way of a packet from node to node, or `back` that of its answer; one of several paths, if it may be any.

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
        """The paths, and if the answer may have failed, its paths."""
        return (*self.paths, *map(_reversed, self.paths)) if self.either else self.paths


def trips_of(tried: Tried, fault: Fault) -> Iterator[Trip]:
    """A trial that passed gives one trip for each step from node to node."""
    trial, scenario = tried.trial, BY_NAME[tried.trial.scenario]
    if (fault == "unrefused") != (scenario.size == "more") or tried.fault not in ("", fault):
        return
    if fault == "translated" and not scenario.forbids_nat:
        return
    if trial.forbidden is not (fault == "forbidden"):
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
    elif there[1:]:  # it passed, by one of them
        yield trip(paths=there, failed=False)
    else:
        back = _reversed(there[0])
        yield from (trip(paths=((each,),), failed=False, hop=hop) for hop, each in enumerate(there[0]))
        if tried.fault:
            yield trip(paths=(back,), back=True, failed=True)
        elif fault == "lost":
            yield from (trip(paths=((each,),), back=True, failed=False, hop=hop) for hop, each in enumerate(back))


def places(path: Path) -> set[Place]:
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
    """A Service has one path to each pod, until the packet arrived `at` one."""
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


class Cause(Value):
    """What `failed` trips have in common; `passed` others match as well. `examples` are trials that it explains.

    `limit` is the largest size in bytes that arrives; 0 if that was not measured. `partly`: some passed when tried
    again.
    """

    fault: Fault
    place: Place
    traits: Traits
    failed: int
    passed: int
    examples: tuple[Tried, ...]
    limit: int = 0
    partly: bool = False


class _Candidate(Value):
    """`explains` has a bit for each failed trip."""

    place: Place
    traits: Traits
    explains: int
    passed: int
    cost: float

    @property
    def order(self) -> tuple[float, int, Traits, tuple[str, ...]]:
        """Cheapest first; of equal ones the same every time."""
        return self.cost, _KINDS.index(self.place.kind), self.traits, self.place.nodes


def causes(tried: Sequence[Tried], fault: Fault) -> list[Cause]:
    """The causes of one kind of fault, the one that explains most first."""
    trips = [(trip, each) for each in tried for trip in trips_of(each, fault)]
    failed = [(trip, each) for trip, each in trips if trip.failed]
    if not failed:
        return []
    chosen = _cheapest(_candidates([trip for trip, _ in trips]), len(failed))
    found = [
        Cause(
            fault=fault,
            place=each.place,
            traits=each.traits,
            failed=each.explains.bit_count(),
            passed=each.passed,
            examples=tuple(trial for bit, (_, trial) in enumerate(failed) if each.explains >> bit & 1),
        )
        for each in chosen
    ]
    return sorted(found, key=lambda cause: -cause.failed)


def _names(trip: Trip) -> Iterator[tuple[_Name, float]]:
    named = [trait for trait in trip.traits if trait != ("size", "any")]
    chosen = [traits for count in range(len(named) + 1) for traits in combinations(named, count)]
    paths = trip.all_paths
    led = Counter(place for path in paths for place in places(path))
    return (((place, traits), count / len(paths)) for place, count in led.items() for traits in chosen)


def _candidates(trips: Iterable[Trip]) -> list[_Candidate]:
    everything = list(trips)
    explains: dict[_Name, int] = defaultdict(int)
    doubts: dict[_Name, float] = defaultdict(float)
    for bit, trip in enumerate(trip for trip in everything if trip.failed):
        for name, share in _names(trip):
            explains[name] |= 1 << bit
            doubts[name] += 1 - share
    counts: dict[_Name, dict[object, list[int]]] = {name: {} for name in explains}
    for trip in everything:
        for name, _ in _names(trip):
            if name in counts:
                count = counts[name].setdefault(_alike(trip, name[0]), [0, 0])
                count[trip.failed] += 1
    best: dict[int, _Candidate] = {}
    for name, bits in explains.items():
        found = _candidate(name, bits, counts[name], doubts[name] / bits.bit_count())
        if bits not in best or found.order < best[bits].order:
            best[bits] = found
    return sorted(best.values(), key=lambda each: each.order)


def _alike(trip: Trip, place: Place) -> object:
    """What trips share that fare alike if a place is the cause."""
    sides: tuple[bool, ...] = ()
    if place.kind in ("node", "others"):
        firsts = [path[0] for path in trip.paths]
        sides = tuple(all((ends[side],) == place.nodes for ends in firsts) for side in (0, 1))
    return trip.scenario, trip.back, trip.hop, trip.traits, sides


def _candidate(name: _Name, explains: int, counts: Mapping[object, list[int]], doubt: float) -> _Candidate:
    place, traits = name
    passed = sum(passed for passed, _ in counts.values())
    failed = sum(failed for _, failed in counts.values())
    concerned = [count for count in counts.values() if count[1]]
    contradicted = sum(passed for passed, _ in concerned) / sum(map(sum, concerned))
    cost = (
        _CAUSE
        + _TRAIT * len(traits)
        + _CONTRADICTED * contradicted
        + _PASSED * passed / (passed + failed)
        + _DOUBT * doubt
    )
    return _Candidate(place=place, traits=traits, explains=explains, passed=passed, cost=cost)


def _cheapest(candidates: Sequence[_Candidate], failed: int) -> Sequence[_Candidate]:
    everything = (1 << failed) - 1
    best = _greedy(candidates, everything)
    cost = sum(each.cost for each in best)
    for number, one in enumerate(candidates):
        if one.explains == everything and one.cost < cost:
            best, cost = [one], one.cost
        for other in candidates[number + 1 :]:
            if one.cost + other.cost >= cost:
                break
            if one.explains | other.explains == everything:
                best, cost = [one, other], one.cost + other.cost
    return best


def _greedy(candidates: Sequence[_Candidate], everything: int) -> list[_Candidate]:
    """Take what costs least for each trip that it explains, until all are explained."""
    chosen, rest = list[_Candidate](), everything
    while rest:
        each = min(
            (each for each in candidates if each.explains & rest),
            key=lambda each: (each.cost / (each.explains & rest).bit_count(), *each.order),
        )
        chosen.append(each)
        rest &= ~each.explains
    for each in tuple(chosen):
        others = [other for other in chosen if other is not each]
        if reduce(or_, (other.explains for other in others), 0) == everything:
            chosen = others
    return chosen
