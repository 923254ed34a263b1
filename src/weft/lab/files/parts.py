"""Parts of lab files: links, cuts, pods, Services and, as kind has them, port mappings (`extraPortMappings`).

What is wrong becomes problems of the reader's.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import ip_address
from typing import Any, Final

import yaml

from weft.lab import spec
from weft.lab.files import labkeys
from weft.lab.files.labkeys import MOST_PORT, PORT, PORTS, SERVICE, SERVICES, needed
from weft.lab.files.yamlfile import Reader
from weft.lab.links import Cut, Link, read_delay, read_loss, read_rate
from weft.lab.services import choice
from weft.lab.spec import Nat, Port, Protocol, Service
from weft.model.value import replace

_QUANTITIES: Final = {"delay": read_delay, "loss": read_loss, "rate": read_rate}
_LOOPBACK: Final = "127.0.0.1"
_MOST_PORTS: Final = 200  # each is a descriptor of the message that starts the lab


def read_link(reader: Reader, node: yaml.Node) -> Link:
    found: dict[str, Any] = {}
    for key, part in reader.mapping(node, tuple(labkeys.LINK), "link").items():
        if key == "down":
            found["up"] = reader.value(part, bool, "down") is not True
            continue
        text = reader.value(part, str, key)
        try:
            found |= {} if text is None else {key: _QUANTITIES[key](text)}
        except ValueError as error:
            reader.problem(part, f"{key}: {error}")
    return Link(**found)


def read_cuts(reader: Reader, node: yaml.Node | None, places: Sequence[str]) -> Iterator[Cut]:
    if node is None:
        return
    if not isinstance(node, yaml.SequenceNode):
        reader.problem(node, "cuts is no list", expected="a list of {from: …, to: …}")
        return
    for item in node.value:
        parts = reader.mapping(item, tuple(labkeys.CUT), "cut", needed=labkeys.needed(labkeys.CUT))
        ends = {key: reader.value(part, str, f"a cut's {key}") for key, part in parts.items()}
        source, target = ends.get("from"), ends.get("to")
        for key, place in ends.items():
            if place is not None and place not in places:
                reader.problem(parts[key], f"a cut's {key} {place!r}", expected="a node, or store", known=places)
        if source in places and target in places:
            if source == target:
                reader.problem(item, f"a cut from {source} to itself", expected="two places")
            yield Cut(source=str(source), target=str(target))


def read_nat(reader: Reader, node: yaml.Node | None, used: AbstractSet[int]) -> dict[int, Nat]:
    """`used` are the segments that have nodes."""
    if node is not None and not isinstance(node, yaml.SequenceNode):
        reader.problem(node, "nat is no list", expected="a list of segments, as [2]")
    found: dict[int, Nat] = {}
    for item in node.value if isinstance(node, yaml.SequenceNode) else []:
        parts = {"segment": item}
        kind: Nat | None = "cone"
        if isinstance(item, yaml.MappingNode):
            parts = reader.mapping(item, tuple(labkeys.NAT), "NAT", needed=labkeys.needed(labkeys.NAT))
        if "kind" in parts:
            kind = reader.value(parts["kind"], Nat, "kind")  # type: ignore[arg-type] # a Literal is no type
        known = len(reader.problems)
        if "segment" in parts:
            segment = reader.count(parts["segment"], "a segment behind a NAT", least=2, most=spec.MOST_SEGMENTS)
            if len(reader.problems) == known and segment not in used:
                reader.problem(item, f"nat: no node is in segment {segment}", expected="a segment of a node")
            found[segment] = kind or "cone"  # it was complained of
    return dict(sorted(found.items()))


def read_pod(reader: Reader, parts: dict[str, yaml.Node], name: str, on: str) -> spec.Pod:
    address = reader.value(parts["ip"], str, "ip") if "ip" in parts else None
    try:
        address = address and str(ip_address(address))
    except ValueError as error:
        reader.problem(parts["ip"], f"ip: {error}", expected="an address of the node's subnet")
    ports = parts.get("ports")
    if ports is not None and not isinstance(ports, yaml.SequenceNode):
        reader.problem(ports, "ports is no list", expected="a list of {hostPort: …, containerPort: …}")
    listed = ports.value if isinstance(ports, yaml.SequenceNode) else []
    found = tuple(port for item in listed if (port := _host_port(reader, item)) is not None)
    labels = reader.value(parts["labels"], dict[str, str], "labels") if "labels" in parts else None
    return spec.Pod(
        name=name, node=on, ip=address or "", ports=found, namespace=_namespace(reader, parts), labels=labels or {}
    )


def _namespace(reader: Reader, parts: dict[str, yaml.Node]) -> str:
    said = reader.value(parts["namespace"], str, "namespace") if "namespace" in parts else None
    if said is not None and spec.NAME.fullmatch(said) is None:
        reader.problem(parts["namespace"], f"namespace: {said!r}", expected="small letters, digits and '-'")
    return said or spec.NAMESPACE


def _host_port(reader: Reader, node: yaml.Node) -> spec.HostPort | None:
    needed = labkeys.needed(labkeys.HOST_PORT)
    parts = reader.mapping(node, tuple(labkeys.HOST_PORT), "port", needed=needed)
    if not parts.keys() >= set(needed):
        return None
    outside, inside = (reader.count(parts[key], key, least=1, most=labkeys.MOST_PORT) for key in needed)
    protocol: spec.Protocol = "TCP"
    if "protocol" in parts and reader.value(parts["protocol"], spec.Protocol, "protocol") == "UDP":  # type: ignore[arg-type] # a Literal is no type
        protocol = "UDP"
    return spec.HostPort(outside=outside, inside=inside, protocol=protocol)


def read_services(reader: Reader, node: yaml.Node | None, lab: spec.Lab) -> spec.Lab:
    if node is None:
        return lab
    if not isinstance(node, yaml.SequenceNode):
        reader.problem(node, f"{SERVICES} is no list", expected=f"a list of mappings with {', '.join(SERVICE)}")
        return lab
    found: list[Service] = []
    pods = [pod.name for pod in lab.pods]
    said = [(item, service) for item in node.value if (service := _service(reader, item)) is not None]
    for item, service in sorted(said, key=lambda each: not each[1].addresses):  # those with fixed addresses first
        wrong = choice.problems(service, where=f"{reader.at(item)} {service.name}", lab=lab, pods=pods, others=found)
        reader.add(item, wrong)
        if not wrong:
            found.append(choice.addressed(service, lab.families, found))
    order = [service.name for _, service in said]
    return replace(lab, services=tuple(sorted(found, key=lambda each: order.index(each.name))))


def _service(reader: Reader, node: yaml.Node) -> Service | None:
    parts = reader.mapping(node, tuple(SERVICE), "Service", needed=needed(SERVICE))
    if not parts.keys() >= set(needed(SERVICE)):
        return None
    name = reader.value(parts["name"], str, "a Service's name")
    ports = {
        key: reader.count(parts[key], key, least=1, most=MOST_PORT)
        for key in ("port", "targetPort", "nodePort")
        if key in parts
    }
    protocol: Protocol | None = "TCP"
    if "protocol" in parts:
        protocol = reader.value(parts["protocol"], Protocol, "protocol")  # type: ignore[arg-type] # a Literal is no type
    if name is None or protocol is None:
        return None
    return Service(
        name=name,
        port=ports["port"],
        target_port=ports.get("targetPort", ports["port"]),
        protocol=protocol,
        pods=tuple(_texts(reader, parts["pods"], "pods")),
        addresses=tuple(_texts(reader, parts.get("clusterIP"), "clusterIP")),
        node_port=ports.get("nodePort", 0),
    )


def _texts(reader: Reader, node: yaml.Node | None, what: str) -> Iterator[str]:
    if node is None:
        return
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item in items:
        text = reader.value(item, str, what)
        if text is not None:
            yield text


class PortMappings:
    """Of one file: no port of the machine may be asked for twice."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._taken: set[tuple[str, int]] = set()

    def read(self, node: yaml.Node | None) -> tuple[Port, ...]:
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            self._reader.problem(node, f"{PORTS} is no list", expected=f"a list of mappings with {', '.join(PORT)}")
            return ()
        found = [self._port(item) for item in node.value]
        return tuple(port for port in found if port is not None)

    def _port(self, node: yaml.Node) -> Port | None:
        reader = self._reader
        parts = reader.mapping(node, tuple(PORT), "port mapping", needed=needed(PORT))
        inside, outside = (reader.value(parts[key], int, key) if key in parts else None for key in needed(PORT))
        listen = parts.get("listenAddress")
        said = (listen and reader.value(listen, str, "listenAddress")) or _LOOPBACK
        if "protocol" in parts and (named := reader.value(parts["protocol"], str, "protocol")) not in ("TCP", None):
            reader.problem(parts["protocol"], f"protocol {named!r}", expected="TCP, or nothing")
        if inside is None or outside is None:
            return None
        address = _loopback(said)
        port = f"port {outside} of {address or said}"
        if not address:
            reader.problem(node, port, expected=f"an address of loopback, or nothing: {_LOOPBACK}")
        for number in (outside, inside):
            if not 1 <= number <= MOST_PORT:
                reader.problem(node, f"port {number}", expected=f"1 to {MOST_PORT}")
        if (address, outside) in self._taken:
            reader.problem(node, f"{port} a second time", expected="ports that differ")
        self._taken.add((address, outside))
        if len(self._taken) == _MOST_PORTS + 1:
            reader.problem(node, f"more than {_MOST_PORTS} port mappings", expected="fewer")
        return Port(address=address, outside=outside, inside=inside)


def written_ports(ports: Iterable[Port]) -> list[dict[str, str | int]]:
    return [{"hostPort": port.outside, "containerPort": port.inside, "listenAddress": port.address} for port in ports]


def _loopback(said: str) -> str:
    """An address of loopback in its one form, else ""."""
    try:
        address = ip_address(said)
    except ValueError:
        return ""
    return str(address) if address.is_loopback else ""
