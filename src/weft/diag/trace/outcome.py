"""What became of the probes, beside what was predicted: where they were lost, in one sentence with a code. Pure."""

from typing import Final

from weft.diag.trace import grown, onway, ruled
from weft.diag.trace.hops import NAT_ON_LEAVING, Leg
from weft.diag.trace.points import WRAPPED_BY, Point, around, parted, passed, points, sides
from weft.diag.trace.probes import ProbesSeen, Sent
from weft.diag.trace.ruled import Ruling
from weft.model.errors import Problem
from weft.model.value import Value, field, replace

_ANSWERED: Final = "it arrives, and the answer comes back"
UNSEEN: Final = "LOST-001"
_UNREAD: Final = "They vanish there: no rule, program, port or counter of the kernel that weft reads says why"
# What a kernel says of what it does not send (errno(3)), and of what that is the word.
_REFUSALS: Final = {
    "Operation not permitted": "FW-002",
    "Permission denied": "ROUTE-003",  # a route or rule that prohibits it
    "Network is unreachable": "ROUTE-003",
    "No route to host": "ROUTE-003",
    "Network is down": "CHECK-001",
    "No buffer space available": "QDISC-001",  # its queue is full
    "Cannot assign requested address": "CHECK-001",
}
_PREDICTED: Final = ("ip", "ip6", "inet")  # of a node's tables
_BEFORE_NODE: Final = ("route", "fixed MAC", "outer packet")  # where the way behind a node may be suspected
_SOURCES: Final = (NAT_ON_LEAVING, "SNAT")  # where a source is kept, or not translated as it should be


class Outcome(Value):
    """`well` if packets arrive and answers come back where they are due; `verdict` is one sentence.

    `problem` is what loses them, on leg number `leg`; by the kernel's word it is the rule of `ruling`. `unseen` is the
    first device that none came to.
    """

    verdict: str
    well: bool
    leg: int
    problem: Problem | None = None
    ruling: Ruling | None = None
    unseen: Point | None = None


class Answers(Value):
    """Of `sent` probes, `reached` came back, and `denied` were refused because nothing listens.

    `renamed`: they were seen with several sources. `seen` is what else was noticed.
    """

    sent: int
    reached: int
    denied: int = 0
    renamed: bool = False
    seen: ProbesSeen = field(default_factory=ProbesSeen)


def outcome(legs: list[Leg], answers: Answers, *, due: bool, beyond: str = "") -> Outcome:
    """Compare the predicted legs and their counts with what came back.

    An answer is `due` to an echo request or a SYN, not to a datagram. `beyond` is the node or address to which a packet
    goes on that ends outside of what was looked at.
    """
    foretold = legs[-1].way.problem
    return _ruled(legs, answers, foretold) or _compared(legs, answers, foretold, due=due, beyond=beyond)


def _compared(legs: list[Leg], answers: Answers, foretold: Problem | None, *, due: bool, beyond: str) -> Outcome:
    end = len(legs) - 1
    came = f"{answers.reached} of {answers.sent} answers came back"
    if answers.seen.sent.mtu:
        return _refused_here(legs, answers.seen.sent)
    if foretold is not None:
        return _dropped(legs, answers, foretold)
    if answers.reached == answers.sent:
        return Outcome(verdict=_refused(beyond) if answers.denied else _ANSWERED, well=True, leg=end)
    parting = None if answers.seen.unread else parted(legs, answers.sent)
    if parting is None:
        why = ", and no device shows where the others were lost"
        if answers.seen.unread:
            why = f"; {answers.seen.unread} packets were not read, so many pass this node; try again"
        return Outcome(verdict=f"{came}{why}", well=False, leg=end)
    before, after = parting
    turned = before is not None and before.direction != after.direction
    if before is not None and turned and not due:
        said = (
            f"it leaves for {beyond}, and nothing answers" if beyond else f"it arrives; {before.place} does not answer"
        )
        own_source = None if answers.renamed else _own_source(legs)
        said = said if own_source is None else f"{said}: {own_source.seen}"
        return Outcome(verdict=said, well=True, leg=before.leg, unseen=after.unseen)
    problem = onway.shut(passed(legs, before, after), answers.seen.on_links) or _unasked(legs, before, after, answers)
    problem = problem or _suspect(legs, before, after)
    if problem is None and turned and not answers.renamed:
        problem = _own_source(legs)
    problem = problem or _at_loss(legs, before, after, answers)
    if problem is None and before is not None and turned and beyond:
        seen = f"{before.device} of {before.place} sent {before.seen}, and {after.device} received {after.seen} answers"
        hint = "Trace it on that node, too: whether they arrive there, and the answers leave. 'weft doctor' asks nodes"
        problem = Problem("REACH-001", f"{before.node} to {beyond}", seen, hint=hint)
    problem = problem or _loss(before, after, answers.seen.sent)
    return Outcome(verdict=str(problem), well=False, leg=after.leg, problem=problem, unseen=after.unseen)


def _refused_here(legs: list[Leg], taken: Sent) -> Outcome:
    device = next((hop.device for hop in legs[0].way.hops if hop.device), "its link")
    problem = Problem("MTU-001", legs[0].place, f"{device} carries packets up to {taken.mtu} bytes")
    return Outcome(verdict=str(problem), well=False, leg=0, problem=problem, unseen=next(points(legs), None))


def _dropped(legs: list[Leg], answers: Answers, problem: Problem) -> Outcome:
    """Say what was predicted, and what keeps the packet from getting there."""
    last, end = legs[-1], len(legs) - 1
    what = "packet" if last.direction == "there" else "answer"
    said = f"the {what} is dropped on {last.node}"
    if answers.reached:
        came = f"{answers.reached} of {answers.sent} answers came back"
        said = f"{came}, and the {what} was predicted to be dropped on {last.node}"
    # That the link where it would come in is down explains the silence that may be suspected before.
    certain = bool(answers.reached) or last.way.hops[-1].what == "received by"
    parting = None if certain else parted(legs, answers.sent)
    suspect = None if parting is None else _suspect(legs, *parting) or _between(*parting)
    if parting is None or suspect is None:
        return Outcome(verdict=f"{said}: {problem}", well=False, leg=end, problem=problem)
    return Outcome(
        verdict=f"{suspect}; beyond that, {said}: {problem.code}",
        well=False,
        leg=parting[1].leg,
        problem=suspect,
        unseen=parting[1].unseen,
    )


def _ruled(legs: list[Leg], answers: Answers, foretold: Problem | None) -> Outcome | None:
    """What the packet filters say that dropped them, on both sides of a loss or where one was foretold."""
    last, lost = legs[-1], answers.sent - answers.reached
    # Its own rules may take what has come back to its link.
    own = sum(each.count for each in answers.seen.ruled.get(last.pod, ())) >= answers.sent > 0
    # Of what is too large a rule takes the kernel's word to the sender, and not the packet.
    if not own and (not lost or (foretold is not None and foretold.code == "MTU-001")):
        return None
    parting, places, at, unseen = parted(legs, answers.sent), [last.place, last.node], len(legs) - 1, None
    if parting is not None:
        before, after = parting
        places, lost, at, unseen = around(before, after), _lost(before, after, answers), after.leg, after.unseen
    found = ((place, ruled.decisive(answers.seen.ruled.get(place, ()))) for place in places)
    place, ruling = next((each for each in found if each[1] is not None), ("", None))
    if ruling is None:
        return None
    if foretold is not None and (confirmed := ruled.confirmed(foretold, ruling)) is not None:
        return replace(_dropped(legs, answers, confirmed), ruling=ruling)
    inside = any(leg.pod == place for leg in legs)
    problem = ruled.explained(place, ruling, lost, pod=inside)
    said = f"; foretold was {foretold}" if foretold is not None else ""
    decided = all(hop.passes for leg in legs for hop in leg.way.hops)
    if not (said or inside) and decided and ruling.family in _PREDICTED:
        said = "; weft trace had foretold that it passes there"
    return Outcome(verdict=f"{problem}{said}", well=False, leg=at, problem=problem, ruling=ruling, unseen=unseen)


def _lost(before: Point | None, after: Point, answers: Answers) -> int:
    return (answers.sent if before is None else before.seen) - after.seen


def _at_loss(legs: list[Leg], before: Point | None, after: Point, answers: Answers) -> Problem | None:
    """What counters say, or what programs on either side may have done.

    A link that sends none may wait for a MAC, and what is asked for that is taken at the next ones. Of what is lost
    between a place and itself, as a pod's answer, its links say nothing.
    """
    here = sides(legs, before, after)
    if (counted := _counted(before, after, answers)) is not None:
        return onway.named(counted, here, answers.seen.on_links)
    turned = before is not None and before.direction != after.direction
    return None if turned else onway.asked(here, answers.seen.on_links)


def _unasked(legs: list[Leg], before: Point | None, after: Point, answers: Answers) -> Problem | None:
    """The queue that drops what asks for a MAC, whatever the number of probes: nothing is sent then.

    The kernel asks again by itself, so that it also grows without probes.
    """
    for place, device in () if after.seen else sides(legs, before, after):
        own = {name: count for name, count in answers.seen.queues.get(place, {}).items() if name.endswith(f".{device}")}
        if (found := grown.explained(place, own, 1)) is not None:
            return onway.named(found, [(place, device)], answers.seen.on_links)
    return None


def _suspect(legs: list[Leg], before: Point | None, after: Point) -> Problem | None:
    """Before a device, or behind all those of a node."""
    if before is None or after.suspect is not None or before.leg == after.leg:
        return after.suspect
    found = (hop.suspect for hop in legs[before.leg].way.hops if hop.what in _BEFORE_NODE and hop.suspect is not None)
    return next(found, None)


def _counted(before: Point | None, after: Point, answers: Answers) -> Problem | None:
    """What counters of the kernel say on both sides of a loss."""
    lost = _lost(before, after, answers)
    found = (grown.explained(place, answers.seen.grown.get(place, {}), lost) for place in around(before, after))
    return next((problem for problem in found if problem is not None), None)


def _own_source(legs: list[Leg]) -> Problem | None:
    """Nobody outside can answer a pod's own address."""
    hops = (hop for leg in legs for hop in leg.way.hops if hop.what in _SOURCES)
    return next((hop.suspect for hop in hops if hop.suspect is not None), None)


def _between(before: Point | None, after: Point) -> Problem | None:
    if before is None or not before.seen or before.node == after.node or before.direction != after.direction:
        return None
    return _loss(before, after, Sent())


def _refused(beyond: str) -> str:
    nothing = "nothing listens at the port"
    return (
        f"{beyond} refuses it: {nothing}, or a firewall says so" if beyond else f"it arrives, and is refused: {nothing}"
    )


def _loss(before: Point | None, after: Point, taken: Sent) -> Problem:
    """What is seen of a loss whose cause is not."""
    if before is None:
        seen = f"{after.place} sent {after.seen} by {after.device}"
        if taken.refusal:
            return Problem(
                _REFUSALS.get(taken.refusal, UNSEEN), after.place, f"{seen}: its kernel says {taken.refusal!r}"
            )
        return Problem(UNSEEN, after.place, seen, hint=_UNREAD)
    wrapped = after.what == WRAPPED_BY
    seen = f"{before.device} of {before.place} {'took' if wrapped else before.did} {before.seen},"
    where = "" if after.place == before.place else f" of {after.place}"
    seen = f"{seen} {after.device}{where} {after.did} {after.seen}"
    if before.direction != after.direction:
        seen = f"{before.place} received {before.seen} and answered {after.seen}"
        return Problem(UNSEEN, before.place, seen, hint="See the program there, and rules of its own")
    if before.node != after.node:
        hint = "See what is between the nodes: links, firewalls, a cloud's security groups"
        return Problem("REACH-001", f"{before.node} to {after.node}", seen, hint=hint)
    if before.place != after.place:
        pod = before.place if before.place != before.node else after.place
        node = before.node
        return Problem(
            "CHECK-001", f"pod {pod}", seen, hint=f"'weft doctor' on {node} sees both ends of the pod's link"
        )
    return Problem(UNSEEN, after.node, seen, hint=_UNREAD)
