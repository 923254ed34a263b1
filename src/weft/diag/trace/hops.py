"""What a packet passes on one node, step by step, and how that ends."""

from typing import Final, Literal

from weft.model.errors import Problem
from weft.model.value import Value

OUTSIDE: Final = "outside"  # the place around all nodes: in a lab, the switch to which they are joined
NAT_ON_LEAVING: Final = "NAT at postrouting"
End = Literal["delivered", "sent", "dropped", "undecided", "lost"]


class Hop(Value):
    """One step: `what` was asked, and `seen` the row that decided. `passes` is None where that can't be told.

    At a `device` the packet itself can be seen. `others` are addresses that chance may choose in the place of the one
    that `seen` names. `reached` is false where probes were sent and none came so far; `passes` is what was
    predicted. `suspect` is the likely cause if packets turn out to be lost here.
    """

    what: str
    seen: str
    passes: bool | None = True
    device: str = ""
    others: tuple[str, ...] = ()
    reached: bool = True
    suspect: Problem | None = None


class Addressed(Value):
    """A packet's addresses, and its ports if it has any."""

    source: str
    target: str
    source_port: int = 0
    target_port: int = 0


class Way(Value):
    """The hops on one node. A packet that was `sent` goes `to` another node's address, inside `carried` if wrapped.

    `packet` is how it leaves, behind NAT. One that was dropped has a problem. It is `lost` if probes
    were sent and none came to the end.
    """

    hops: tuple[Hop, ...]
    end: End
    to: str = ""
    carried: str = ""
    problem: Problem | None = None
    packet: Addressed | None = None
