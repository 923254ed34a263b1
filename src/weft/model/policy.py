"""Policies, and what they speak of: selectors, peers, ports, namespaces, pods.

What may leave or reach a pod is asked in each direction on its own (Kubernetes' words: egress, ingress).
"""

from collections.abc import Mapping
from ipaddress import collapse_addresses
from typing import Any, Final, Literal

from weft.model.net import Ip, Net
from weft.model.value import Value

Labels = Mapping[str, str]
Direction = Literal["ingress", "egress"]
Protocol = Literal["tcp", "udp", "sctp"]
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
Tier = Literal["Admin", "Baseline"]
Action = Literal["Accept", "Deny", "Pass"]

DIRECTIONS: Final[tuple[Direction, ...]] = ("ingress", "egress")
# Where a rule has its peers, in the API's words.
PEERS_KEY: Final[dict[Direction, str]] = {"ingress": "from", "egress": "to"}
PROTOCOLS: Final[tuple[Protocol, ...]] = ("tcp", "udp", "sctp")
LAST_PORT: Final = 65535
IdKind = Literal["policy", "clusterpolicy", "namespace", "pod"]
# Of an object: its kind, its namespace (a namespace has none) and its name.
Id = tuple[IdKind, str, str]
# Their kinds in the API.
KINDS: Final[dict[IdKind, str]] = {
    "policy": "NetworkPolicy",
    "clusterpolicy": "ClusterNetworkPolicy",
    "namespace": "Namespace",
    "pod": "Pod",
}
# The label that each namespace has by itself: its name.
NAME_LABEL: Final = "kubernetes.io/metadata.name"


def name_of(thing: Id) -> str:
    """As people name it: `NetworkPolicy shop/web`, `Namespace shop`."""
    kind, namespace, name = thing
    return f"{KINDS[kind]} {f'{namespace}/' if namespace else ''}{name}"


def id_of(name: str) -> Id | None:
    """What `name_of` has named; None for what is of no such kind."""
    word, _, path = name.partition(" ")
    namespace, _, own = path.rpartition("/")
    return next(((kind, namespace, own) for kind, each in KINDS.items() if each == word), None)


class Requirement(Value, kw_only=False, gc=False):
    key: str
    operator: Operator
    values: tuple[str, ...] = ()  # sorted; of In and NotIn

    def is_met(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":  # a missing key is none of the values
            return value not in self.values
        return (value is not None) == (self.operator == "Exists")

    def __str__(self) -> str:
        """As kubectl writes it."""
        if self.operator == "Exists":
            return self.key
        if self.operator == "DoesNotExist":
            return f"!{self.key}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
        return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


class Selector(Value, kw_only=False, gc=False):
    """All requirements are to be met; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()  # sorted, so that equal selectors are equal

    def selects(self, labels: Labels) -> bool:
        for each in self.requirements:  # noqa: SIM110 - asked of each pod: twice as fast as `all`
            if not each.is_met(labels):
                return False
        return True

    def unmet(self, labels: Labels) -> Requirement | None:
        """The first requirement that these labels do not meet."""
        return next((each for each in self.requirements if not each.is_met(labels)), None)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements)) or "all"


EVERYTHING: Final = Selector()


class PodPeer(Value, gc=False):
    """Pods that `pods` selects, in the namespaces that `namespaces` selects; None is the policy's own namespace."""

    pods: Selector = EVERYTHING
    namespaces: Selector | None = None

    def __str__(self) -> str:
        if self.namespaces is None:
            return f"pods {self.pods}"
        return f"pods {self.pods} of namespaces {self.namespaces}"


class IpBlock(Value, kw_only=False, gc=False):
    net: Net
    exceptions: tuple[Net, ...] = ()  # within `net`

    def has(self, ip: Ip) -> bool:
        return ip in self.net and not any(ip in each for each in self.exceptions)

    @property
    def prefixes(self) -> tuple[Net, ...]:
        """The block less its exceptions, in as few prefixes as can be, sorted."""
        left: list[Any] = [self.net]
        for less in self.exceptions:
            left = [part for net in left for part in _without(net, less)]
        return tuple(collapse_addresses(left))

    def __str__(self) -> str:
        return f"{self.net}{' except ' if self.exceptions else ''}{', '.join(map(str, self.exceptions))}"


def _without(net: Any, less: Any) -> list[Any]:
    if not net.overlaps(less):
        return [net]
    return [] if net.subnet_of(less) else list(net.address_exclude(less))


Peer = PodPeer | IpBlock


class Port(Value, gc=False):
    """All ports of a protocol, those from `first` to `last`, or one by its name in the target's pod."""

    protocol: Protocol = "tcp"
    first: int = 0  # 0: all
    last: int = 0
    name: str = ""

    def __str__(self) -> str:
        ports = self.name or (f"{self.first}-{self.last}" if self.last > self.first else f"{self.first}")
        return f"{ports}/{self.protocol}" if self.name or self.first else f"all of {self.protocol}"


class Rule(Value, gc=False):
    """What becomes of the peers at the ports. None is each of them; what is empty means nothing.

    A NetworkPolicy has no action but Accept.
    """

    peers: tuple[Peer, ...] | None = None
    ports: tuple[Port, ...] | None = None
    action: Action = "Accept"


class Policy(Value, gc=False):
    """A NetworkPolicy. None: it does not restrict that direction. A direction without rules is shut."""

    namespace: str
    name: str
    pods: Selector  # those of its namespace that it selects
    ingress: tuple[Rule, ...] | None = None
    egress: tuple[Rule, ...] | None = None
    uid: str = ""

    def rules(self, direction: Direction) -> tuple[Rule, ...] | None:
        return self.ingress if direction == "ingress" else self.egress

    @property
    def id(self) -> Id:
        return "policy", self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClusterPolicy(Value, gc=False):
    """A ClusterNetworkPolicy. Of its tier, the rules of the least priority come first; one that fits ends the tier."""

    name: str
    tier: Tier
    priority: int
    subject: PodPeer  # whose namespaces are said
    ingress: tuple[Rule, ...] = ()
    egress: tuple[Rule, ...] = ()
    uid: str = ""

    @property
    def namespace(self) -> str:
        return ""

    def rules(self, direction: Direction) -> tuple[Rule, ...]:
        return self.ingress if direction == "ingress" else self.egress

    @property
    def order(self) -> tuple[int, str]:
        """The same on all nodes, where two have one priority."""
        return self.priority, self.name

    @property
    def id(self) -> Id:
        return "clusterpolicy", "", self.name

    def __str__(self) -> str:
        return self.name


class Namespace(Value, gc=False):
    name: str
    labels: Labels  # with the one that says its name

    @property
    def id(self) -> Id:
        return "namespace", "", self.name

    def __str__(self) -> str:
        return self.name


class NamedPort(Value, kw_only=False, gc=False):
    name: str
    protocol: Protocol
    number: int


class Pod(Value, gc=False):
    """What policies look at of a pod. It has at most one address of each family."""

    namespace: str
    name: str
    labels: Labels
    ips: tuple[Ip, ...] = ()
    ports: tuple[NamedPort, ...] = ()  # those with names
    uid: str = ""
    node: str = ""
    host_network: bool = False  # it has its node's addresses: no selector means it
    ended: bool = False  # Succeeded or Failed: its addresses may be another pod's

    @property
    def counts(self) -> bool:
        """Tell whether policies and selectors mean it."""
        return not (self.host_network or self.ended)

    @property
    def id(self) -> Id:
        return "pod", self.namespace, self.name

    def number_of(self, port: str, protocol: Protocol) -> int:
        """Of a port by its name; 0 without one."""
        named = (each.number for each in self.ports if (each.name, each.protocol) == (port, protocol))
        return next(named, 0)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ServicePort(Value, kw_only=False, gc=False):
    """`target` is its pods' port, or that port's name in them."""

    protocol: Protocol
    number: int
    target: int | str


class Service(Value, gc=False):
    """An address that leads to the pods of its namespace that it selects, or to those that have an address of `ends`.

    Without either, nothing is known of what it leads to.
    """

    namespace: str
    name: str
    selector: Labels
    ips: tuple[Ip, ...] = ()
    ports: tuple[ServicePort, ...] = ()
    ends: tuple[Ip, ...] = ()

    def leads_to(self, pod: Pod) -> bool:
        if self.ends:
            return pod.counts and not set(self.ends).isdisjoint(pod.ips)
        labels = dict(pod.labels).items()
        there = pod.namespace == self.namespace and not pod.ended
        return there and bool(self.selector) and self.selector.items() <= labels

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# What policies are decided by.
Thing = Policy | ClusterPolicy | Namespace | Pod
