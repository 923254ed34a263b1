"""What a flow is judged by, and what is said of it."""

from weft.model.net import FAMILIES, Ip, Net
from weft.model.node.nodestate import PolicyEffect
from weft.model.policy import Action, ClusterPolicy, Direction, Namespace, Pod, Policy, Service
from weft.model.value import Value, field


class World(Value):
    """All that policies are judged by. Without networks, an address is a pod's if a pod that is known has it."""

    namespaces: dict[str, Namespace]
    pods: tuple[Pod, ...]
    policies: tuple[Policy, ...]
    cluster: tuple[ClusterPolicy, ...] = ()
    services: tuple[Service, ...] = ()
    networks: tuple[Net, ...] = ()
    subnet_lens: dict[int, int] = field(default_factory=dict)

    def at(self, ip: Ip) -> "End":
        return End(pod=next((pod for pod in self.pods if pod.counts and ip in pod.ips), None), ip=ip)


class End(Value):
    """One end of a flow: a pod, whose address need not be known, or an address that no pod is known to have.

    With `outside`, the address stands for everybody outside the cluster.
    """

    pod: Pod | None = None
    ip: Ip | None = None
    outside: bool = False

    def __str__(self) -> str:
        if self.outside:
            return f"outside ({self.ip})"
        return str(self.ip if self.pod is None else self.pod)


def between(source: Pod, target: Pod) -> tuple[End, End]:
    """The ends of a flow by the first family in which both have addresses."""
    for version in FAMILIES:
        ips = [next((ip for ip in pod.ips if ip.version == version), None) for pod in (source, target)]
        if None not in ips:
            return End(pod=source, ip=ips[0]), End(pod=target, ip=ips[1])
    return End(pod=source), End(pod=target)


class RuleVerdict(Value):
    """`why` says what fits, or what does not. Of a tier, rules behind the one that ends it are not asked."""

    path: str
    fits: bool
    action: Action
    why: tuple[str, ...]


class PolicyVerdict(Value):
    """`tier` is empty for a NetworkPolicy."""

    policy: str
    rules: tuple[RuleVerdict, ...]
    tier: str = ""


class Side(Value):
    """What the policies of one end say. `change` is the smallest that would allow what is refused."""

    direction: Direction
    pod: str
    allowed: bool
    reason: str
    policies: tuple[PolicyVerdict, ...] = ()
    change: str = ""


class Verdict(Value):
    """`effect` is that of this node's weftd, which may still be behind what was judged."""

    source: str
    target: str
    protocol: str
    port: int
    allowed: bool
    sides: tuple[Side, ...]  # egress first
    effect: PolicyEffect | None = None


class ServiceVerdict(Value):
    """The verdicts for each pod of a Service; it is `allowed` if all of them are."""

    service: str
    allowed: bool
    verdicts: tuple[Verdict, ...]
    effect: PolicyEffect | None = None


class Asked(Value):
    """A flow between two ends; `protocol` in small letters, without a port for what has none."""

    source: End
    target: End
    protocol: str
    port: int = 0
