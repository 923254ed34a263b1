"""A trace that was tried by probes: the legs with their counts, and what became of it. Pure."""

from collections.abc import Iterator, Sequence

from weft.diag.tracing.counted import Counted
from weft.diag.tracing.hopwords import lines
from weft.diag.tracing.legs import End, Leg, Visit, counted, legs, unreached
from weft.diag.tracing.outcome import Answers, outcome
from weft.diag.tracing.probes import Kind
from weft.diag.tracing.sequence import Stage, diagram
from weft.model.errors import Problem
from weft.model.value import Value


class TraceReport(Value):
    """The legs in order, each with how many probes were seen at its devices.

    Of `tried` probes `reached` came back; `elsewhere` went to other pods of a Service. `verdict` is all of it in one
    sentence, `code` that of its problem. `last` is the number of the last leg that probes came to.
    """

    source: str
    target: str
    legs: list[Leg]
    tried: int
    reached: int
    elsewhere: int
    verdict: str
    well: bool
    last: int
    problem: Problem | None = None


class Asked(Value):
    """What was asked and sent: the words for both ends, and the probes of some numbers."""

    source: str
    target: str
    kind: Kind
    numbers: Sequence[int]


def tried(
    asked: Asked, begin: End, end: End, visits: Sequence[Visit], seen: Counted, *, beyond: str = ""
) -> TraceReport:
    """Put together what was predicted and what was seen. `beyond` is as `outcome` has it."""
    ours = seen.towards(end.address, asked.numbers)
    found = [counted(leg, lambda *at: len(seen.at(*at) & ours)) for leg in legs(begin, end, visits)]
    reached = len(seen.anywhere(begin.place, "back") & _arrived(begin, end, seen, beyond=beyond) & ours)
    denied = len(seen.denied & ours)
    answers = Answers(sent=len(ours), reached=reached, denied=denied, unread=seen.unread, refusal=seen.refusal)
    result = outcome(found, answers, due=asked.kind != "udp", beyond=beyond)
    if result.unseen is not None:
        found = unreached(found, result.unseen.leg, result.unseen.device)
    return TraceReport(
        source=asked.source,
        target=asked.target,
        legs=found,
        tried=len(ours),
        elsewhere=len(asked.numbers) - len(ours),
        reached=reached,
        verdict=result.verdict,
        well=result.well,
        last=result.leg,
        problem=result.problem,
    )


def _arrived(begin: End, end: End, seen: Counted, *, beyond: str) -> set[int]:
    """The probes that came to their end: a firewall's answer in the name of the target is none."""
    if beyond:
        return seen.anywhere(begin.place, "back")
    there = seen.anywhere(end.place, "there")
    # What the end itself has sent is seen there before it has arrived.
    return there & seen.sent_to(end.address) if end.place == begin.place else there


def tried_diagram(found: TraceReport) -> str:
    """The legs up to the last one that packets came to, as a sequence diagram."""
    shown = found.legs[: found.last + 1]
    return diagram(
        [Stage(place=leg.place, way=leg.way, back=leg.direction == "back", counted=leg.counted) for leg in shown]
    )


def tried_lines(found: TraceReport, *, explain: bool) -> Iterator[str]:
    """The same legs as text."""
    for leg in found.legs[: found.last + 1]:
        yield f"{leg.place}, {leg.direction}"
        yield from lines(leg.way, leg.counted, explain=explain)
    others = f"; {found.elsewhere} went to other pods" if found.elsewhere else ""
    yield f"{found.reached} of {found.tried} probes were answered{others}"
    yield found.verdict
