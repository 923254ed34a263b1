"""What a lab file says of a node's link, of ways that are cut, and of a pod in the list of pods.

What is wrong becomes problems of the reader's.
"""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Any, Final

import yaml

from weft.lab import spec
from weft.lab.files import labkeys
from weft.lab.files.yamlfile import Reader
from weft.lab.links import Cut, Link, read_delay, read_loss, read_rate

_QUANTITIES: Final = {"delay": read_delay, "loss": read_loss, "rate": read_rate}


def link(reader: Reader, node: yaml.Node) -> Link:
    """Return what a node's link does to packets."""
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


def cuts(reader: Reader, node: yaml.Node | None, places: Sequence[str]) -> Iterator[Cut]:
    """Yield the ways that are cut between these places."""
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


def pod(reader: Reader, parts: dict[str, yaml.Node], name: str, on: str) -> spec.Pod:
    """Return a pod of the list of pods, with what else is said of it."""
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
    return spec.Pod(name=name, node=on, ip=address or "", ports=found)


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
