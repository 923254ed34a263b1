"""Why it fails: which of the findings of doctors and traces tells the reason of a cause. Pure."""

from collections.abc import Sequence
from itertools import chain
from typing import Final, Literal

from weft.diag.check.causes import Cause
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Fault
from weft.diag.finding import CONCLUDED, Weight
from weft.diag.trace.hops import OUTSIDE
from weft.model.errors import Problem
from weft.model.value import Value

# The areas of codes of what loses packets of pods; others are of leases, plugins, daemons and stores.
_OF_PACKETS: Final = (
    *("KERN", "FW", "REACH", "MTU", "VTEP", "FDB", "ROUTE", "BRIDGE", "IFACE", "ADDR", "CSUM", "NFT", "SVC"),
    *("XFRM", "NEIGH", "LOST", "QDISC", "PROG"),
    "CHECK",  # a pod's own link
)
_OF_A_POD: Final = "CHECK-001"
_AWAY: Final = "LEASE-005"
_HAIRPIN: Final = "BRIDGE-003"
# What a doctor concludes from probes alone: that packets are lost, which the check has seen itself, and not by what.
_BY_PROBES: Final = ("MTU-001", _AWAY)


EXPLAINED: Final[tuple[Fault, ...]] = ("lost", "narrow", "unrefused")  # for which nodes are asked why


class Evidence(Value):
    """A problem of a node that its doctor, a trace of a failed trial, or the check itself found."""

    node: str
    by: Literal["doctor", "trace", "check"]
    problem: Problem
    weight: Weight = "fault"

    @property
    def area(self) -> tuple[str, str]:
        """The node, and the area of the code: `FW` of `FW-002`."""
        return self.node, self.problem.code.partition("-")[0]


def reason(cause: Cause, evidence: Sequence[Evidence], here: str = "") -> Evidence | None:
    """The evidence that explains a cause of losses best; all places of the cause may be on one node, `here`.

    Faults come before warnings, what was seen (a rule, a route, a setting) before what was concluded from lost probes,
    the node that the losses have in common before others, what a trace met before what else a doctor found, and the
    doctor's word for it before the trace's.
    """
    nodes = [*_touched(cause), here]
    traced = {each.area for each in evidence if each.by == "trace"}

    def rank(each: Evidence) -> tuple[bool, bool, int, bool, bool]:
        concluded = each.problem.code == "LOST-001" or (
            each.by == "doctor" and each.problem.code in (*CONCLUDED, *_BY_PROBES)
        )
        seen_elsewhere = each.area not in traced
        return each.weight == "warning", concluded, nodes.index(each.node), seen_elsewhere, each.by == "trace"

    fitting = (each for each in evidence if each.node in nodes and _fits(each.problem.code, cause))
    return min(fitting, key=rank, default=None)


def _fits(code: str, cause: Cause) -> bool:
    """MTUs explain sizes alone, and hairpin explains a pod's way to itself."""
    if cause.fault == "shared":
        return code == _OF_A_POD
    if cause.fault in ("narrow", "unrefused"):
        return code == "MTU-001"
    if cause.fault != "lost":
        return False
    if code == "MTU-001":
        return ("size", "mtu") in cause.traits
    if code == _HAIRPIN:
        scenarios = (BY_NAME[each.trial.scenario] for each in cause.examples)
        return all(each.where == "itself" and each.way != "inside" for each in scenarios)
    return code == _AWAY or code.partition("-")[0] in _OF_PACKETS


def concerned(causes: Sequence[Cause]) -> list[str]:
    """Return the nodes that causes name; for a cause that names none, all that it touches."""
    named = (node for cause in causes for node in cause.place.nodes or _touched(cause))
    return [node for node in dict.fromkeys(named) if node != OUTSIDE]


def _touched(cause: Cause) -> list[str]:
    """Return the nodes that it names, where its packets arrive first; then those of what it explains."""
    trials = [each.trial for each in cause.examples]
    ends = [(trial.from_node, trial.to_node, *(each.node for each in trial.behind)) for trial in trials]
    return list(dict.fromkeys(node for node in chain(reversed(cause.place.nodes), *ends) if node))
