"""A daemon's state and plan as values, which `weft status` and `weft plan` print as JSON, and its faults in words.

Addresses and objects are text, times are seconds. Daemons of other versions may lack keys, or have more.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Literal

from weft.model.errors import Problem
from weft.model.node.meshstate import MeshState
from weft.model.text import shortly
from weft.model.value import Value, field

# Seconds; what takes longer than the last counts behind it. A plugin waits 20 seconds for a daemon.
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
_NAMED: Final = 10  # peers that lack something, and leases that are refused, one by one


class Durations(Value, frozen=False):
    """`counts` are those up to 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 and 20 seconds, and longer.

    `total` is the sum in seconds.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Durations":
        return Durations(counts=list(self.counts), total=self.total)


class PolicyEffect(Value):
    """Since when a node has policies in effect as it knows them, in seconds since 1970; None before.

    With `found` they were in the kernel already when weftd saw it first, which `since` then says. `changing` are those
    of which the latest change is not in effect: until it is, what was in effect before stays so.
    """

    since: float | None = None
    found: bool = False
    changing: tuple[str, ...] = ()


class PoliciesTold(Value):
    """What a daemon says of objects that it is asked about by name (`NetworkPolicy shop/web`).

    `forms` are those that it knows (`wire.kubepolicy.form_of`); `settled`: all that it knows is in effect. `unenforced`
    are the other nodes that do not say that they enforce policies. `files` is where it reads them, without an API.
    """

    effect: PolicyEffect
    settled: bool
    forms: dict[str, str] = field(default_factory=dict)
    unenforced: tuple[str, ...] = ()
    files: str = ""


class PolicyState(Value):
    """Policies that are in effect on a node, and what they cost. `isolated` counts pods, by direction.

    `unknown` are attachments whose pod is not known. `transactions` are those that change elements and
    take away what nothing leads to, `waited` is how long ADD waited for a pod's policies, `cut` counts open connections
    that were ended, and `age` is for how many seconds what was read may have been out of date.
    """

    mode: Literal["enforce", "audit"]
    policies: int
    pods: int
    unknown: int
    isolated: dict[str, int]
    elements: int
    transactions: Durations
    waited: Durations
    cut: int
    age: float
    effect: PolicyEffect = field(default_factory=PolicyEffect)


class NetworkState(Value):
    """`mtu` is that of pods. `config` is a digest of the network configuration, equal on nodes with the same one."""

    networks: list[str]
    backend: str
    mtu: int
    devices: list[str]
    config: str = ""


class UplinkState(Value):
    """The link that carries traffic between nodes."""

    name: str
    index: int
    mtu: int
    addresses: list[str]
    why: str


class LeaseState(Value):
    """Our lease. `confirmed`: the store has said so in this run. `public` is what peers dial.

    `seconds` is how long it lasts unless it is renewed; None without an end.
    """

    id: str
    subnets: list[str]
    public: list[str]
    confirmed: bool
    seconds: float | None = None


class PeerState(Value):
    """Another node whose lease is believed. `lacks` are the objects that are not in the kernel as wanted, and why.

    `trouble` is why its lease cannot be served, `doubt` why an earlier lease is served instead; `seconds` says since
    when. Some back ends count for each peer: `sent` and `received` are packets, `sent_bytes` and `received_bytes`
    bytes, and `heard` is how many seconds ago the peer was heard of. In a mesh `way` says how it is reached, and why
    not better (`via node2: port-filtered`), and `public` is where that way leads.
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
    way: str = ""


class RefusedState(Value):
    """A lease that is not believed."""

    id: str
    trouble: Problem
    subnets: list[str] = field(default_factory=list)
    public: list[str] = field(default_factory=list)
    backend: str = ""
    seconds: float | None = None


class LoopState(Value):
    """The loop of a plane. `repairs` counts by code, `unannounced` those without a notice; `failing` is refused now.

    `lately` counts, by code, the moments of the last ten minutes at which something was repaired. `counts` are the
    plane's own, such as packets of the relay. `took` is the time from the store's event to the kernel's
    acknowledgement.
    """

    rounds: int
    repairs: dict[str, int]
    unannounced: int
    failing: dict[str, str]
    counts: dict[str, int] = field(default_factory=dict)
    lately: dict[str, int] = field(default_factory=dict)
    took: Durations = field(default_factory=Durations)


class RequestState(Value):
    """Requests to the store with one verb and one answer (`list 200`); `received` is in bytes."""

    count: int
    received: int


class CallState(Value):
    """Calls of a plugin with one command (`bridge ADD`); times are those of the latest calls, in milliseconds."""

    count: int
    failed: int
    median_ms: float
    worst_ms: float


class HealthState(Value):
    """What is wrong, a part of `NodeState`."""

    ready: bool
    parts: dict[str, Problem | None] = field(default_factory=dict)
    losses: dict[str, Problem] = field(default_factory=dict)
    store: Problem | None = None

    @property
    def troubles(self) -> dict[str, Problem]:
        of = {**self.parts, **self.losses, "store": self.store}
        return {name: problem for name, problem in of.items() if problem is not None}


class NodeState(Value):
    """A daemon's whole state. What it does not know yet is None.

    `parts` are what readiness depends on, each with its fault or None. `losses` are what some pods have lost,
    `findings` are faults of the rest of the node. `versions` are those of programs that the daemon needs. `took` is how
    long plugins' calls took, by plugin and command, after they had `waited`, both in seconds. `heard` is how many
    seconds ago the store said anything. `mesh` is what a weftd with --mesh knows of that. `policies` is when the files
    were written whose policies are in effect, in seconds since 1970.
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
    mesh: MeshState | None = None
    policies: float | None = None
    policy: PolicyState | None = None


class Planned(Value):
    """A step that was not done: `put` or `delete`, the kind of its object, both as one line, and why."""

    do: str
    kind: str
    text: str
    why: str


class Plan(Value):
    """`notes` say what it rests on, `problems` what is wrong with it."""

    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    steps: tuple[Planned, ...] = ()


class PlanAnswer(Value):
    """What a daemon answers who asks for its plan; `unable` says why there is none now."""

    plan: Plan | None = None
    unable: tuple[Problem, ...] = ()


def wrong(state: NodeState) -> Iterator[str]:
    """The faults, the worst first: readiness, the store, pods' losses, the node itself, peers, refused leases."""
    yield from (f"{name}: {problem}" for name, problem in state.parts.items() if problem is not None)
    if state.store is not None:
        yield f"store: {state.store}"
    yield from (f"{name}: {problem}" for name, problem in state.losses.items())
    yield from map(str, state.findings)
    lacking = [(f"peer {peer.id}{_for(peer)}", peer.trouble or "; ".join(peer.lacks)) for peer in ailing_peers(state)]
    yield from _some([f"{peer}: {words}" for peer, words in lacking])
    doubted = [f"peer {peer.id}, served by what it said before: {peer.doubt}" for peer in state.peers if peer.doubt]
    yield from _some(doubted)
    yield from _some([f"refused{_for(refused)}: {refused.trouble}" for refused in state.refused])


def ailing_peers(state: NodeState) -> list[PeerState]:
    return [peer for peer in state.peers if peer.lacks or peer.trouble]


def _for(peer: PeerState | RefusedState) -> str:
    return "" if peer.seconds is None else f" for {shortly(peer.seconds)}"


def _some(said: list[str]) -> Iterator[str]:
    yield from said[:_NAMED]
    if len(said) > _NAMED:
        yield f"and {len(said) - _NAMED} more like that; -o json names them all"
