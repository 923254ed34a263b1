"""The nodes and pods of a lab file: lists of them, or how many there are.

What is wrong becomes problems of the reader's.
"""

import os
from collections.abc import Iterable, Iterator

import yaml

from weft.lab import spec
from weft.lab.files import labkeys
from weft.lab.files.parts import PortMappings, read_link, read_pod
from weft.lab.files.yamlfile import Reader, key_of
from weft.lab.links import Link
from weft.lab.spec import Overrides


class Nodes:
    """`links` are those of nodes that say something of theirs. `root` stands for what options alone say."""

    def __init__(self, reader: Reader, root: yaml.Node, over: Overrides, folder: str) -> None:
        """`folder` is the file's."""
        self.links: dict[str, Link] = {}
        self._file = reader
        self._root = root
        self._over = over
        self._folder = folder
        self._ports = PortMappings(reader)

    def read(
        self, node: yaml.Node | None, pods: yaml.Node | None, *, everywhere: int
    ) -> tuple[tuple[spec.Node, ...], tuple[spec.Pod, ...]]:
        """`everywhere` is how many pods are on a node that says nothing."""
        if self._over.pods is not None:
            everywhere = self._given(self._over.pods, "pods", least=0, most=spec.MOST_PODS)
            pods = self._refused_pods(node, pods)
        elif isinstance(pods, yaml.ScalarNode):
            everywhere = self._file.count(pods, "pods", least=0, most=spec.MOST_PODS)
        elif pods is not None:
            everywhere = 0
        nodes: dict[str, spec.Node] = {}
        found: list[tuple[yaml.Node | None, spec.Pod]] = []
        for index, (place, name, parts) in enumerate(self._node_entries(node), 1):
            if place is not None:
                self._file.check_name(place, "a node", name)
            if name in nodes:
                self._file.problem(place, f"a second node named {name!r}", expected="names that differ")
            ports = self._ports.read(parts.get(labkeys.PORTS))
            segment = 1
            if "segment" in parts:
                segment = self._file.count(parts["segment"], "segment", least=1, most=spec.MOST_SEGMENTS)
            made = spec.Node(name=name, index=index, segment=segment, daemon=self._daemon(parts), ports=ports)
            nodes.setdefault(name, made)
            if "link" in parts:
                self.links[name] = read_link(self._file, parts["link"])
            found += self._pods_of(parts.get("pods"), name, index, everywhere)
        found += self._pod_list(pods, nodes)
        return tuple(nodes.values()), self._distinct(found, nodes)

    def _given(self, count: int, what: str, *, least: int, most: int) -> int:
        """What an option says; `least` if that cannot be."""
        if least <= count <= most:
            return count
        self._file.problem(self._root, f"{what}: {count}", expected=f"{least} to {most}")
        return least

    def _refused_pods(self, nodes: yaml.Node | None, pods: yaml.Node | None) -> yaml.Node | None:
        """The list of pods beside which the option --pods is refused, if there is one."""
        seen, expected = f"--pods {self._over.pods}", "one of the two"
        own = nodes.value if isinstance(nodes, yaml.SequenceNode) else []
        if isinstance(pods, yaml.SequenceNode):
            self._file.problem(pods, f"{seen} beside a list of pods", expected=expected)
        elif own and all(key_of(node, ["pods"]) is not node for node in own):
            self._file.problem(nodes, f"{seen}, and each node says its own", expected=expected)
        return pods if isinstance(pods, yaml.SequenceNode) else None

    def _daemon(self, parts: dict[str, yaml.Node]) -> str:
        """One with a slash is seen from the file's folder."""
        if "daemon" not in parts:
            return ""
        program = self._file.value(parts["daemon"], str, "daemon")
        if program == "":
            self._file.problem(parts["daemon"], "daemon: ''", expected="a program")
        return os.path.join(self._folder, program) if program and "/" in program else program or ""  # noqa: PTH118

    def _node_entries(self, node: yaml.Node | None) -> Iterator[tuple[yaml.Node | None, str, dict[str, yaml.Node]]]:
        """Its place in the file, its name, and what else is said of it."""
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if isinstance(item, yaml.ScalarNode):
                    yield item, self._file.value(item, str, "a node's name") or "", {}
                else:
                    parts = self._file.mapping(item, tuple(labkeys.NODE), "node", needed=labkeys.needed(labkeys.NODE))
                    name = self._file.value(parts["name"], str, "a node's name") if "name" in parts else None
                    if name is not None:
                        yield parts["name"], name, parts
            if not 1 <= len(node.value) <= spec.MOST_NODES:
                self._file.problem(node, f"{len(node.value) or 'no'} nodes", expected=f"1 to {spec.MOST_NODES}")
            if self._over.nodes is not None:
                self._file.problem(
                    node, f"--nodes {self._over.nodes} beside a list of nodes", expected="one of the two"
                )
            return
        count = 3
        if self._over.nodes is not None:
            count = self._given(self._over.nodes, "nodes", least=1, most=spec.MOST_NODES)
        elif node is not None:
            count = self._file.count(node, "nodes", least=1, most=spec.MOST_NODES)
        for index in range(1, count + 1):
            yield None, f"node{index}", {}

    def _pods_of(
        self, node: yaml.Node | None, name: str, index: int, everywhere: int
    ) -> Iterator[tuple[yaml.Node | None, spec.Pod]]:
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                pod = self._file.value(item, str, "a pod's name")
                if pod is not None:
                    yield item, spec.Pod(name=pod, node=name)
            return
        count = everywhere if node is None else self._file.count(node, "pods", least=0, most=spec.MOST_PODS)
        for number in range(1, count + 1):
            yield None, spec.Pod(name=f"pod{index}-{number}", node=name)

    def _pod_list(self, node: yaml.Node | None, nodes: Iterable[str]) -> Iterator[tuple[yaml.Node | None, spec.Pod]]:
        if not isinstance(node, yaml.SequenceNode):
            if isinstance(node, yaml.MappingNode):
                self._file.problem(node, "pods is a mapping", expected="a number, or a list of {name: …, node: …}")
            return
        for item in node.value:
            parts = self._file.mapping(item, tuple(labkeys.POD), "pod", needed=labkeys.needed(labkeys.POD))
            name, on = (
                self._file.value(parts[key], str, f"a pod's {key}") if key in parts else None
                for key in ("name", "node")
            )
            if on is not None and on not in nodes:
                self._file.problem(parts["node"], f"a pod on node {on!r}", expected="a node of this lab", known=nodes)
            elif name is not None and on is not None:
                yield parts["name"], read_pod(self._file, parts, name, on)

    def _distinct(self, found: list[tuple[yaml.Node | None, spec.Pod]], nodes: Iterable[str]) -> tuple[spec.Pod, ...]:
        pods: dict[str, spec.Pod] = {}
        for place, pod in found:
            if place is not None:
                self._file.check_name(place, "a pod", pod.name)
            if pod.name in pods or pod.name in nodes:
                other = "pod" if pod.name in pods else "node"
                self._file.problem(
                    place, f"a pod named {pod.name!r} beside a {other} of that name", expected="names that differ"
                )
            pods.setdefault(pod.name, pod)
        return tuple(pods.values())
