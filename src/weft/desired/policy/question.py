"""Whom a question means: `A` and `B[:PORT[/PROTOCOL]]`, and the flows between them that policies are asked about.

A and B are pods, Services, addresses, or `outside`. What is wrong is a `ValueError`, in words for people.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from weft.desired.policy.verdict import Asked, End, World, between
from weft.model.net import Ip, Net, ip_in
from weft.model.policy import (
    DIRECTIONS,
    LAST_PORT,
    PROTOCOLS,
    ClusterPolicy,
    IpBlock,
    Pod,
    Policy,
    Service,
    ServicePort,
)
from weft.model.text import one_of
from weft.model.value import Value

OUTSIDE: Final = "outside"
# `shop/web:80/tcp`, `10.244.1.2:http`, `[fd00::2]:53/udp`, and without a port.
_END: Final = re.compile(r"(?P<bare>[^\[\]:]+|\[(?P<six>[^\]]+)\])(?::(?P<port>\d{1,5})(?:/(?P<protocol>\w+))?)?")
_SERVICE: Final = re.compile("(svc|service)/")


class Name(Value, kw_only=False):
    """The name of a pod, or of a Service if no pod has it."""

    namespace: str
    name: str
    is_service: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# None is the world outside of the cluster.
Subject = Name | Ip | None


class Question(Value):
    """`protocol` is empty and `port` 0 where none was said."""

    source: Subject
    target: Subject
    protocol: str = ""
    port: int = 0


def question(source: str, target: str) -> Question:
    found = None if ip_in(target) else _END.fullmatch(target)
    if found is None:
        asked = Question(source=_subject(source), target=_subject(target))
    else:
        named, protocol = found["six"] or found["bare"], (found["protocol"] or "").lower()
        port = int(found["port"] or 0)
        asked = Question(source=_subject(source), target=_subject(named), protocol=protocol, port=port)
        if found["port"] and not 0 < port <= LAST_PORT:
            raise ValueError(f"port {port} is not 1 to {LAST_PORT}")
        if protocol and protocol not in PROTOCOLS:
            raise ValueError(f"{protocol} is not {one_of(PROTOCOLS, protocol)}")
    if isinstance(asked.source, Name) and asked.source.is_service:
        raise ValueError(f"a Service sends nothing: A is a pod, an address, or {OUTSIDE}")
    return asked


def _subject(text: str) -> Subject:
    if text == OUTSIDE:
        return None
    if (ip := ip_in(text)) is not None:
        return ip
    name, is_service = _SERVICE.subn("", text, count=1) if _SERVICE.match(text) else (text, 0)
    namespace, _, name = name.rpartition("/")
    return Name(namespace or "default", name, bool(is_service))


def flows(asked: Question, world: World) -> tuple[Service | None, tuple[Asked, ...]]:
    """The flow from A to B, or where B is a Service, from A to each of its pods."""
    source, service = _end(asked.source, world), _service(asked.target, world)
    if service is not None:
        return service, tuple(_to_service(source, service, asked, world))
    ends = _ends(source, _end(asked.target, world), world)
    protocol = (asked.protocol or PROTOCOLS[0]) if asked.port else "icmp"
    return None, (Asked(source=ends[0], target=ends[1], protocol=protocol, port=asked.port),)


def _service(subject: Subject, world: World) -> Service | None:
    if not isinstance(subject, Name):
        return next((each for each in world.services if subject in each.ips), None)
    if not subject.is_service and any(str(pod) == str(subject) for pod in world.pods):
        return None
    return next((each for each in world.services if str(each) == str(subject)), None)


def _end(subject: Subject, world: World) -> Pod | Ip | None:
    if not isinstance(subject, Name):
        return subject
    found = None if subject.is_service else next((pod for pod in world.pods if str(pod) == str(subject)), None)
    if found is None:
        known = one_of(map(str, world.services if subject.is_service else world.pods), str(subject))
        kind = "Service" if subject.is_service else "pod"
        port = "; a port is a number, as 80 or 53/udp" if ":" in subject.name else ""
        raise ValueError(f"{str(subject)!r} is no {kind}; expected {known}, an address, or {OUTSIDE}{port}")
    return found


def _to_service(source: Pod | Ip | None, service: Service, asked: Question, world: World) -> Iterator[Asked]:
    pods = [pod for pod in world.pods if service.leads_to(pod)]
    if not pods:
        why = "no pod has the labels that it selects" if service.selector else "it selects none; ask about an address"
        raise ValueError(f"Service {service} leads to no pod: {why}")
    port = _port(service, asked)
    numbers = {pod.id: _number(port, pod) for pod in pods}
    if not any(numbers.values()):
        raise ValueError(f"Service {service} leads to no pod: none has a port that is called {port.target}")
    for pod in pods:
        if number := numbers[pod.id]:
            first, second = _ends(source, pod, world)
            yield Asked(source=first, target=second, protocol=port.protocol, port=number)


def _number(port: ServicePort, pod: Pod) -> int:
    return port.target if isinstance(port.target, int) else pod.number_of(port.target, port.protocol)


def _port(service: Service, asked: Question) -> ServicePort:
    """The port that the question names; without one, the only port there is."""
    found = [each for each in service.ports if asked.port in (0, each.number) and asked.protocol in ("", each.protocol)]
    if len(found) != 1:
        ports = ", ".join(f"{each.number}/{each.protocol}" for each in service.ports) or "none"
        raise ValueError(f"which port of Service {service} is meant? It has {ports}")
    return found[0]


def _ends(source: Pod | Ip | None, target: Pod | Ip | None, world: World) -> tuple[End, End]:
    """Both ends with addresses of one family: that of the end which was given as an address."""
    if isinstance(source, Pod) and isinstance(target, Pod):
        return between(source, target)
    both = source, target
    versions = {each.version for each in both if each is not None and not isinstance(each, Pod)}
    if len(versions) > 1:
        raise ValueError("the two addresses are of different families")
    version = next(iter(versions), 0) or next(
        (ip.version for each in both if isinstance(each, Pod) for ip in each.ips), 4
    )

    def end(each: Pod | Ip | None) -> End:
        if each is None:
            return End(ip=_anybody(world, version), outside=True)
        if isinstance(each, Pod):
            return End(pod=each, ip=next((ip for ip in each.ips if ip.version == version), None))
        return world.at(each)

    return end(source), end(target)


def _anybody(world: World, version: int) -> Ip:
    """An address of the internet that no block of a policy contains, apart from blocks of all addresses."""
    named = [net for net in (*_blocks(world), *world.networks) if net.version == version and net.prefixlen]
    texts = (
        (f"{first}.0.0.1" for first in range(1, 224)) if version == 4 else (f"{x:x}::1" for x in range(0x2400, 0x3000))
    )
    for ip in map(ip_address, texts):
        if ip.is_global and not any(ip in net for net in named):
            return ip
    raise ValueError(f"blocks of policies name all of {OUTSIDE}: ask about an address")


def _blocks(world: World) -> Iterator[Net]:
    policies: tuple[Policy | ClusterPolicy, ...] = (*world.policies, *world.cluster)
    for policy in policies:
        for rule in (each for direction in DIRECTIONS for each in policy.rules(direction) or ()):
            for peer in rule.peers or ():
                if isinstance(peer, IpBlock):
                    yield from (peer.net, *peer.exceptions)
