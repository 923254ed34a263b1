"""Which trials a check of a lab consists of. Pure: a report in, trials out."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from weft.diag.check.ends import End, trials_of
from weft.diag.check.scenarios import SCENARIOS, Scenario
from weft.diag.check.trial import Trial
from weft.diag.trace.hops import OUTSIDE
from weft.lab.report import LabReport
from weft.lab.service_targets import DoorKind, by_family, doors

IN_A_LAB: Final = tuple(scenario for scenario in SCENARIOS if scenario.target != "peer")  # its pods stand for those


def trials(report: LabReport, *, quick: bool) -> list[Trial]:
    """All trials, by scenario. If `quick`, one pod speaks for its node, or two where they speak to each other."""
    ends, found = _ends(report), list[Trial]()
    for scenario in IN_A_LAB:
        if scenario.target in ("service", "node-port", "host-port"):
            found += _by_doors(scenario, scenario.target, ends, report, quick=quick)
        elif not (quick and scenario.full):
            found += trials_of(scenario, _pairs(scenario, ends, quick=quick), report.families)
    return found


def _by_doors(
    scenario: Scenario, kind: DoorKind, ends: Sequence[End], report: LabReport, *, quick: bool
) -> Iterator[Trial]:
    """Trials of one scenario to Services or ports of nodes."""
    ends = [
        *ends,
        End(kind="outside", name=OUTSIDE, node=OUTSIDE, addresses=dict.fromkeys(report.families, ""), mtu=0),
    ]
    for family in report.families:
        for source, door in product(ends, doors(kind, report, family)):
            is_behind = source.name in {each.pod for each in door.behind}
            if scenario.where == "itself":
                chosen = is_behind
            else:
                # To its own node's port a pod comes back: that is a scenario of its own.
                chosen = (not quick or source.number == 0) and not (is_behind and kind == "host-port")
            if chosen and source.kind == scenario.source and family in source.addresses:
                yield Trial(
                    scenario=scenario.name,
                    source=source.name,
                    target=door.name,
                    from_node=source.node,
                    to_node=door.node,
                    family=family,
                    protocol="tcp" if door.protocol == "TCP" else "udp",
                    address=door.address,
                    flows=scenario.flows,
                    port=door.port,
                    listens=door.listens,
                    behind=door.behind,
                )


def _pairs(scenario: Scenario, ends: Sequence[End], *, quick: bool) -> Iterator[tuple[End, End]]:
    between_neighbours = scenario.where == "same" and scenario.source == scenario.target
    most = 2 if between_neighbours else 1
    chosen = [end for end in ends if not quick or end.number < most]
    sources = [end for end in chosen if end.kind == scenario.source]
    if scenario.where in ("loopback", "itself"):
        yield from ((end, end) for end in sources)
        return
    targets = [end for end in chosen if end.kind == scenario.target]
    same = scenario.where == "same"
    for source in sources:
        yield from (
            (source, target) for target in targets if source is not target and (source.node == target.node) == same
        )


def _ends(report: LabReport) -> list[End]:
    mtu = {node.name: node.mtu for node in report.nodes}
    nodes = [
        End(kind="node", name=node.name, node=node.name, addresses=by_family(node.underlay), mtu=node.mtu)
        for node in report.nodes
    ]
    pods = list[End]()
    for pod in report.pods:
        number = sum(other.node == pod.node for other in pods)
        addresses = by_family(pod.addresses)
        pods.append(
            End(kind="pod", name=pod.name, node=pod.node, addresses=addresses, mtu=mtu[pod.node], number=number)
        )
    return [*nodes, *pods]
