"""Checks of labs that are only imagined: a report, and a network in which some trips of trials are lost."""

from collections.abc import Callable, Sequence

import msgspec

from weft.diag.check.judging import judged
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import EndpointReport, Outcome, Trial, Tried
from weft.lab.report import LabReport, NodeReport, PodReport, ServiceReport
from weft.lab.trials import trials
from weft.model.net import Family
from weft.model.value import Value

MTU = 1450


class Sent(Value):
    """A packet of a trial on its way from one node to another, or `back` the answer to it."""

    trial: Trial
    start: str
    end: str
    back: bool = False

    @property
    def crosses(self) -> bool:
        return self.start != self.end

    @property
    def way(self) -> str:
        return BY_NAME[self.trial.scenario].way


def service(report: LabReport, *pods: str, **fields: object) -> ServiceReport:
    """A Service `web` that leads to pods of a lab."""
    chosen = [pod for pod in report.pods if pod.name in pods]
    endpoints = [
        EndpointReport(pod=pod.name, node=pod.node, address=address.partition("/")[0])
        for pod in chosen
        for address in pod.addresses
    ]
    addresses = ["10.96.0.11" if family == 4 else "fd31:96::b" for family in report.families]
    given = {"name": "web", "protocol": "TCP", "port": 80, "target_port": 8080, "node_port": 30080} | fields
    return ServiceReport(addresses=addresses, pods=list(pods), endpoints=endpoints, **given)  # type: ignore[arg-type]


Loss = Callable[[Sent], bool]


def report(
    nodes: int = 3, pods: int = 2, families: Sequence[Family] = (4,), mtu: Sequence[int] = (MTU,) * 9
) -> LabReport:
    """A lab of node1, node2, … with pod1-1, pod1-2, … each."""
    numbers = range(1, nodes + 1)
    return LabReport(
        name="weft",
        backend="vxlan",
        families=list(families),
        store="",
        store_state="ready",
        network=msgspec.Raw(b"{}"),
        nodes=[
            NodeReport(
                name=f"node{node}",
                underlay=[f"172.31.0.1{node}" if family == 4 else f"fd31::1{node}" for family in families],
                subnets=[],
                mtu=mtu[node - 1],
                daemon="ready",
                problems=[],
                pid=1,
            )
            for node in numbers
        ],
        pods=[
            PodReport(
                name=f"pod{node}-{pod}",
                node=f"node{node}",
                addresses=[
                    f"10.244.{node}.{pod + 1}/24" if family == 4 else f"fd00:{node}::{pod + 1}/64"
                    for family in families
                ],
                id="",
                netns="",
            )
            for node in numbers
            for pod in range(1, pods + 1)
        ],
    )


def outcome(trial: Trial, loss: Loss) -> Outcome:
    """What came of a trial where `loss` has its way."""
    if BY_NAME[trial.scenario].size == "more":
        return Outcome(answered=0, own="own", refused=trial.size - 1)
    there = loss(Sent(trial=trial, start=trial.from_node, end=trial.to_node))
    back = loss(Sent(trial=trial, start=trial.to_node, end=trial.from_node, back=True))
    arrives = not there and not (back and trial.protocol == "tcp")
    return Outcome(answered=0 if there or back else trial.flows, own="own", seen="own" if arrives else "")


def tried(loss: Loss, *, quick: bool = True, **lab: object) -> list[Tried]:
    """A check of a lab of `report` in which packets are lost."""
    wanted = trials(report(**lab), quick=quick)  # type: ignore[arg-type]
    return judged(wanted, [outcome(trial, loss) for trial in wanted])
