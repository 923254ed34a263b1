"""What a node's daemon says of itself: one value, and exactly what `weft status -o json` prints.

It reads the same for people and programs: addresses and objects as text, times in seconds. A daemon of
another version may leave out what is new and add what is not known here.
"""

from bisect import bisect_left
from typing import Final

from weft.model.errors import Problem
from weft.model.value import Value, field

# Seconds; what takes longer than the last counts behind it. A plugin waits 20 seconds for a daemon.
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)


class Durations(Value, frozen=False):
    """How long things took.

    `counts` are how many took up to 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 and 20 seconds, each
    without those before it, and how many took longer. `total` is the sum of all in seconds.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Durations":
        return Durations(counts=list(self.counts), total=self.total)


class NetworkState(Value):
    """The cluster's network, and how packets travel in it. `mtu` is that of pods, in bytes.

    `config` is a digest of the network configuration, equal on nodes that have the same one.
    """

    networks: list[str]
    backend: str
    mtu: int
    devices: list[str]
    config: str = ""


class UplinkState(Value):
    """The link that carries traffic between nodes, our addresses on it, and why it was chosen."""

    name: str
    index: int
    mtu: int
    addresses: list[str]
    why: str


class LeaseState(Value):
    """Our lease. `confirmed` says whether the store has said so in this run; `public` is what peers dial.

    `seconds` is how long it still lasts if nothing renews it, None without an end.
    """

    id: str
    subnets: list[str]
    public: list[str]
    confirmed: bool
    seconds: float | None = None


class PeerState(Value):
    """Another node whose lease is believed. `lacks` are its objects that are not as wanted, and why: a refusal's words.

    `trouble` is why nothing can be made of its lease, `doubt` why it is served by what it said before. `seconds` is how
    long it has been so. Where the back end counts for each peer, `sent` and `received` are packets, `sent_bytes` and
    `received_bytes` bytes, and `heard` is how many seconds ago the peer was heard of.
    """

    id: str
    subnets: list[str]
    public: list[str]
    backend: str
    lacks: list[str] = field(default_factory=list)
    trouble: Problem | None = None
    doubt: Problem | None = None
    seconds: float | None = None
    sent: int | None = None
    received: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    heard: float | None = None


class RefusedState(Value):
    """A lease that is not believed, why, and for how long."""

    id: str
    trouble: Problem
    subnets: list[str] = field(default_factory=list)
    public: list[str] = field(default_factory=list)
    backend: str = ""
    seconds: float | None = None


class LoopState(Value):
    """A plane's loop: its rounds, what it put back by code, what no notice announced, and what is refused now.

    `lately` is at how many moments of the last ten minutes it put something back, by code. `counts` are numbers that
    the plane alone knows, by their names: packets of the relay. `took` is how long it was from the store's word of
    a peer until the kernel had it.
    """

    rounds: int
    repairs: dict[str, int]
    unannounced: int
    failing: dict[str, str]
    counts: dict[str, int] = field(default_factory=dict)
    lately: dict[str, int] = field(default_factory=dict)
    took: Durations = field(default_factory=Durations)


class RequestState(Value):
    """What was asked of the store with one verb and had one answer (`list 200`), and the bytes that came for it."""

    count: int
    received: int


class CallState(Value):
    """Calls of a plugin with one command (`bridge ADD`), and how long the latest took, in milliseconds."""

    count: int
    failed: int
    median_ms: float
    worst_ms: float


class HealthState(Value):
    """What a node's daemon says is wrong: of `parts`, `losses` and `store` as in `NodeState`, and no more of it."""

    ready: bool
    parts: dict[str, Problem | None]
    losses: dict[str, Problem]
    store: Problem | None

    @property
    def troubles(self) -> dict[str, Problem]:
        of = {**self.parts, **self.losses, "store": self.store}
        return {name: problem for name, problem in of.items() if problem is not None}


class NodeState(Value):
    """The whole of it. `parts` are what readiness is made of, with what is wrong of each now, None if nothing is.

    `losses` are what some pods have lost, `findings` what ails the rest of the node. `seconds` is how long the daemon
    has run. What is not known yet, because the daemon waits for it, is None. `versions` are of the programs that the
    daemon rests on, by name. `took` is how long plugins' calls took, by plugin and command, once it was their turn, and
    `waited` how long it was until then. `heard` is how many seconds ago the store said anything.
    """

    version: str
    instance: str
    pid: int
    seconds: float
    ready: bool
    parts: dict[str, Problem | None]
    losses: dict[str, Problem]
    store: Problem | None
    faults: int
    network: NetworkState | None = None
    uplink: UplinkState | None = None
    lease: LeaseState | None = None
    peers: list[PeerState] = field(default_factory=list)
    refused: list[RefusedState] = field(default_factory=list)
    loops: dict[str, LoopState] = field(default_factory=dict)
    calls: dict[str, CallState] = field(default_factory=dict)
    requests: dict[str, RequestState] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    findings: list[Problem] = field(default_factory=list)
    took: dict[str, Durations] = field(default_factory=dict)
    waited: Durations = field(default_factory=Durations)
    heard: float | None = None
