"""What failures have in common: the smallest set of causes that explains them all. Pure.

A trial is a packet's way and its answer's: two legs, of which the first that failed is known from whether the target
saw the packet. A cause is a place (a node, a pair of nodes, a direction, or anywhere) with traits (a family, a
protocol, a size, the way between nodes); it explains the failed legs that match. A set of causes costs

- something for each cause, and a little for each trait, so that few and short ones win;
- much for legs that match and passed, where others like them failed: the cause does not tell them apart;
- a little for all other legs that match and passed: a cause that says what failed more exactly wins.

All single causes and all pairs are compared, and a greedy choice of more; the cheapest set wins.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Final, Literal

from weft.lab.checking.scenarios import BY_NAME
from weft.lab.checking.trial import Fault, Trial, Tried
from weft.model.value import Value

PlaceKind = Literal["anywhere", "pair", "direction", "node", "others", "to", "from"]
TraitName = Literal["family", "protocol", "size", "way"]
Traits = tuple[tuple[TraitName, str], ...]
Direction = tuple[str, str]

# In the order in which a place is preferred where two explain the same.
_KINDS: Final[tuple[PlaceKind, ...]] = ("anywhere", "pair", "direction", "node", "others", "to", "from")
_CAUSE: Final = 10.0
_TRAIT: Final = 1.0
_CONTRADICTED: Final = 30.0  # times the share of passed legs among those like failed ones
_PASSED: Final = 5.0  # times the share of passed legs among all that match


class Place(Value):
    """Where a leg led: to or from a `node`, or inside it; between it and `others`, in one direction: `to` or `from`."""

    kind: PlaceKind
    nodes: tuple[str, ...] = ()


class Cause(Value):
    """What `failed` legs have in common; `passed` others match as well. `examples` are trials that it explains.

    Of a cause of sizes, `limit` is the largest size in bytes that arrives; 0 if that was not measured.
    """

    fault: Fault
    place: Place
    traits: Traits
    failed: int
    passed: int
    examples: tuple[Tried, ...]
    limit: int = 0


class Leg(Value):
    """The way of a packet, or `back` that of its answer. It has two directions where it can't be told which of them."""

    scenario: str
    back: bool
    traits: Traits
    directions: tuple[Direction, ...]
    failed: bool


class _Candidate(Value):
    """A possible cause: which failed legs it explains, as bits, and what it costs."""

    place: Place
    traits: Traits
    explains: int
    passed: int
    cost: float

    @property
    def order(self) -> tuple[float, int, Traits, tuple[str, ...]]:
        """Cheapest first; where two cost the same, one and the same every time."""
        return self.cost, _KINDS.index(self.place.kind), self.traits, self.place.nodes


def causes(tried: Sequence[Tried], fault: Fault) -> list[Cause]:
    """The causes of one kind of fault, the one that explains most first; none where there was no such fault."""
    legs = [(leg, each) for each in tried for leg in legs_of(each, fault)]
    failed = [(leg, each) for leg, each in legs if leg.failed]
    if not failed:
        return []
    chosen = _cheapest(_candidates([leg for leg, _ in legs]), len(failed))
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


def legs_of(tried: Tried, fault: Fault) -> Iterator[Leg]:
    """The legs of a trial that tell something of a kind of fault."""
    trial = tried.trial
    if (fault == "unrefused") != (BY_NAME[trial.scenario].size == "more") or tried.fault not in ("", fault):
        return
    there, back = (trial.from_node, trial.to_node), (trial.to_node, trial.from_node)
    if fault != "lost":
        yield _leg(trial, there, failed=bool(tried.fault))
    elif not tried.fault:
        yield _leg(trial, there, failed=False)
        yield _leg(trial, back, back=True, failed=False)
    elif tried.outcome.seen:
        yield _leg(trial, there, failed=False)
        yield _leg(trial, back, back=True, failed=True)
    elif trial.protocol == "tcp" and there != back:
        # A connection is seen once it is open: the first packet may be lost, or the answer to it.
        yield _leg(trial, there, back, failed=True)
    else:
        yield _leg(trial, there, failed=True)


def _leg(trial: Trial, *directions: Direction, failed: bool, back: bool = False) -> Leg:
    scenario = BY_NAME[trial.scenario]
    traits: Traits = (
        ("family", str(trial.family)),
        ("protocol", trial.protocol),
        ("size", scenario.size),
        ("way", scenario.way),
    )
    return Leg(scenario=trial.scenario, back=back, traits=traits, directions=directions, failed=failed)


def _places(start: str, end: str) -> list[Place]:
    """All places of a direction."""
    found = [Place(kind="anywhere"), Place(kind="node", nodes=(start,))]
    if start == end:
        return found
    return [
        *found,
        Place(kind="node", nodes=(end,)),
        Place(kind="pair", nodes=(min(start, end), max(start, end))),
        Place(kind="direction", nodes=(start, end)),
        *(Place(kind="others", nodes=(node,)) for node in (start, end)),
        Place(kind="from", nodes=(start,)),
        Place(kind="to", nodes=(end,)),
    ]


def _names(leg: Leg) -> Iterator[tuple[Place, Traits]]:
    """All causes that a leg matches. A size that does not matter is no trait to name."""
    named = [trait for trait in leg.traits if trait != ("size", "any")]
    chosen = [traits for count in range(len(named) + 1) for traits in combinations(named, count)]
    places = {(*place.nodes, place.kind): place for way in leg.directions for place in _places(*way)}
    return ((place, traits) for place in places.values() for traits in chosen)


def _candidates(legs: Iterable[Leg]) -> list[_Candidate]:
    """Of the causes of failed legs, the cheapest of those that explain the same."""
    everything = list(legs)
    explains: dict[tuple[Place, Traits], int] = defaultdict(int)
    for bit, leg in enumerate(leg for leg in everything if leg.failed):
        for name in _names(leg):
            explains[name] |= 1 << bit
    counts: dict[tuple[Place, Traits], dict[object, list[int]]] = {name: {} for name in explains}
    for leg in everything:
        for name in _names(leg):
            if name in counts:
                count = counts[name].setdefault(_alike(leg, name[0]), [0, 0])
                count[leg.failed] += 1
    best: dict[int, _Candidate] = {}
    for (place, traits), bits in explains.items():
        found = _candidate(place, traits, bits, counts[place, traits])
        if bits not in best or found.order < best[bits].order:
            best[bits] = found
    return sorted(best.values(), key=lambda each: each.order)


def _alike(leg: Leg, place: Place) -> object:
    """What legs of a place share that fare alike, if it is the cause: of a node, on which side of it they were."""
    side = None
    if place.kind in ("node", "others"):
        [node] = place.nodes
        side = {(start == node, end == node) for start, end in leg.directions} if len(leg.directions) == 1 else None
    return leg.scenario, leg.back, leg.traits, None if side is None else tuple(side)


def _candidate(place: Place, traits: Traits, explains: int, counts: Mapping[object, list[int]]) -> _Candidate:
    passed = sum(passed for passed, _ in counts.values())
    failed = sum(failed for _, failed in counts.values())
    concerned = [count for count in counts.values() if count[1]]
    contradicted = sum(passed for passed, _ in concerned) / sum(map(sum, concerned))
    cost = _CAUSE + _TRAIT * len(traits) + _CONTRADICTED * contradicted + _PASSED * passed / (passed + failed)
    return _Candidate(place=place, traits=traits, explains=explains, passed=passed, cost=cost)


def _cheapest(candidates: Sequence[_Candidate], failed: int) -> Sequence[_Candidate]:
    """The cheapest set of candidates, which are in their order, that explains all failed legs."""
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
    """Take what costs least for each leg that it explains and no other did, until all are explained."""
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
