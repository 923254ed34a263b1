"""`extraPortMappings`, as kind has them: ports of the machine's loopback that lead to ports of nodes."""

from ipaddress import ip_address
from typing import Final

import yaml

from weft.lab.labkeys import MOST_PORT, PORT, PORTS, needed
from weft.lab.spec import Port
from weft.lab.yamlfile import Reader

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
        inside, outside = (
            reader.count(parts[key], key, least=1, most=MOST_PORT) if key in parts else 0 for key in needed(PORT)
        )
        address = self._address(parts.get("listenAddress"))
        if "protocol" in parts and (said := reader.value(parts["protocol"], str, "protocol")) not in ("TCP", None):
            reader.problem(parts["protocol"], f"protocol {said!r}", expected="TCP, or nothing")
        if not inside or not outside:
            return None
        if (address, outside) in self._taken:
            reader.problem(parts["hostPort"], f"hostPort {outside} a second time", expected="ports that differ")
        self._taken.add((address, outside))
        if len(self._taken) == _MOST_PORTS + 1:
            reader.problem(node, f"more than {_MOST_PORTS} port mappings", expected="fewer")
        return Port(address=address, outside=outside, inside=inside)

    def _address(self, node: yaml.Node | None) -> str:
        said = None if node is None else self._reader.value(node, str, "listenAddress")
        if node is None or said is None:
            return _LOOPBACK
        try:
            if ip_address(said).is_loopback:
                return said
        except ValueError:
            pass
        expected = f"an address of loopback, or nothing: {_LOOPBACK}"
        self._reader.problem(node, f"listenAddress {said!r}", expected=expected)
        return _LOOPBACK
