"""`extraPortMappings`, as kind has them: ports of the machine's loopback that lead to ports of nodes."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

import yaml

from weft.lab.files.labkeys import MOST_PORT, PORT, PORTS, needed
from weft.lab.files.yamlfile import Reader
from weft.lab.spec import Port

_KEYS: Final = tuple(PORT)
_LOOPBACK: Final = "127.0.0.1"
_MOST_PORTS: Final = 200  # each is a descriptor of the message that starts the lab


class Mappings:
    """Reads those of one file: no port of the machine may be asked for twice."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._taken: set[tuple[str, int]] = set()

    def read(self, node: yaml.Node | None) -> tuple[Port, ...]:
        """Return what a node's list says."""
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            self._reader.problem(node, f"{PORTS} is no list", expected=f"a list of mappings with {', '.join(_KEYS)}")
            return ()
        found = [self._port(item) for item in node.value]
        return tuple(port for port in found if port is not None)

    def _port(self, node: yaml.Node) -> Port | None:
        reader = self._reader
        parts = reader.mapping(node, _KEYS, "port mapping", needed=needed(PORT))
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


def written(ports: Iterable[Port]) -> list[dict[str, str | int]]:
    """Write those of a node as `Mappings` reads them."""
    return [{"hostPort": port.outside, "containerPort": port.inside, "listenAddress": port.address} for port in ports]


def _loopback(said: str) -> str:
    """Return an address of loopback in its one form, empty for what is none."""
    try:
        address = ip_address(said)
    except ValueError:
        return ""
    return str(address) if address.is_loopback else ""
