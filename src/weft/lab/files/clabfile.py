"""A topology file of containerlab → `spec.Lab`: its Linux nodes, and a segment for each network that links make.

    name: edge
    topology:
      nodes:
        left: {kind: linux, image: debian, ports: ["8080:30080"]}
        right: {kind: linux, image: debian}
        lan: {kind: bridge}
      links:
        - endpoints: ["left:eth1", "lan:one"]
        - endpoints: ["right:eth1", "lan:two"]

A node without a link is in the first segment, as it is in the management network there. What containers would run
(`image`, `entrypoint`, `cmd`) is not read, nor is a node `store`: weft runs on all nodes, and a lab has a store. Of the
pod network such a file says nothing: it is what options say. What a lab does not have is refused by name, as in
`kindfile`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeGuard

import yaml

from weft.lab import spec
from weft.lab.files import portmappings, yamlfile
from weft.lab.fitting import misfits, understand
from weft.lab.links import STORE
from weft.model.errors import ConfigError

LINUX: Final = "linux"
_BRIDGES: Final = ("bridge", "ovs-bridge")
_NULL: Final = "tag:yaml.org,2002:null"
_OPTIONS: Final = ("nodes", "store", "kubernetes")  # which a file decides, or a lab of a file does not have
_PORT: Final = re.compile(r"(?:(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:]+\]):)?(\d{1,5}):(\d{1,5})(?:/tcp)?", re.ASCII)
_RUNS: Final = ("image", "entrypoint", "cmd", "labels", "group")
_OWN: Final = "nodes run weft, and what `weft lab exec` starts"
_FIXED: Final = "the underlay's addresses are fixed"
_TOPOLOGY: Final = {"groups": "each node says what it is"}
_FILE: Final = {"prefix": "nodes are called as in the file", "mgmt": _FIXED, "settings": _OWN}
_NODE: Final = {
    "type": "all nodes are alike",
    "binds": "nodes see the machine's files",
    "mgmt-ipv4": _FIXED,
    "mgmt-ipv6": _FIXED,
    "network-mode": "each node has a network of its own",
    **dict.fromkeys(("startup-config", "startup-delay", "env", "env-files", "exec", "user", "license"), _OWN),
    **dict.fromkeys(("sysctls", "cpu", "cpu-set", "memory"), "nodes have the machine's"),
}
_SHORT: Final = "links join two nodes, written as [one:eth1, other:eth1]"
_LINK: Final = dict.fromkeys(("type", "mtu", "labels", "vars", "endpoint"), _SHORT)
_ENDS: Final = {STORE: "its store has no links of its own", **dict.fromkeys(("host", "mgmt-net", "macvlan"), _SHORT)}


class _Node(NamedTuple):
    """A node of the file: where its name stands, its kind, and its ports."""

    key: yaml.Node
    kind: str
    ports: yaml.Node | None


def is_one(root: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    """Tell whether a file looks like containerlab's."""
    return isinstance(root, yaml.MappingNode) and any(key.value == "topology" for key, _ in root.value)


class Reader(yamlfile.Reader):
    """Walks the YAML nodes of a topology file; `over` says what such a file does not."""

    def __init__(self, where: str, over: spec.Overrides) -> None:
        super().__init__(where)
        self._over = over
        self._ports = portmappings.Mappings(self)

    def lab(self, root: yaml.Node, name: str) -> spec.Lab:
        """Return the lab that the file describes; `name` wins over its own."""
        over = self._over
        for option in _OPTIONS:
            if getattr(over, option):
                self.problem(root, f"--{option} beside a file of containerlab", expected="what the file says")
        parts = self.mapping(root, ("name", "topology"), "file", elsewhere=_FILE)
        topology = self._parts(parts["topology"], ("defaults", "kinds", "nodes", "links"), "topology", _TOPOLOGY)
        found = self._read(topology)
        segments = self._segments(topology.get("links"), {name: node.kind for name, node in found.items()})
        nodes = tuple(self._nodes(found, segments))
        families = spec.FAMILIES[over.family or "4"]
        backend = over.backend or "vxlan"
        lab = spec.Lab(
            name=self.lab_name(parts, name) or "weft",
            network=spec.net_conf(backend=backend, families=families, nft=over.nft),
            families=families,
            nodes=nodes,
            pods=spec.pods_of(nodes, 2 if over.pods is None else over.pods),
        )
        self._judge(lab, found, topology.get("nodes"), f"--backend {backend}")
        return lab

    def _judge(self, lab: spec.Lab, found: Mapping[str, _Node], place: yaml.Node | None, option: str) -> None:
        """Note what is wrong with a lab as a whole, whose nodes stand at `place`."""
        if not lab.nodes:
            self.problem(place, "no nodes", expected=f"one node of kind {LINUX} at least")
        for pod in lab.pods:
            if pod.name in found:
                self.problem(found[pod.name].key, f"node {pod.name!r} has the name of a pod", expected="another name")
        try:
            self.add(place, misfits(understand(lab.network, option), lab, f"{self.at(place)} nodes"))
        except ConfigError as error:
            self.add(None, error.problems)

    def _read(self, topology: Mapping[str, yaml.Node]) -> dict[str, _Node]:
        """Return what the file says of each node, by its name."""
        defaults = self._parts(topology.get("defaults"), ("kind", *_RUNS), "defaults")
        for name, _, said in self._entries(topology.get("kinds"), "kinds"):
            self._parts(said, _RUNS, f"kind {name}")
        found: dict[str, _Node] = {}
        for name, key, said in self._entries(topology.get("nodes"), "nodes"):
            if name == STORE:
                continue
            parts = self._parts(said, ("kind", "ports", *_RUNS), "node")
            place = parts.get("kind", defaults.get("kind"))
            kind = "" if place is None else self.value(place, str, "kind") or ""
            if kind not in (LINUX, *_BRIDGES):
                seen = f"node {name!r} of kind {kind!r}" if kind else f"node {name!r} without a kind"
                self.problem(key, seen, expected=f"{LINUX}, or {_BRIDGES[0]} for a network between nodes")
            if kind in _BRIDGES and "ports" in parts:
                self.problem(
                    parts["ports"], f"ports of {name!r}, a {kind}", expected=f"ports of a node of kind {LINUX}"
                )
            found[name] = _Node(key, kind, parts.get("ports"))
        return found

    def _parts(
        self, node: yaml.Node | None, known: tuple[str, ...], what: str, elsewhere: Mapping[str, str] = _NODE
    ) -> dict[str, yaml.Node]:
        """Return the values of a mapping by key, but for empty ones: they are as if they were not there."""
        if node is None or node.tag == _NULL:
            return {}
        parts = self.mapping(node, known, what, elsewhere=elsewhere)
        return {key: part for key, part in parts.items() if part.tag != _NULL}

    def _entries(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield each name of a mapping whose keys are names, where it stands, and what is said of it."""
        if node is not None and not isinstance(node, yaml.MappingNode):
            self.problem(node, f"{what} is no mapping", expected="a mapping of names")
        seen = set()
        for key, said in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                self.problem(key, f"a key of {what} that is no name", expected="a name")
            elif key.value in seen:
                self.problem(key, f"{key.value!r} a second time", expected="each name once")
            else:
                seen.add(key.value)
                yield key.value, key, said

    def _items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        if node is not None and not isinstance(node, yaml.SequenceNode):
            self.problem(node, f"{what} is no list", expected="a list")
        return node.value if isinstance(node, yaml.SequenceNode) else []

    def _segments(self, links: yaml.Node | None, kinds: Mapping[str, str]) -> dict[str, int]:
        """Return in which segment each node with a link is. The first is for those without one, if there are any."""
        bridges = {node for node, kind in kinds.items() if kind in _BRIDGES}
        networks: list[set[str]] = []
        for ends, place in self._links(links, kinds):
            joined = [network for network in networks if network & ends & bridges or ends <= network]
            networks = [network for network in networks if network not in joined]
            networks.append(ends.union(*joined))
            for node in sorted(ends - bridges):
                if sum(node in network for network in networks) > 1:
                    self.problem(place, f"node {node!r} in two networks", expected="a lab's node is in one")
        used = [network for network in networks if network - bridges]
        unlinked = kinds.keys() - bridges - set().union(*used)
        first = 2 if unlinked else 1
        if len(used) + first - 1 > spec.MOST_SEGMENTS:
            self.problem(links, f"{len(used)} networks between nodes", expected=f"{spec.MOST_SEGMENTS} at most")
        return {node: number for number, network in enumerate(used, first) for node in network}

    def _links(self, node: yaml.Node | None, kinds: Mapping[str, str]) -> Iterator[tuple[set[str], yaml.Node]]:
        """Yield the two ends of each link, without their interfaces, and where it stands."""
        for item in self._items(node, "links"):
            parts = self.mapping(item, ("endpoints",), "link", needed=("endpoints",), elsewhere=_LINK)
            ends = self.value(parts["endpoints"], list[str], "endpoints") if "endpoints" in parts else None
            names = {end.partition(":")[0] for end in ends or ()}
            for name in sorted(names.difference(kinds)):
                why = f", which a lab does not have: {_ENDS[name]}" if name in _ENDS else ""
                self.problem(item, f"a link of {name!r}{why}", expected="a node of this file", known=kinds, name=name)
            if ends is not None and (len(ends), len(names)) != (2, 2):
                self.problem(item, f"a link of {' and '.join(ends)}", expected="two nodes, as [one:eth1, other:eth1]")
            elif names and names <= kinds.keys():
                yield names, item

    def _nodes(self, found: Mapping[str, _Node], segments: Mapping[str, int]) -> Iterator[spec.Node]:
        linux = [(name, node) for name, node in found.items() if node.kind == LINUX]
        for index, (name, node) in enumerate(linux, 1):
            self.check_name(node.key, "a node", name)
            ports = tuple(self._published(node.ports))
            yield spec.Node(name=name, index=index, segment=segments.get(name, 1), ports=ports)

    def _published(self, node: yaml.Node | None) -> Iterator[spec.Port]:
        """Yield a node's ports, written as Docker has them; without an address they are on the machine's loopback."""
        for item in self._items(node, "ports"):
            # As it is written: YAML 1.1, which this reader of YAML knows, takes 2222:22 for a number to the base of 60.
            match = _PORT.fullmatch(item.value) if isinstance(item, yaml.ScalarNode) else None
            if match is None:
                self.problem(
                    item,
                    f"port {item.value!r}" if isinstance(item, yaml.ScalarNode) else "a port",
                    expected="TCP ports, as '8080:80' or '127.0.0.1:8080:80'",
                )
                continue
            address, *numbers = match.groups()
            outside, inside = (int(number) for number in numbers)
            yield self._ports.taken(item, address.strip("[]") if address else "", outside, inside)
