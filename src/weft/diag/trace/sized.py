"""What is known of packets of some size that were lost, as the outcome of a trace says it. Pure."""

from typing import Final

from weft.diag.trace.outcome import Outcome
from weft.diag.trace.probes import TooLarge
from weft.model.value import Value, replace

_FILTERED: Final = "Something drops ICMP's 'fragmentation needed' (ICMPv6's 'packet too big'): let it pass"
_NARROW: Final = (
    "A link there is narrower than it says, or a firewall drops fragments: set its MTU right,"
    " or a smaller MTU in the network configuration's Backend"
)


class Sized(Value):
    """What is known of packets of `size` bytes that must not be fragmented.

    `largest` passes where these do not: 0 if not even small ones do, None if unknown. `told` is who names the sender
    which MTU; `heard` is the place that heard it where the sender did not.
    """

    size: int
    searched: bool = False
    largest: int | None = None
    told: TooLarge | None = None
    heard: str = ""

    def words(self, sender: str) -> str:
        """Say it of packets that were lost; `sender` of an answer is who answers."""
        said = f"nobody tells {sender} the MTU"
        if self.told is not None:
            by, mtu = self.told.by or "its own kernel", self.told.mtu
            said = f"{by} tells {sender} MTU {mtu}"
            if self.heard:
                said = f"at {self.heard}, {by} was seen to tell MTU {mtu}, and {sender} does not hear it"
        if not self.searched:
            return said
        sizes = "no size up to which all pass was found: chance, a rule, or a limit on answers may be why"
        if self.largest is not None:
            sizes = f"the largest that passes has {self.largest} bytes" if self.largest else "small ones are lost, too"
        return f"{said}; {sizes}"


def of_size(found: Outcome, sized: Sized, sender: str) -> Outcome:
    """The code is that of the size where that is the cause."""
    words = sized.words(sender)
    if found.well or found.problem is None:
        return found if found.well else replace(found, verdict=f"{found.verdict}; {words}")
    problem = replace(found.problem, seen=f"{found.problem.seen}; {words}")
    if sized.largest and problem.code != "MTU-001":
        seen = f"{sized.size} bytes are too large: {problem.seen}"
        problem = replace(problem, code="MTU-001", seen=seen, hint="" if sized.told else _NARROW)
    elif problem.code == "MTU-001" and sized.told is None and not problem.hint:
        problem = replace(problem, hint=_FILTERED)
    return replace(found, problem=problem, verdict=found.verdict.replace(str(found.problem), str(problem)))
