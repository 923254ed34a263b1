"""What the policies of a lab say of a check's trials, of pings, and of its pods. Pure.

A packet to a Service may be judged at more than one place: by the target that was chosen for it, and behind a node's
port by the address of that node, or as that node's. Where these differ it may arrive or not.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from itertools import product
from typing import Final

import yaml

from weft.desired.policy.judge import is_subject, judged
from weft.desired.policy.preview import world_of
from weft.desired.policy.verdict import Asked, World
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import EndpointReport, Outcome, Trial
from weft.lab.manifests import listed, of_pod
from weft.lab.network import understand
from weft.lab.report import Cell, LabReport, NodeReport, PingReport, ServiceReport
from weft.lab.spec import NAMESPACE
from weft.lab.trials import by_family
from weft.model.policy import Pod, Protocol, Service, ServicePort
from weft.model.value import replace
from weft.wire.policyobjects import read_objects

_EGRESS: Final = 0  # the sides of a verdict, in their order
_INGRESS: Final = 1


def world(report: LabReport) -> World:
    pods = [
        of_pod(pod.name, pod.namespace, pod.node, pod.labels, list(by_family(pod.addresses).values()))
        for pod in report.pods
    ]
    found = read_objects({report.name: yaml.safe_dump(listed([*(report.policies or ()), *pods]))})
    network = understand(bytes(report.network).decode())
    services = tuple(map(_service, report.services))
    return replace(
        world_of(found.things), services=services, networks=network.networks, subnet_lens=network.subnet_lens
    )


def _service(found: ServiceReport) -> Service:
    """A lab's Services have no namespace; they are taken for those of `lab`."""
    protocol: Protocol = "udp" if found.protocol == "UDP" else "tcp"
    return Service(
        namespace=NAMESPACE,
        name=found.name,
        selector={},
        ips=tuple(map(ip_address, found.addresses)),
        ports=(ServicePort(protocol, found.port, found.target_port),),
        ends=tuple(ip_address(each.address) for each in found.endpoints),
    )


def selected(known: World) -> dict[str, list[Pod]]:
    """The pods that each policy selects, by its kind and name."""
    found = {
        f"NetworkPolicy {policy}": [
            pod for pod in known.pods if pod.namespace == policy.namespace and policy.pods.selects(pod.labels)
        ]
        for policy in known.policies
    }
    for each in known.cluster:
        found[f"ClusterNetworkPolicy {each}"] = [pod for pod in known.pods if is_subject(each.subject, pod, known)]
    return found


def marked(trials: Sequence[Trial], outcomes: Sequence[Outcome], report: LabReport) -> list[Trial]:
    """Each trial with what policies say of it, by the port that it went to."""
    judge = _Judge(report)
    return [
        replace(trial, forbidden=judge.forbids(trial, trial.listens or outcome.port))
        for trial, outcome in zip(trials, outcomes, strict=True)
    ]


def pinged(found: PingReport, report: LabReport) -> PingReport:
    """What was to be lost is right if it was, and a fault if it was not."""
    judge = _Judge(report)
    cells = [_as_meant(cell) if judge.forbids_ping(cell) else cell for cell in found.cells]
    return replace(found, cells=cells, reached=sum(not (cell.fault or cell.refused) for cell in cells))


def _as_meant(cell: Cell) -> Cell:
    return replace(cell, fault="", refused=True) if cell.fault == "lost" else replace(cell, fault="forbidden")


class _Judge:
    def __init__(self, report: LabReport) -> None:
        self._world = world(report)
        self._pods = {pod.name: by_family(pod.addresses) for pod in report.pods}
        self._nodes = {node.name: _addresses(node) for node in report.nodes}
        self._node_of = {pod.name: pod.node for pod in report.pods} | {node.name: node.name for node in report.nodes}
        self._outside = report.outside

    def forbids(self, trial: Trial, port: int) -> bool | None:
        scenario = BY_NAME[trial.scenario]
        if scenario.way == "inside" and scenario.where != "same":
            return False  # it never leaves the pod
        itself = EndpointReport(pod=trial.target, node=trial.to_node, address=trial.address)
        by_door = scenario.target in ("node-port", "host-port")
        found = set[bool]()
        for end in trial.behind or (itself,):
            leaves = {self._leaves(trial, end.address, port)}
            if by_door:
                leaves.add(self._leaves(trial, trial.address, trial.port))
            masked = self._nodes[trial.to_node] if by_door and trial.to_node != end.node else []
            enters = {self._enters(trial, sender, end, port) for sender in (*self._senders(trial), *masked)}
            found |= {out and into for out, into in product(leaves, enters)}
        return not found.pop() if len(found) == 1 else None

    def forbids_ping(self, cell: Cell) -> bool:
        """Whichever of its addresses a node sends from."""
        here, there = self._node_of[cell.source], self._node_of[cell.target]
        if cell.address in self._nodes[here]:
            return False
        own = self._pods.get(cell.source)
        senders = self._nodes[here] if own is None else [own[cell.family]]
        leaves = own is None or self._side(_EGRESS, "icmp", senders[0], cell.address)
        enters = cell.target == there or any(
            each in self._nodes[there] or self._side(_INGRESS, "icmp", each, cell.address)
            for each in senders
            if ip_address(each).version == cell.family
        )
        return not (leaves and enters)

    def _senders(self, trial: Trial) -> Iterable[str]:
        """The addresses that it may come from."""
        source = BY_NAME[trial.scenario].source
        if source == "pod":
            return [self._pods[trial.source][trial.family]]
        senders = self._outside if source == "outside" else self._nodes[trial.source]
        return [each for each in senders if ip_address(each).version == trial.family]

    def _leaves(self, trial: Trial, address: str, port: int) -> bool:
        if BY_NAME[trial.scenario].source != "pod" or address in self._nodes[trial.from_node]:
            return True
        return self._side(_EGRESS, trial.protocol, self._pods[trial.source][trial.family], address, port)

    def _enters(self, trial: Trial, sender: str, end: EndpointReport, port: int) -> bool:
        """Its own node reaches a pod, whatever the policies."""
        return sender in self._nodes[end.node] or self._side(_INGRESS, trial.protocol, sender, end.address, port)

    def _side(self, side: int, protocol: str, sender: str, address: str, port: int = 0) -> bool:
        source, target = (self._world.at(ip_address(each)) for each in (sender, address))
        asked = Asked(source=source, target=target, protocol=protocol, port=port)
        return judged(asked, self._world).sides[side].allowed


def _addresses(node: NodeReport) -> list[str]:
    """Those that it may send from: in the underlay, and its device's and its bridge's in its subnet."""
    nets = [ip_network(each) for each in node.subnets]
    return [*node.underlay, *(str(net[place]) for net in nets for place in (0, 1))]
