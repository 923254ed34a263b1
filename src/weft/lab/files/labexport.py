"""`spec.Lab` → a lab file, which `labfile` reads again as the same lab; and a running lab as one to be started. Pure.

A file says what a lab is when it starts. What has become of a lab since, and no file can say, is named.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from weft.lab import links, spec
from weft.lab.files import labkeys
from weft.lab.files.parts import written_ports
from weft.lab.links import Link
from weft.lab.network import planned
from weft.lab.report import LabReport, serves
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import Event
from weft.model.value import replace


def exported(lab: spec.Lab, report: LabReport, done: Iterable[Event]) -> tuple[spec.Lab, list[str]]:
    """A lab that would be as the running one, and in words what it would lack.

    `done` is what commands have done to it. `ConfigError` if it was built by hand.
    """
    if lab.bare:
        seen = "its nodes are bare: what is in them was built by hand"
        raise ConfigError(Problem("LAB-001", lab.name, seen, expected="a lab of `weft lab up`"))
    elsewhere = [pod for pod in lab.pods if pod.network]
    kept = replace(lab, pods=tuple(pod for pod in lab.pods if not pod.network))
    fixed = kept if lab.kubelets else replace(kept, pods=tuple(_with_addresses(kept, report)))
    left_out = [f"pod {pod.name}: network {pod.network!r}, which files of its node configure" for pod in elsewhere]
    return fixed, [*left_out, *_differences(fixed, report), *_states(lab, report), *_faults(done)]


def _with_addresses(lab: spec.Lab, report: LabReport) -> Iterator[spec.Pod]:
    """Where a pod would get another address, all pods of its node ask for theirs.

    A pod can ask for one address, so pods with two families are left alone.
    """
    has = {pod.name: pod.addresses for pod in report.pods}
    gets = {pod.name: pod.addresses for pod in planned(lab).pods}
    others = {pod.node for pod in lab.pods if has.get(pod.name) != gets[pod.name] or pod.ip}
    for pod in lab.pods:
        addresses = has.get(pod.name, [])
        own = addresses[0].partition("/")[0] if len(addresses) == 1 and pod.node in others else pod.ip
        yield replace(pod, ip=own)


def _differences(lab: spec.Lab, report: LabReport) -> Iterator[str]:
    plan = planned(lab)
    subnets = {node.name: node.subnets for node in plan.nodes}
    for node in report.nodes:
        will = subnets.get(node.name, [])
        if will and node.subnets and will != node.subnets:
            yield f"{node.name}: subnet {', '.join(node.subnets)}; it would get {', '.join(will)}"
    asked = {pod.name: pod.ip for pod in lab.pods}
    gets = {pod.name: pod.addresses for pod in plan.pods}
    for pod in report.pods:
        if pod.name in gets and not asked[pod.name] and gets[pod.name] and gets[pod.name] != pod.addresses:
            yield f"pod {pod.name}: {', '.join(pod.addresses)}; it would get {', '.join(gets[pod.name])}"


def _states(lab: spec.Lab, report: LabReport) -> Iterator[str]:
    """What does not run as it should, and what only Kubernetes knows."""
    for node in report.nodes:
        if not serves(node.daemon) and node.daemon != "none":
            yield f"weftd of {node.name}: {node.daemon}"
    if report.store_state != "ready":
        yield f"store: {report.store_state}"
    if lab.kubelets:
        yield "what Kubernetes' API holds: pods, Services and the rest; `kubectl get -A -o yaml` shows it"


def _faults(done: Iterable[Event]) -> list[str]:
    there: dict[str, None] = {}
    for event in done:
        if event.kind == "broke" and not event.words:
            there[event.subject] = None
        elif event.kind == "mended":
            there.pop(event.subject, None)
    return [f"fault {subject}, of `weft lab break`" for subject in there]


def written(lab: spec.Lab) -> str:
    file: dict[str, Any] = {
        "apiVersion": labkeys.API,
        "kind": labkeys.KIND,
        "name": lab.name,
        "network": json.loads(lab.network),
        "nodes": [_node(node, lab.links.get(node.name, Link())) for node in lab.nodes],
    }
    if lab.kubelets:
        file["kubernetes"] = True
    else:
        file["pods"] = [_pod(pod) for pod in lab.pods] or 0
        file |= {"store": lab.store} if lab.store != "etcd" else {}
    if lab.nat:
        file["nat"] = [
            segment if kind == "cone" else {"segment": segment, "kind": kind} for segment, kind in lab.nat.items()
        ]
    if lab.password:
        file["password"] = True
    if lab.topology:
        file["topology"] = [list(pair) for pair in lab.topology]
    if lab.services:
        file[labkeys.SERVICES] = [_service(service) for service in lab.services]
    if lab.policies is not None:
        file[labkeys.POLICIES] = list(lab.policies)
    if lab.cuts:
        file["cuts"] = [{"from": cut.source, "to": cut.target} for cut in lab.cuts]
    return yaml.safe_dump(file, sort_keys=False, width=120)


def _node(node: spec.Node, link: Link) -> Any:
    made: dict[str, Any] = {"name": node.name}
    if node.segment != 1:
        made["segment"] = node.segment
    if node.daemon:
        made["daemon"] = node.daemon
    if node.ports:
        made[labkeys.PORTS] = written_ports(node.ports)
    if link != Link():
        made["link"] = links.written(link)
    return made if len(made) > 1 else node.name


def _pod(pod: spec.Pod) -> dict[str, Any]:
    made: dict[str, Any] = {"name": pod.name, "node": pod.node}
    if pod.ip:
        made["ip"] = pod.ip
    if pod.ports:
        made["ports"] = [
            {"hostPort": port.outside, "containerPort": port.inside, "protocol": port.protocol} for port in pod.ports
        ]
    if pod.namespace != spec.NAMESPACE:
        made["namespace"] = pod.namespace
    if pod.labels:
        made["labels"] = dict(pod.labels)
    return made


def _service(service: spec.Service) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": service.name,
        "port": service.port,
        "targetPort": service.target_port,
        "protocol": service.protocol,
        "pods": list(service.pods),
        "clusterIP": list(service.addresses),
    }
    if service.node_port:
        made["nodePort"] = service.node_port
    return made
