"""What became of the probes, beside what was predicted: where they were lost, in one sentence with a code. Pure."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from weft.diag.tracing.legs import Direction, Leg
from weft.model.errors import Problem
from weft.model.value import Value

_ANSWERED: Final = "it arrives, and the answer comes back"
_UNREAD: Final = (
    "They vanish there for a reason that weft does not read: 'tc filter show' and 'nft list hooks' show some of it"
)
_WRAPPED_BY: Final = "outer packet by"
_WRAPPING: Final = (_WRAPPED_BY, "unwrapped by")  # behind or before these a packet is inside another one
_SENDING: Final = ("sent by", "out by", _WRAPPED_BY)


class Outcome(Value):
    """`verdict` is all of it in one sentence; `well` if packets arrive and, where one is due, an answer comes back.

    `problem` is what loses them, if something does, on leg number `leg`; without one that is the last leg. `unseen` is
    the first device that none came to, where there is one.
    """

    verdict: str
    well: bool
    leg: int
    problem: Problem | None = None
    unseen: "Point | None" = None


class Point(Value):
    """A device on leg number `leg` that probes should pass, and how many did: `what` they do there.

    `suspect` is what may have lost them since the device before.
    """

    leg: int
    node: str
    place: str
    what: str
    device: str
    direction: Direction
    seen: int
    suspect: Problem | None = None


class Answers(Value):
    """Of `sent` probes so many `reached` their end and came back; `denied` ones as nothing listens there.

    `unread` frames and the kernel's `refusal` to send are as `Counted` has them.
    """

    sent: int
    reached: int
    denied: int = 0
    unread: int = 0
    refusal: str = ""


def outcome(legs: list[Leg], answers: Answers, *, due: bool, beyond: str = "") -> Outcome:
    """Compare the legs that were predicted, with their counts, with what came back to the source.

    `due` says whether something must answer, as to an echo request or a SYN; a datagram may be kept. Where the packet
    ends `beyond` what was looked at, that is the name of the node or address to which it goes on.
    """
    last, end = legs[-1], len(legs) - 1
    came = f"{answers.reached} of {answers.sent} answers came back"
    if last.way.problem is not None:
        return _dropped(legs, answers, last.way.problem)
    if answers.reached == answers.sent:
        return Outcome(verdict=_refused(beyond) if answers.denied else _ANSWERED, well=True, leg=end)
    if answers.unread:
        many = f"{answers.unread} packets were not read, so many pass this node; try again"
        return Outcome(verdict=f"{came}; {many}", well=False, leg=end)
    parting = parted(legs, answers.sent)
    if parting is None:
        return Outcome(verdict=f"{came}, and no device shows where the others were lost", well=False, leg=end)
    before, after = parting
    turned = before is not None and before.direction != after.direction
    if before is not None and turned and not due:
        said = (
            f"it leaves for {beyond}, and nothing answers" if beyond else f"it arrives; {before.place} does not answer"
        )
        return Outcome(verdict=said, well=True, leg=before.leg, unseen=_unseen(after))
    problem = _suspect(legs, before, after)
    if problem is None and before is not None and turned and beyond:
        problem = _beyond(before, after, beyond)
    problem = problem or _loss(before, after, answers.refusal)
    undecided = any(hop.passes is None and hop.suspect is None for leg in legs for hop in leg.way.hops)
    doubt = "the rules that were read do not decide it; " if undecided else ""
    return Outcome(verdict=f"{doubt}{problem}", well=False, leg=after.leg, problem=problem, unseen=_unseen(after))


def _dropped(legs: list[Leg], answers: Answers, problem: Problem) -> Outcome:
    """Say what was predicted to be dropped on the last leg; and what keeps it from getting there, where that shows."""
    last, end = legs[-1], len(legs) - 1
    what = "packet" if last.direction == "there" else "answer"
    said = f"the {what} is dropped on {last.node}"
    if answers.reached:
        came = f"{answers.reached} of {answers.sent} answers came back"
        said = f"{came}, and the {what} was predicted to be dropped on {last.node}"
    # That the link where it would come in is down explains the silence that may be suspected before.
    certain = bool(answers.reached) or last.way.hops[-1].what == "received by"
    parting = None if certain else parted(legs, answers.sent)
    suspect = None if parting is None else _suspect(legs, *parting)
    if parting is None or suspect is None:
        return Outcome(verdict=f"{said}: {problem}", well=False, leg=end, problem=problem)
    return Outcome(
        verdict=f"{suspect}; beyond that, {said}: {problem.code}",
        well=False,
        leg=parting[1].leg,
        problem=suspect,
        unseen=_unseen(parting[1]),
    )


def _suspect(legs: list[Leg], before: Point | None, after: Point) -> Problem | None:
    """What was suspected on the way, if they were lost there: before a device, or behind all those of a node."""
    if before is None or after.suspect is not None or before.leg == after.leg:
        return after.suspect
    found = (hop.suspect for hop in legs[before.leg].way.hops if hop.what == "route" and hop.suspect is not None)
    return next(found, None)


def _unseen(point: Point) -> Point | None:
    return None if point.seen else point


def _refused(beyond: str) -> str:
    nothing = "nothing listens at the port"
    return (
        f"{beyond} refuses it: {nothing}, or a firewall says so" if beyond else f"it arrives, and is refused: {nothing}"
    )


def parted(legs: list[Leg], sent: int) -> tuple[Point | None, Point] | None:
    """Between which devices probes were lost first; before the first one is None. None if all were seen to the end.

    A device that saw none where a later one did has not lost them: what passes it may be a cipher.
    """
    points = list(_points(legs))
    alive = sent
    for number, (before, after) in enumerate(pairwise([None, *points])):
        later = max(point.seen for point in points[number:])
        if after is not None and later < alive:
            return before, after
        alive = later
    return None


def _points(legs: list[Leg]) -> Iterator[Point]:
    for number, leg in enumerate(legs):
        suspect = None
        for hop in leg.way.hops:
            suspect = hop.suspect or suspect if hop.what == "neighbour" else suspect
            if hop.device:
                yield Point(
                    leg=number,
                    node=leg.node,
                    place=leg.place,
                    what=hop.what,
                    device=hop.device,
                    direction=leg.direction,
                    seen=leg.counted.get(hop.device, 0),
                    suspect=suspect,
                )
                suspect = None


def _did(point: Point) -> str:
    return "sent" if point.what in _SENDING else "received"


def _beyond(before: Point, after: Point, name: str) -> Problem:
    """Say that nothing came back of what has left."""
    seen = f"{before.device} of {before.place} sent {before.seen}, and {after.device} received {after.seen} answers"
    hint = "Trace it on that node, too: whether they arrive there, and the answers leave. 'weft doctor' asks nodes"
    return Problem(code="REACH-001", where=f"{before.node} to {name}", seen=seen, hint=hint)


def _loss(before: Point | None, after: Point, refusal: str) -> Problem:
    """Say where probes were lost although all that was read lets them pass."""
    if before is None:
        seen = f"{after.place} sent {after.seen} by {after.device}"
        if refusal:
            return Problem(code="FW-002", where=after.place, seen=f"{seen}: its kernel says {refusal!r}")
        return Problem(code="FW-002", where=after.place, seen=seen, hint=_UNREAD)
    wrapped = after.what == _WRAPPED_BY
    seen = f"{before.device} of {before.place} {'took' if wrapped else _did(before)} {before.seen},"
    where = "" if after.place == before.place else f" of {after.place}"
    seen = f"{seen} {after.device}{where} {_did(after)} {after.seen}"
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
