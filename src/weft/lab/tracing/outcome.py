"""What became of the probes, beside what was predicted: where they were lost, in one sentence with a code. Pure."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from weft.lab.tracing.legs import Direction, Leg
from weft.model.errors import Problem
from weft.model.value import Value

_UNREAD: Final = "Something there that no trace reads: 'tc filter show' and 'nft list hooks' name some of it"
_WRAPPING: Final = ("outer packet by", "unwrapped by")  # behind or before these a packet is inside another one


class Outcome(Value):
    """`verdict` is all of it in one sentence; `well` if packets arrive and, where one is due, an answer comes back.

    `problem` is what loses them, if something does, on leg number `leg`; without one that is the last leg.
    """

    verdict: str
    well: bool
    leg: int
    problem: Problem | None = None


class Step(Value):
    """A device on leg number `leg` that probes should pass, and how many did: `what` they do there."""

    leg: int
    node: str
    place: str
    what: str
    device: str
    direction: Direction
    seen: int


def outcome(legs: list[Leg], *, sent: int, reached: int, answers: bool) -> Outcome:
    """Compare the legs that were predicted, with their counts, with what `reached` the source again.

    `answers` says whether something must answer, as to an echo request or a SYN; a datagram may be kept.
    """
    last, end = legs[-1], len(legs) - 1
    if last.way.problem is not None:
        what = "packet" if last.direction == "there" else "answer"
        if not reached:
            verdict = f"the {what} is dropped on {last.node}: {last.way.problem}"
            return Outcome(verdict=verdict, well=False, leg=end, problem=last.way.problem)
        verdict = f"{reached} of {sent} answers came back, and the {what} was predicted to be dropped on {last.node}"
        return Outcome(verdict=f"{verdict}: {last.way.problem}", well=False, leg=end, problem=last.way.problem)
    if reached == sent:
        return Outcome(verdict="it arrives, and the answer comes back", well=True, leg=end)
    parting = parted(legs, sent)
    if parting is None:
        verdict = f"{reached} of {sent} answers came back, and no device shows where the others stayed"
        return Outcome(verdict=verdict, well=False, leg=end)
    before, after = parting
    if before is not None and before.direction != after.direction and not answers:
        return Outcome(verdict=f"it arrives; {before.place} does not answer", well=True, leg=end)
    problem = _loss(before, after)
    doubt = "it was not told by what was read; " if any(leg.way.end == "undecided" for leg in legs) else ""
    return Outcome(verdict=f"{doubt}{problem}", well=False, leg=after.leg, problem=problem)


def parted(legs: list[Leg], sent: int) -> tuple[Step | None, Step] | None:
    """Between which devices probes were lost first; before the first one is None. None if all were seen to the end.

    A device that saw none where a later one did has not lost them: what passes it may be a cipher.
    """
    steps = list(_steps(legs))
    alive = sent
    for number, (before, after) in enumerate(pairwise([None, *steps])):
        later = max(step.seen for step in steps[number:])
        if after is not None and later < alive:
            return before, after
        alive = later
    return None


def _steps(legs: list[Leg]) -> Iterator[Step]:
    for number, leg in enumerate(legs):
        for hop in leg.way.hops:
            if hop.device:
                yield Step(
                    leg=number,
                    node=leg.node,
                    place=leg.place,
                    what=hop.what,
                    device=hop.device,
                    direction=leg.direction,
                    seen=leg.counted.get(hop.device, 0),
                )


def _loss(before: Step | None, after: Step) -> Problem:
    """Say where probes were lost although all that was read lets them pass."""
    if before is None:
        seen = f"{after.place} sent {after.seen} by {after.device}"
        return Problem(code="FW-002", where=after.place, seen=seen, hint=_UNREAD)
    left, came = f"{before.device} of {before.place}", f"{after.device} of {after.place}"
    seen = f"sent {before.seen} by {left}, {came} received {after.seen}"
    if before.direction != after.direction:
        seen = f"{before.place} received {before.seen} and answered {after.seen}"
        hint = "See the program there, and rules of its own"
        return Problem(code="FW-002", where=before.place, seen=seen, hint=hint)
    if before.node != after.node:
        hint = "See what is between the nodes: links, firewalls, a cloud's security groups"
        return Problem(code="REACH-001", where=f"{before.node} to {after.node}", seen=seen, hint=hint)
    if before.place != after.place:
        pod = before.place if before.place != before.node else after.place
        return Problem(code="CHECK-001", where=f"pod {pod}", seen=seen)
    return Problem(code="REACH-001" if after.what in _WRAPPING else "FW-002", where=after.node, seen=seen, hint=_UNREAD)
