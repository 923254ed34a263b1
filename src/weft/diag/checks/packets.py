"""Packets that were sent to see them arrive: of those that were lost, what a trace of them found. Pure."""

from collections.abc import Iterator
from typing import Final

from weft.diag.finding import CONCLUDED, Finding, UndecidedError, check
from weft.diag.sight.node import Lost, Sight
from weft.model.errors import Problem
from weft.model.text import counted

_NOTHING: Final = "no pod here has a partner, and no peer an address in the pod network: no packet could be sent"
_ONCE_MORE: Final = "'weft check' tries more, and 'weft trace --probe' follows one packet"


@check("packets", "packets of this node's pods arrive", "proof", unless_said=True)
def _arrive(sight: Sight) -> Iterator[Finding]:
    proof = sight.proof
    if proof is None or not (proof.tried or proof.lost):
        raise UndecidedError(_NOTHING)
    unheard = {each.peer for each in sight.probes if each.way == "overlay" and not each.answered}
    causes, missing = dict[Problem, list[Lost]](), [each for each in proof.lost if not each.forbidden]
    for each in missing:
        # Of what a peer does that does not answer the node either, the check of answers knows as much.
        if each.cause is not None and not (is_unexplained(each) and each.peer in unheard):
            causes.setdefault(each.cause, []).append(each)
    if any(cause.code not in CONCLUDED for cause in causes):
        causes = {cause: lost for cause, lost in causes.items() if cause.code not in CONCLUDED}
    for cause, lost in causes.items():
        # Rules that hold up one pod and not the others may be a policy's, of whatever program.
        meant = cause.code.startswith("FW-") and not any(each.peer for each in lost) and len(missing) < proof.pods
        yield Finding(problem=cause, weight="warning" if meant else "fault")
    untold = [each for each in missing if each.cause is None and each.peer not in unheard]
    if untold and not causes:
        first = untold[0]
        where = f"packets from {first.source} to {first.target}"
        seen = f"{counted(len(missing), 'packet')} of {proof.tried} did not arrive"
        yield Finding(problem=Problem("LOST-001", where, seen, hint=_ONCE_MORE))


def is_unexplained(lost: Lost) -> bool:
    """True where the trace has seen neither what loses a packet nor that it is lost on this node."""
    return lost.cause is None or (lost.cause.code in CONCLUDED and not lost.here)


CHECKS: Final = (_arrive,)
