"""What follows from the trials that a node makes alone: of whom they tell, and where that is. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from weft.diag.check.causes import Cause
from weft.diag.check.evidence import Evidence
from weft.diag.check.scenarios import BY_NAME, Way
from weft.diag.check.trial import Tried
from weft.diag.check.trips import Place
from weft.model.errors import Problem
from weft.model.value import replace

_TWICE: Final = "One of them has it from elsewhere: 'weft ipam list' shows which container holds it."
_FEW: Final = 4  # a cause may name one in so many of all places


def placed(found: Sequence[Cause], name: str, tried: Sequence[Tried]) -> list[Cause]:
    """The causes of a node called `name`. One that is anywhere is there: all packets pass it.

    Where most packets of a cause passed, and a few places that nothing reaches explain all failures, it is these.
    """
    dead = _dead(found, name, tried) if any(cause.passed > cause.failed for cause in found) else ()
    if dead:
        examples = tuple(each for cause in found for each in cause.examples)
        place = Place(kind="some", nodes=tuple(dead))
        failed = sum(cause.failed for cause in found)
        return [Cause(fault=found[0].fault, place=place, traits=(), failed=failed, passed=0, examples=examples)]
    here = Place(kind="node", nodes=(name,))
    return [replace(cause, place=here) if cause.place.kind == "anywhere" else cause for cause in found]


def _dead(found: Sequence[Cause], name: str, tried: Sequence[Tried]) -> list[str]:
    """Places that nothing reaches and nothing leaves, if a few of many explain all failures; or none."""
    leaving = [each for each in tried if BY_NAME[each.trial.scenario].between_ends]
    everywhere = {end for each in leaving for end in _ends(each)} - {name}
    alive = {end for each in leaving if not each.fault for end in _ends(each)}
    rest = [_ends(each) & (everywhere - alive) for cause in found for each in cause.examples]
    dead: list[str] = []
    while rest and all(rest):
        counts = Counter(end for each in rest for end in sorted(each))
        dead.append(max(counts, key=lambda end: counts[end]))
        rest = [each for each in rest if dead[-1] not in each]
    return [] if rest or len(dead) * _FEW > len(everywhere) else sorted(dead)


def _ends(tried: Tried) -> set[str]:
    return {tried.trial.source, tried.trial.target}


def without(tried: Sequence[Tried], ended: Collection[str]) -> tuple[list[Tried], list[str]]:
    """Leave out what tells nothing, and say why: trials of pods that have `ended`, and echo requests without a duty.

    A node that is reached through the pod network may keep its public IP from answering.
    """
    reached = {(_way(each), each.trial.target) for each in tried if not each.fault}
    left, why = list[Tried](), dict[str, None]()
    for each in tried:
        gone = sorted({each.trial.source, each.trial.target} & set(ended))
        why |= dict.fromkeys(f"{name}: it has ended meanwhile" for name in gone)
        target, silent = each.trial.target, each.trial.afar and _way(each) == "underlay"
        if silent and ("underlay", target) not in reached and ("overlay", target) in reached:
            why[f"{target}: it is reached through the pod network, and its public IP does not answer"] = None
        elif not gone:
            left.append(each)
    return left, list(why)


def _way(tried: Tried) -> Way:
    return BY_NAME[tried.trial.scenario].way


def shared(tried: Sequence[Tried]) -> tuple[list[Tried], list[Evidence]]:
    """The trials, those of an address that several pods have with this fault; and which pods these are."""
    owners: dict[str, dict[str, None]] = {}
    for each in filter(_is_own, tried):
        owners.setdefault(each.trial.address, {})[each.trial.target] = None
    twice = {address: list(names) for address, names in owners.items() if len(names) > 1}
    problems = [
        Problem(code="CHECK-001", where=address, seen=f"pods {' and '.join(names)} have it", hint=_TWICE)
        for address, names in twice.items()
    ]
    evidence = [
        Evidence(node=name, by="check", problem=problem)
        for problem, names in zip(problems, twice.values(), strict=True)
        for name in names
    ]
    found = [replace(each, fault="shared") if _is_own(each) and each.trial.address in twice else each for each in tried]
    return found, evidence


def _is_own(tried: Tried) -> bool:
    return "own-address" in BY_NAME[tried.trial.scenario].demands
