"""A trial, one cell of a check's matrix, and what became of it."""

from typing import Final, Literal

from weft.model.net import Family
from weft.model.value import Value

Protocol = Literal["icmp", "udp", "tcp"]
Fault = Literal["", "lost", "narrow", "unseen", "translated", "unrefused", "shared", "forbidden"]
FAULTS: Final[tuple[Fault, ...]] = ("lost", "narrow", "unseen", "translated", "unrefused", "shared", "forbidden")


class EndpointReport(Value):
    """A pod behind a Service, by one of its addresses."""

    pod: str
    node: str
    address: str


class Trial(Value):
    """From a node or pod, `source`, to an `address` of another, `target`.

    One to a Service's address, or to a node's that leads to a Service, has a `port`; the pods `behind` listen at port
    `listens`. A Service is on no node, and `to_node` is empty. `size` is that of an IP packet that must not be
    fragmented, in bytes; 0 where it does not matter. `flows` are sent at once. A target `afar` is another machine,
    whose kernel answers and where nothing is seen; the `scenario` is one of `scenarios.SCENARIOS`. What policies have
    `forbidden` is to be lost; None: it depends on the way that it takes.
    """

    scenario: str
    source: str
    target: str
    from_node: str
    to_node: str
    family: Family
    protocol: Protocol
    address: str
    size: int = 0
    flows: int = 1
    port: int = 0
    listens: int = 0
    behind: tuple[EndpointReport, ...] = ()
    afar: bool = False
    forbidden: bool | None = False

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target


class Outcome(Value):
    """What came of a trial: how many of its flows were `answered`.

    `own` is the address that the source took for its own, `seen` the one that the target saw, empty if nothing arrived;
    `at` is where it arrived, which of a Service is one of several pods. With `theirs` a program of a pod's own answers,
    and what it saw is not known. `refused` is the MTU in bytes that an error named, and `by` whose error it was, empty
    for the source's own kernel. `error` is what the source's kernel said, if it said something else. `port` is the one
    it went to, 0 of ICMP.
    """

    answered: int
    own: str = ""
    seen: str = ""
    at: str = ""
    theirs: bool = False
    refused: int = 0
    by: str = ""
    error: str = ""
    port: int = 0


class Tried(Value):
    """A trial that was judged. `fault` is empty when all is as it should be.

    `lost`: not every flow was answered. `narrow`: a packet of the pods' MTU was refused with a smaller one. `unseen`:
    something answered, and not the target. `translated`: the target saw another address than the source's. `unrefused`:
    a packet that was too large was not refused with the MTU of pods. `shared`: another pod has the address, too.
    `forbidden`: it arrived, and policies forbid it.
    """

    trial: Trial
    outcome: Outcome
    fault: Fault = ""
