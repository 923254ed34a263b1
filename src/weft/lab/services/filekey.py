"""`services` of a lab file: a list of mappings, as `spec.Service` has them in Kubernetes' words."""

from collections.abc import Iterator
from typing import Final

import yaml

from weft.lab import spec
from weft.lab.files.labkeys import MOST_PORT, SERVICE, SERVICES, needed
from weft.lab.files.yamlfile import Reader
from weft.lab.services import choice
from weft.lab.spec import Protocol, Service
from weft.model.value import replace

_KEYS: Final = tuple(SERVICE)


def read(reader: Reader, node: yaml.Node | None, lab: spec.Lab) -> spec.Lab:
    """Return the lab with the Services of a file, each with its addresses. What is wrong becomes problems."""
    if node is None:
        return lab
    if not isinstance(node, yaml.SequenceNode):
        reader.problem(node, f"{SERVICES} is no list", expected=f"a list of mappings with {', '.join(_KEYS)}")
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
    parts = reader.mapping(node, _KEYS, "Service", needed=needed(SERVICE))
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
    """One text, or a list of them."""
    if node is None:
        return
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item in items:
        text = reader.value(item, str, what)
        if text is not None:
            yield text
