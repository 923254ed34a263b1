"""Where a trace of a lab begins, where it may come to, and which node is next, by the lab's own report. Pure."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from weft.diag.trace.hops import OUTSIDE, End, Hop, Way
from weft.lab.report import LabReport, ServiceReport
from weft.lab.spec import switch
from weft.model.errors import ConfigError, Problem
from weft.model.net import ip_in
from weft.model.text import one_of
from weft.model.value import Value, replace

COMMAND: Final = "weft lab trace"


class Goal(Value):
    """What packets are sent to. `ends` are where they may come to: several pods of a `service`.

    An address of no place in the lab has no end.
    """

    address: str
    ends: tuple[End, ...]
    port: int = 0
    udp: bool = False
    service: str = ""


def end_of(report: LabReport, name: str, family: int, *, asking: str) -> End:
    """Raises `ConfigError` for the command `asking` if there is none of the family."""
    for end in _ends(report, family):
        if end.place == name:
            return end
    seen = f"no node or pod of this name has an IPv{family} address"
    names = [node.name for node in report.nodes] + [pod.name for pod in report.pods]
    raise ConfigError(Problem("LAB-002", f"{asking}: {name}", seen, expected=one_of(names, name)))


def end_at(report: LabReport, address: str) -> End | None:
    return next((end for end in _ends(report, 6 if ":" in address else 4) if end.address == address), None)


def goal(report: LabReport, begin: End, target: str, *, udp: bool) -> Goal:
    """What `NAME`, `NAME:PORT`, `SERVICE:PORT` or an address means, from `begin`. `ConfigError` if it means nothing."""
    name, port = _split(target)
    family, address = ip_address(begin.address).version, ip_in(name)
    if address is not None and address.version != family:
        seen = f"{begin.place} is to send from its IPv{family} address, {begin.address}"
        raise ConfigError(Problem("FLAG-001", f"{COMMAND}: {target}", seen, expected=f"an IPv{family} address"))
    service = next((each for each in report.services if name in (each.name, *each.addresses)), None)
    if service is not None:
        return _to_service(report, service, target, port, family)
    if name == OUTSIDE:
        address = next(ip for ip in map(ip_address, report.outside) if ip.version == family)
    end = end_of(report, name, family, asking=COMMAND) if address is None else _at(report, begin, str(address))
    if end is None:
        return Goal(address=str(address), ends=(), port=port, udp=udp)
    if port and not end.is_apart:
        protocol = "UDP" if udp else "TCP"
        led = (each for each in report.services if (each.node_port, each.protocol) == (port, protocol))
        behind = next(led, None)
        if behind is not None:
            ends = _behind(report, behind, family)
            return Goal(address=end.address, ends=ends, port=port, udp=udp, service=behind.name)
    return Goal(address=end.address, ends=(end,), port=port, udp=udp)


def _to_service(report: LabReport, service: ServiceReport, target: str, port: int, family: int) -> Goal:
    name = service.name
    if port != service.port:
        seen = f"Service {name} has no port {port}" if port else f"Service {name} without a port"
        raise ConfigError(Problem("FLAG-001", f"{COMMAND}: {target}", seen, expected=f"{name}:{service.port}"))
    address = next(each for each in service.addresses if (":" in each) == (family == 6))
    ends = _behind(report, service, family)
    return Goal(address=address, ends=ends, port=port, udp=service.protocol == "UDP", service=name)


def translated(report: LabReport, goal: Goal, node: str, way: Way) -> Way:
    """Drop a packet on a node that has no rules of its Service.

    A Service's own address has to be translated on the first node; the port of a node, on that node.
    """
    packet = way.packet
    if not goal.service or packet is None or packet.target != goal.address or way.end in ("dropped", "undecided"):
        return way
    if end_at(report, goal.address) is not None and way.end != "delivered":
        return way
    seen = f"no rule of {node} leads to a pod of Service {goal.service}"
    hint = "Its rules are kube-proxy's, and in a lab the lab's own: see 'nft list ruleset' there"
    problem = Problem("SVC-001", f"{goal.address} port {goal.port}", seen, hint=hint)
    hop = Hop(what="DNAT", seen=seen, passes=False)
    return replace(way, hops=(*way.hops, hop), end="dropped", to="", carried="", problem=problem, packet=None)


def next_node(report: LabReport, way: Way) -> str | None:
    """None where the way ends, or leads out of the lab."""
    return next((node.name for node in report.nodes if way.to in node.underlay), None) if way.to else None


def _ends(report: LabReport, family: int) -> Iterator[End]:
    for pod in report.pods:
        for address in (text.partition("/")[0] for text in pod.addresses):
            if (":" in address) == (family == 6):
                yield End(node=pod.node, address=address, pod=pod.name, host_end=pod.host_end)
    for node in report.nodes:
        for address in node.underlay:
            if (":" in address) == (family == 6):
                yield End(node=node.name, address=address)


def _behind(report: LabReport, service: ServiceReport, family: int) -> tuple[End, ...]:
    addresses = (each.address for each in service.endpoints if (":" in each.address) == (family == 6))
    return tuple(end for address in addresses if (end := end_at(report, address)) is not None)


def family_of(target: str) -> int:
    """The family of an address, alone or before a port; 0 of a name."""
    address = ip_in(_split(target)[0])
    return 0 if address is None else address.version


def _at(report: LabReport, begin: End, address: str) -> End | None:
    """What has an address: a node, a pod, or the lab itself, where the sender's switch takes packets in."""
    if address not in report.outside:
        return end_at(report, address)
    segment = next((node.segment for node in report.nodes if node.name == begin.node), 1)
    return End(node=OUTSIDE, address=address, device=switch(segment))


def _split(target: str) -> tuple[str, int]:
    """A name or an address, and the port behind it, of IPv6 behind brackets; 0 if there is none."""
    if ip_in(target) is not None:
        return target, 0
    if target.startswith("[") and target.endswith("]"):
        return target[1:-1], 0
    name, colon, port = target.rpartition(":")
    name = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if not colon:
        return target, 0
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(Problem("FLAG-001", f"weft lab trace: {target}", f"port {port!r}", expected="1 to 65535"))
    return name, int(port)
