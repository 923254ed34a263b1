"""What a Service of a lab may be, which addresses it gets, and which pods are behind it now. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import count
from typing import Final

from weft.lab import spec
from weft.lab.spec import SERVICES, Service
from weft.model.errors import Problem
from weft.model.net import Family, Ip, Net, family_of
from weft.model.value import Value, replace

NODE_PORTS: Final = (30000, 32767)  # as Kubernetes has them
_PORTS: Final = (1, 65535)
_FIRST_CHOSEN: Final = 11  # what comes before is Kubernetes' own: .1 its API, .10 its DNS
_ALL: Final = "*"


class Endpoint(Value):
    pod: str
    node: str
    address: Ip


class Served(Value):
    service: Service
    endpoints: tuple[Endpoint, ...]


def served(service: Service, pods: Iterable[Endpoint]) -> Served:
    """One endpoint of each pod and family."""
    return Served(service=service, endpoints=tuple(each for each in pods if _is_of(service, each.pod)))


def addressed(service: Service, families: Iterable[Family], others: Iterable[Service]) -> Service:
    """Its own address of each family, else the next that is free."""
    own = {address.version: str(address) for address in map(ip_address, service.addresses)}
    taken = {text for other in others for text in other.addresses}

    def free(network: Net) -> str:
        return next(text for number in count(_FIRST_CHOSEN) if (text := str(network[number])) not in taken)

    return replace(service, addresses=tuple(own.get(family) or free(range_of(family)) for family in families))


def range_of(family: Family) -> Net:
    return ip_network(SERVICES[family])


def problems(
    service: Service, *, where: str, lab: spec.Lab, pods: Collection[str], others: Sequence[Service]
) -> list[Problem]:
    """`lab` has these `pods` and these `others` now."""
    if lab.kubelets:
        seen = "Services of this lab come from Kubernetes' API"
        options = f"--port {service.port} --target-port {service.target_port} --protocol {service.protocol}"
        kind = " --type NodePort" if service.node_port else ""
        hint = f"kubectl expose deployment NAME --name {service.name} {options}{kind}"
        return [Problem("LAB-001", where, seen, hint=hint)]
    taken = {node.name for node in lab.nodes} | set(pods) | {other.name for other in others}
    found = spec.name_problem("a Service", where, service.name)
    if service.name in taken:
        found.append(_problem(where, f"the name {service.name!r} is taken", "a name that no node, pod or Service has"))
    found += _port_problems(service, where, others)
    found += _address_problems(service, where, lab.families, others)
    found += _pod_problems(service, where, pods)
    return found


def _port_problems(service: Service, where: str, others: Iterable[Service]) -> Iterator[Problem]:
    for what, port in (("port", service.port), ("target port", service.target_port)):
        if not _PORTS[0] <= port <= _PORTS[1]:
            yield _problem(where, f"{what} {port}", "1 to 65535")
    if not service.node_port:
        return
    if not NODE_PORTS[0] <= service.node_port <= NODE_PORTS[1]:
        yield _problem(where, f"node port {service.node_port}", f"{NODE_PORTS[0]} to {NODE_PORTS[1]}")
    for other in others:
        if (other.node_port, other.protocol) == (service.node_port, service.protocol):
            seen = f"node port {service.node_port} is that of Service {other.name}"
            yield _problem(where, seen, "node ports that differ")


def _address_problems(
    service: Service, where: str, families: Collection[Family], others: Sequence[Service]
) -> Iterator[Problem]:
    seen = set[int]()
    for text in service.addresses:
        try:
            address = ip_address(text)
        except ValueError as error:
            yield _problem(where, str(error), "an address")
            continue
        if isinstance(address, IPv6Address) and address.scope_id is not None:  # which may be any text
            yield _problem(where, f"address {text!r}", "an address without a scope")
            continue
        if address.version not in families:
            yield _problem(where, f"address {text}", f"one of IPv{' or IPv'.join(map(str, families))}")
            continue
        if address.version in seen:
            yield _problem(where, f"address {text} beside another one of IPv{address.version}", "one of each family")
        seen.add(address.version)
        network = range_of(family_of(address))
        if address not in network or address in (network[0], network[1], network[-1]):
            yield _problem(where, f"address {text}", f"one of {network}, but its first two and its last")
        for other in others:
            if address in map(ip_address, other.addresses):
                yield _problem(where, f"address {text} is that of Service {other.name}", "addresses that differ")


def _pod_problems(service: Service, where: str, pods: Collection[str]) -> Iterator[Problem]:
    if not service.pods:
        yield _problem(where, "no pods", "names of pods, or 'web*' for all whose names begin with web")
    for wanted in service.pods:
        if wanted.removesuffix(_ALL).count(_ALL):
            yield _problem(where, f"pods {wanted!r}", "'*' at the end alone")
        elif not wanted.endswith(_ALL) and wanted not in pods:
            [near] = get_close_matches(wanted, pods, n=1) or [""]
            hint = f"Did you mean {near!r}?" if near else f"'{wanted}*' means pods that are yet to come, too."
            yield Problem("LAB-001", where, f"no pod {wanted!r}", expected="a pod of this lab", hint=hint)


def _problem(where: str, seen: str, expected: str) -> Problem:
    return Problem("LAB-001", where, seen, expected=expected)


def _is_of(service: Service, pod: str) -> bool:
    return any(pod.startswith(name[:-1]) if name.endswith(_ALL) else pod == name for name in service.pods)
