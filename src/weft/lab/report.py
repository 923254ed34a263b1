"""What a lab answers: the values behind the tables, and exactly what `-o json` prints."""

from typing import Any, Final, Literal, TypeVar

import msgspec

from weft.desired.policy.refusals import Refused
from weft.diag.check.trial import EndpointReport
from weft.lab.links import Cut, Link
from weft.lab.spec import NAMESPACE, HostPort, Protocol
from weft.model.net import Family
from weft.model.node.history import EventsSince
from weft.model.node.nodestate import HealthState, NodeState
from weft.model.value import Value, field, replace

FLANNELD: Final = "flanneld"


def serves(daemon: str) -> bool:
    """Tell whether a daemon in this state, as in `NodeReport.daemon`, serves its node, as far as it can be asked."""
    return daemon in ("ready", FLANNELD)


class RefusedReport(Value):
    """What policies have refused on a node."""

    node: str
    seen: Refused


class NodeReport(Value):
    """One node. `subnets` is its lease and `mtu` the pods', both from its subnet.env, none and 0 without it.

    `daemon` is `ready` or `not ready` as it says itself, `silent` if it does not answer, `not understood` if it answers
    as another version of weft, `flanneld` if that runs in a pod, where it cannot be asked, `exited N` if it has ended,
    `none` on a bare node, which has no subnet either. `problems` are what it says is wrong; `pid` is its process number
    inside the node; `link` is what `weft lab link` has set, and `segment` the part of the underlay that the node is in.
    `program` is what serves it in the place of this weft's, or empty.
    """

    name: str
    underlay: list[str]
    subnets: list[str]
    mtu: int
    daemon: str
    problems: list[str]
    pid: int
    link: Link = Link()
    segment: int = 1
    program: str = ""


States = dict[str, NodeState | None]  # what each node's daemon says of itself; None of one that does not answer


class News(Value):
    """What happened on a node since, and what its daemon says is wrong now."""

    told: EventsSince
    health: HealthState


class NewsReport(Value):
    """The news of each node, by its name; None of one whose daemon does not answer.

    `lab` is what commands have done to the lab itself.
    """

    nodes: dict[str, News | None]
    lab: EventsSince


class PodReport(Value):
    """One pod. `netns` is the path of its network namespace as its node sees it, `host_end` the link to it.

    `ports` of its node lead to it. Policies know it by `namespace` and `labels`.
    """

    name: str
    node: str
    addresses: list[str]
    id: str
    netns: str
    host_end: str = ""
    ports: tuple[HostPort, ...] = ()
    namespace: str = NAMESPACE
    labels: dict[str, str] = field(default_factory=dict)


class ServiceReport(Value):
    """One Service: `port` of its addresses, and `node_port` of every node if it is not 0, lead to its endpoints.

    `pods` are the names and patterns (`web*`) by which its pods are chosen.
    """

    name: str
    protocol: Protocol
    addresses: list[str]
    port: int
    target_port: int
    node_port: int
    pods: list[str]
    endpoints: list[EndpointReport]


class LabReport(Value):
    """A whole lab. `network` is its net-conf as the store holds it, `store` the store's client URL.

    `store_state` is `ready`, `not ready` or `silent` as the store answers, `exited N` if it has ended.
    `cuts` are the ways that `weft lab partition` has cut. `outside` are the addresses of the lab itself, which is the
    world outside of the nodes: the place where the store is. `behind_nat` are segments whose nodes cannot be reached
    from others before they have begun. `policies` are the objects of Kubernetes that nodes
    enforce, or None; empty where Kubernetes' API has them.
    """

    name: str
    backend: str
    families: list[Family]
    store: str
    store_state: str
    network: msgspec.Raw
    nodes: list[NodeReport]
    pods: list[PodReport]
    services: list[ServiceReport] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    behind_nat: list[int] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    policies: list[dict[str, Any]] | None = None


class LinksReport(Value):
    """The link of each node, by its name, and the ways that are cut."""

    links: dict[str, Link]
    cuts: list[Cut]


class ThingReport(Value):
    """One thing that can be stopped. `state` is that of its process, as in `NodeReport.daemon`; `link` is a node's."""

    name: str
    state: str
    problems: list[str] = field(default_factory=list)
    link: Literal["up", "down"] | None = None


class TurnReport(Value):
    """What was started, stopped or killed, as it is now. `well` tells whether all that was started is ready."""

    things: list[ThingReport]
    well: bool


class Cell(Value):
    """One way that was tried: from a node or pod to an address of a pod or node.

    `seen` is the source address that the other side saw. `milliseconds` is the round trip of the probe that came
    back; `sent` counts the probes. `fault` is empty when all is well, `lost` when nothing came back, `unseen` when
    something came back that the other side never saw, and `translated` when `seen` is not an address of the source.
    Of what policies forbid, it is `forbidden` if it came back; if nothing did, that is right, and it was `refused`.
    """

    source: str
    target: str
    family: Family
    address: str
    sent: int
    fault: Literal["", "lost", "unseen", "translated", "forbidden"]
    refused: bool = False
    milliseconds: float | None = None
    seen: str = ""


class PingReport(Value):
    """All cells that a ping or a pingall tried."""

    tried: int
    reached: int
    cells: list[Cell]


class ThroughputReport(Value):
    """What iperf3 measured from one node or pod to another: what arrived, in Gbit/s, within so many seconds.

    `retransmits` are segments of TCP that were sent again; `packets` and `lost` are datagrams of UDP. The others' are
    None.
    """

    source: str
    target: str
    address: str
    protocol: Literal["TCP", "UDP"]
    seconds: float
    gbits: float
    retransmits: int | None = None
    packets: int | None = None
    lost: int | None = None


class Carried(Value):
    """What a node's uplink or a pod sends and receives in a second; `lost` are packets that its link could not carry.

    Of a pod, `node` is where it runs. `id` tells it from an earlier one of its name.
    """

    name: str
    node: str = ""
    id: str = ""
    sent_bytes: float
    sent_packets: float
    received_bytes: float
    received_packets: float
    lost: float


class WayReport(Value):
    """What goes from one node to another by the switch in a second; `lost` is what the lab's losses and cuts take."""

    source: str
    target: str
    bytes: float
    packets: float
    lost: float


class TrafficReport(Value):
    """What nodes, pods and ways between nodes carry: bytes and packets in each second, measured over `seconds` seconds.

    A way that carried nothing is left out.
    """

    # The supervisor's own answer has what was counted until the moment `seconds`; two of them make the rates.
    seconds: float
    nodes: list[Carried]
    pods: list[Carried]
    ways: list[WayReport]


class Nothing(Value):
    """It is done, and there is nothing to tell."""


T = TypeVar("T", Carried, WayReport)

_CARRIED = ("sent_bytes", "sent_packets", "received_bytes", "received_packets", "lost")
_WAY = ("bytes", "packets", "lost")


def rates(before: TrafficReport, now: TrafficReport) -> TrafficReport:
    """Return what was carried in each second since an earlier reading.

    A counter that started again at zero counts from there, and so does that of a pod that came since.
    """
    seconds = max(now.seconds - before.seconds, 1e-3)
    places = {(each.name, each.id): each for each in (*before.nodes, *before.pods)}
    ways = {(each.source, each.target): each for each in before.ways}
    moved = [_rate(ways.get((each.source, each.target)), each, _WAY, seconds) for each in now.ways]
    return TrafficReport(
        seconds=round(seconds, 3),
        nodes=[_rate(places.get((each.name, each.id)), each, _CARRIED, seconds) for each in now.nodes],
        pods=[_rate(places.get((each.name, each.id)), each, _CARRIED, seconds) for each in now.pods],
        ways=[each for each in moved if each.packets or each.lost],
    )


def _rate(before: T | None, now: T, fields: tuple[str, ...], seconds: float) -> T:
    changed = {}
    for name in fields:
        count = getattr(now, name)
        since = count - getattr(before, name, 0)
        changed[name] = round((since if since >= 0 else count) / seconds, 1)
    return replace(now, **changed)
