"""What a check tries: the demands and problems of Kubernetes' network model, scenarios for them, and their trials.

The model is that of kubernetes.io/docs/concepts/services-networking and .../cluster-administration/networking.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from weft.diag.check.trial import Protocol, Trial
from weft.model.net import Family
from weft.model.value import Value

Demand = Literal["own-address", "no-nat", "agents", "same-address"]
Concern = Literal["container-to-container", "pod-to-pod", "pod-to-service", "external-to-service"]
Way = Literal["inside", "overlay", "underlay", "service", "host-port"]

DEMANDS: Final[dict[Demand, str]] = {
    "own-address": "every pod has its own address",
    "no-nat": "pods reach pods on all nodes without NAT",
    "agents": "agents on a node reach the pods of that node",
    "same-address": "a pod sees itself under the address that others see",
}
CONCERNS: Final[dict[Concern, str]] = {
    "container-to-container": "container to container",
    "pod-to-pod": "pod to pod",
    "pod-to-service": "pod to Service",
    "external-to-service": "external to Service",
}
_ALL: Final[tuple[Protocol, ...]] = ("icmp", "udp", "tcp")

_LOOPBACK: Final[dict[Family, str]] = {4: "127.0.0.1", 6: "::1"}


class Scenario(Value, kw_only=False):
    """A kind of trial: from each `source` to each `target` that is `where`.

    `itself` is the source at its own address, `loopback` at 127.0.0.1 or ::1. A target may be a Service's address, each
    node's port that leads to a Service, or the port of a pod's node that leads to the pod: the protocol is that port's
    then, `itself` a source that is behind it, and the source may be outside of all nodes. A `peer` is another node's
    own device in the pod network.

    `way` is how the packets go. `size` is the MTU of pods, or one byte more, which is to be refused. `full` ones are
    not part of a quick check.
    """

    name: str
    about: str
    where: Literal["loopback", "itself", "same", "other", "any"]
    way: Way
    concern: Concern = "pod-to-pod"
    source: Literal["pod", "node", "outside"] = "pod"
    target: Literal["pod", "node", "peer", "service", "node-port", "host-port"] = "pod"
    demands: tuple[Demand, ...] = ()
    protocols: tuple[Protocol, ...] = _ALL
    size: Literal["any", "mtu", "more"] = "any"
    flows: int = 1
    full: bool = False

    @property
    def forbids_nat(self) -> bool:
        """True if another source address breaks one of its demands."""
        return bool({"no-nat", "same-address"} & set(self.demands))

    @property
    def between_ends(self) -> bool:
        """The packet leaves its source for a node or pod that is known beforehand."""
        return self.where in ("same", "other")


SCENARIOS: Final = (
    Scenario(
        "pod-loopback",
        "a pod to itself at the loopback address, as its containers reach each other",
        "loopback",
        "inside",
        concern="container-to-container",
    ),
    Scenario(
        "pod-itself",
        "a pod to its own address, which no other pod has",
        "itself",
        "inside",
        concern="container-to-container",
        demands=("own-address",),
    ),
    Scenario("pod-pod-same", "a pod to a pod of the same node", "same", "inside", demands=("no-nat", "same-address")),
    Scenario("pod-pod-other", "a pod to a pod of another node", "other", "overlay", demands=("no-nat", "same-address")),
    Scenario(
        "pod-pod-mtu",
        "the same with datagrams of the pods' MTU, not to be fragmented",
        "other",
        "overlay",
        demands=("no-nat",),
        protocols=("udp",),
        size="mtu",
    ),
    Scenario(
        "pod-pod-more",
        "one byte too large: the sender must be told the MTU",
        "other",
        "overlay",
        protocols=("udp",),
        size="more",
    ),
    Scenario(
        "pod-pod-many",
        "32 flows at once from a pod to a pod of another node",
        "other",
        "overlay",
        demands=("no-nat",),
        protocols=("udp", "tcp"),
        flows=32,
        full=True,
    ),
    Scenario("node-pod-same", "a node to a pod of its own", "same", "inside", source="node", demands=("agents",)),
    Scenario("node-pod-other", "a node to a pod of another node", "other", "overlay", source="node"),
    Scenario("pod-node-same", "a pod to its node", "same", "inside", target="node"),
    Scenario("pod-node-other", "a pod to another node", "other", "underlay", target="node"),
    Scenario(
        "node-node", "a node to another node, below the pod network", "other", "underlay", source="node", target="node"
    ),
    Scenario("pod-peer", "a pod to another node's device in the pod network", "other", "overlay", target="peer"),
    Scenario(
        "pod-peer-mtu",
        "the same with packets of the pods' MTU, not to be fragmented",
        "other",
        "overlay",
        target="peer",
        protocols=("icmp",),
        size="mtu",
    ),
    Scenario(
        "node-peer",
        "a node to another node's device in the pod network",
        "other",
        "overlay",
        source="node",
        target="peer",
    ),
    Scenario("pod-service", "a pod to a Service", "any", "service", concern="pod-to-service", target="service"),
    Scenario(
        "pod-service-own",
        "16 flows at once from a pod to a Service that leads to the pod itself, too",
        "itself",
        "service",
        concern="pod-to-service",
        target="service",
        flows=16,
    ),
    Scenario(
        "node-service",
        "a node to a Service",
        "any",
        "service",
        concern="pod-to-service",
        source="node",
        target="service",
    ),
    Scenario(
        "pod-node-port",
        "a pod to a port of a node that leads to a Service",
        "any",
        "service",
        concern="pod-to-service",
        target="node-port",
    ),
    Scenario(
        "outside-node-port",
        "from outside of all nodes to a port of a node that leads to a Service",
        "any",
        "service",
        concern="external-to-service",
        source="outside",
        target="node-port",
    ),
    Scenario(
        "pod-host-port", "a pod to a port of a node that leads to a pod there", "any", "host-port", target="host-port"
    ),
    Scenario(
        "pod-host-port-own",
        "a pod to a port of its node that leads to the pod itself",
        "itself",
        "host-port",
        target="host-port",
    ),
    Scenario(
        "outside-host-port",
        "from outside of all nodes to a port of a node that leads to a pod there",
        "any",
        "host-port",
        source="outside",
        target="host-port",
    ),
)
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}


class End(Value):
    """A node or a pod. `mtu` is that of the pods of its node; `number` counts the pods of a node from 0.

    `bridge` is the index of the one in whose network a pod is. A `peer` is another node by the address of its device in
    the pod network. What is `afar` is another machine, which answers echo requests alone.
    """

    kind: Literal["pod", "node", "peer", "outside"]
    name: str
    node: str
    addresses: dict[Family, str]
    mtu: int
    number: int = 0
    afar: bool = False
    bridge: int = 0


def trials_of(scenario: Scenario, pairs: Iterable[tuple[End, End]], families: Sequence[Family]) -> Iterator[Trial]:
    """They go from the first to the second of each pair, in each family that both have."""
    for source, target in pairs:
        mtu = min(source.mtu, target.mtu)
        for family in families:
            address = _LOOPBACK[family] if scenario.where == "loopback" else target.addresses.get(family, "")
            if not address or family not in source.addresses:
                continue
            for protocol in ("icmp",) if target.afar else scenario.protocols:
                yield Trial(
                    scenario=scenario.name,
                    source=source.name,
                    target=target.name,
                    from_node=source.node,
                    to_node=target.node,
                    family=family,
                    protocol=protocol,
                    address=address,
                    size={"any": 0, "mtu": mtu, "more": mtu + 1}[scenario.size],
                    flows=scenario.flows,
                    afar=target.afar,
                )
