"""The lab file: YAML → `spec.Lab`, with every mistake of the file named at once, each with its line.

    apiVersion: weft.dev/v1      # may be left out, as may kind
    kind: Lab
    name: edge
    network: {Network: 10.244.0.0/16, Backend: {Type: vxlan, DirectRouting: true}}   # flannel's net-conf
    nodes: 3                     # or a list of names, or of {name: …, pods: …, segment: …, daemon: …}; pods as below
    pods: 2                      # on each node that does not say; or a list of {name: …, node: …}
    store: etcd                  # or kubernetes, or mesh; and password: true for a mesh with one
    nat: [2]                     # segments that are behind one; or {segment: 2, kind: hard}
    topology: line               # or ring, partial:SEED, or [[node1, node2], …]
    kubernetes: false            # true: nodes of Kubernetes, which has pods of its own
    services: [{name: web, port: 80, pods: "pod*"}]    # with targetPort, protocol, clusterIP and nodePort
    cuts: [{from: node1, to: node2}]
    policies: [policies.yaml]    # files, or objects of Kubernetes

A cluster file of kind (`apiVersion: kind.x-k8s.io/v1alpha4`) is read as well, by kindfile.py.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import yaml

from weft.config.netconf import NetConf
from weft.lab import spec, topology
from weft.lab.files import kindfile, labkeys, policyfile, yamlfile
from weft.lab.files.parts import PortMappings, read_cuts, read_link, read_nat, read_pod, read_services
from weft.lab.links import STORE, Link
from weft.lab.manifests import Manifest, by_name
from weft.lab.network import misfits, understand
from weft.lab.spec import Overrides
from weft.model.errors import ConfigError, Problem
from weft.model.net import Family
from weft.model.value import replace

_NETWORK: Final = "network"


def read(text: str, where: str, *, name: str = "", over: spec.Overrides | None = None) -> spec.Lab:
    """`where` is the file's path; `name` and `over` win over what it says.

    `ConfigError` has all problems, each with its line.
    """
    root, over = yamlfile.compose(text, where, "a lab file"), over or spec.Overrides()
    reader: kindfile.Reader | _Reader = _Reader(where, root, over)
    if kindfile.is_one(root):
        reader = kindfile.Reader(where)
        for option in over.given():
            reader.problem(root, f"{option} beside a cluster file of kind", expected="kind's own keys in the file")
    lab = reader.lab(root, name)
    if reader.problems:
        raise ConfigError(*reader.problems)
    return with_policies(lab, over.policies, where)


def with_policies(lab: spec.Lab, policies: Iterable[Manifest], where: str) -> spec.Lab:
    """Those beside what the lab has, or in the place of those of the same names. `ConfigError`."""
    more = by_name(policies)
    if not more:
        return lab
    lab = replace(lab, policies=tuple((by_name(lab.policies or ()) | more).values()))
    if problems := misfits(understand(lab.network), lab, where):
        raise ConfigError(*problems)
    return lab


def regular(
    *,
    name: str,
    backend: str,
    families: tuple[Family, ...],
    nft: bool,
    nodes: int,
    pods: int,
    store: spec.Store = "etcd",
    kubelets: bool = False,
    nat: spec.Nat | None = None,
    shape: topology.Wanted = topology.FULL,
    password: bool = False,
) -> spec.Lab:
    """The lab of options alone. `ConfigError` for an unknown back end, too small a network, or what is no topology."""
    network = spec.net_conf(backend=backend, families=families, nft=nft)
    lab = spec.regular(
        name=name, network=network, families=families, nodes=nodes, pods=pods, store=store, kubelets=kubelets, nat=nat
    )
    names = [node.name for node in lab.nodes]
    lab = replace(lab, topology=topology.pairs(shape, names), password=password)
    problems = misfits(understand(network, f"--backend {backend}"), lab, f"--nodes {nodes}")
    if problems := [*problems, *topology.problems(lab.topology, names, "--topology")]:
        raise ConfigError(*problems)
    return lab


def _key(node: yaml.Node, path: Sequence[str]) -> yaml.Node:
    """The node of this key, or of the nearest one above it."""
    entries = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in reversed(entries):  # of several, the last counts
        if str(key.value).casefold() == path[0].casefold():
            return _key(value, path[1:]) if len(path) > 1 and isinstance(value, yaml.MappingNode) else key
    return node


def _put(config: dict[str, Any], name: str, value: Any) -> None:
    """Into a network configuration, whose keys have no case; of several, the last counts."""
    config[next((key for key in reversed(config) if key.casefold() == name.casefold()), name)] = value


class _Reader(yamlfile.Reader):
    """What options say (`over`) takes the place of what the file says, or is refused beside it."""

    def __init__(self, where: str, root: yaml.Node, over: Overrides) -> None:
        super().__init__(where)
        self._root = root  # where options are told of for which the file has no place
        self._over = over
        self._ports = PortMappings(self)
        self._links: dict[str, Link] = {}  # by node
        self._folder = os.path.dirname(where)  # noqa: PTH120 - text, and "" for standard input

    def lab(self, root: yaml.Node, name: str) -> spec.Lab:
        parts = self.mapping(root, tuple(labkeys.LAB), "lab")
        self.constants(parts, apiVersion=labkeys.API, kind=labkeys.KIND)
        name = self.lab_name(parts, name)
        network, kubernetes = parts.get("network"), parts.get("kubernetes", root)
        store, kubelets = self._store(parts)
        text, checked = self._network(network, store)
        nodes, pods = self._nodes(parts.get("nodes"), parts.get("pods"), everywhere=0 if kubelets else 2)
        places = [*(each.name for each in nodes), STORE]
        if kubelets and any(each.segment > 1 for each in nodes):
            self.problem(kubernetes, "several segments in a lab of Kubernetes nodes", expected="one segment")
        if kubelets and any(each.daemon for each in nodes):
            expected = "weft as a DaemonSet"
            self.problem(kubernetes, "another daemon in a lab of Kubernetes nodes", expected=expected)
        if kubelets and pods:
            self.problem(kubernetes, "pods in a lab of Kubernetes nodes", expected="pods from its API")
        lab = spec.Lab(
            name=name or "weft",
            network=text,
            families=(4, 6) if checked is None else checked.families,
            nodes=nodes,
            pods=pods,
            store=store,
            kubelets=kubelets,
            nat=self._nat(parts, {each.segment for each in nodes}),
            password=self._over.password or self._is_set(parts, "password"),
            topology=self._topology(parts.get("topology"), [each.name for each in nodes]),
            links={name: link for name, link in self._links.items() if link != Link()},
            cuts=tuple(read_cuts(self, parts.get("cuts"), places)),
            policies=policyfile.of_lab(self, parts.get(labkeys.POLICIES), self._folder),
        )
        lab = read_services(self, parts.get(labkeys.SERVICES), lab)
        if checked is None:
            return lab
        place = network or parts.get("nodes")
        self.add(place, misfits(checked, lab, f"{self.at(place)} {'network' if network else 'nodes'}"))
        return lab

    def _is_set(self, parts: dict[str, yaml.Node], key: str) -> bool:
        return key in parts and self.value(parts[key], bool, key) is True

    def _store(self, parts: dict[str, yaml.Node]) -> tuple[spec.Store, bool]:
        """What holds the leases, and whether nodes are Kubernetes'."""
        kubelets = self._over.kubernetes or self._is_set(parts, "kubernetes")
        store: spec.Store | None = self._over.store
        if store is None and "store" in parts:
            store = self.value(parts["store"], spec.Store, "store") or "etcd"  # type: ignore[arg-type]
        if kubelets and store not in (None, "kubernetes"):
            seen = f"{store} as the store of Kubernetes nodes"
            self.problem(parts.get("store", self._root), seen, expected="kubernetes, or nothing")
        return store or ("kubernetes" if kubelets else "etcd"), kubelets

    def _nat(self, parts: dict[str, yaml.Node], used: AbstractSet[int]) -> dict[int, spec.Nat]:
        found, kind = read_nat(self, parts.get("nat"), used), self._over.nat
        if kind is None:
            return found
        if "nat" not in parts:
            seen = f"--nat {kind} beside a file that has nothing behind a NAT"
            self.problem(self._root, seen, expected="nat in the file")
        return dict.fromkeys(found, kind)

    def _network(self, node: yaml.Node | None, store: spec.Store) -> tuple[str, NetConf | None]:
        """The text and the checked value; None if it is wrong."""
        over = self._over
        if node is None:
            backend, families = over.backend or spec.usual_backend(store), spec.FAMILIES[over.family or "4"]
            return self._checked(node, spec.net_conf(backend=backend, families=families, nft=over.nft))
        if over.family is not None:
            expected = "EnableIPv4, EnableIPv6 and the networks in the file"
            self.problem(node, f"--family {over.family} beside a network", expected=expected)
        value = self.value(node, dict[str, Any], "network")
        if value is None:
            return "", None
        if over.nft:
            _put(value, "EnableNFTables", True)  # noqa: FBT003 - a value
        if over.backend is not None:
            known: Any = next((value[key] for key in reversed(value) if key.casefold() == "backend"), {})
            if isinstance(known, dict):
                _put(known, "Type", over.backend)
                _put(value, "Backend", known)
        try:
            text = json.dumps(value)
        except (TypeError, ValueError) as error:  # a date, a set, bytes; an alias of what it stands in
            self.problem(node, f"network: {error}", expected="what JSON can say")
            return "", None
        self.distinct_keys(node)
        return self._checked(node, text)

    def _checked(self, node: yaml.Node | None, text: str) -> tuple[str, NetConf | None]:
        try:
            checked = understand(text, _NETWORK)
        except ConfigError as error:
            self._in_network(node, error.problems)
            return "", None
        # The daemon ignores these, as flannel does. In a lab file they are misspelt.
        self._in_network(node, checked.unknown)
        return text, checked

    def _in_network(self, node: yaml.Node | None, problems: Iterable[Problem]) -> None:
        """Add problems of the network configuration, each with the line of its key."""
        for problem in problems:
            place = node and _key(node, problem.where.removeprefix(_NETWORK).removeprefix(": ").split("."))
            self.add(place, [replace(problem, where=f"{self.at(place)} {problem.where}")])

    def _nodes(
        self, node: yaml.Node | None, pods: yaml.Node | None, *, everywhere: int
    ) -> tuple[tuple[spec.Node, ...], tuple[spec.Pod, ...]]:
        """`everywhere` is how many pods are on a node that says nothing."""
        if self._over.pods is not None:
            everywhere = self._given(self._over.pods, "pods", least=0, most=spec.MOST_PODS)
            pods = self._refused_pods(node, pods)
        elif isinstance(pods, yaml.ScalarNode):
            everywhere = self.count(pods, "pods", least=0, most=spec.MOST_PODS)
        elif pods is not None:
            everywhere = 0
        nodes: dict[str, spec.Node] = {}
        found: list[tuple[yaml.Node | None, spec.Pod]] = []
        for index, (place, name, parts) in enumerate(self._node_entries(node), 1):
            if place is not None:
                self.check_name(place, "a node", name)
            if name in nodes:
                self.problem(place, f"a second node named {name!r}", expected="names that differ")
            ports = self._ports.read(parts.get(labkeys.PORTS))
            segment = 1
            if "segment" in parts:
                segment = self.count(parts["segment"], "segment", least=1, most=spec.MOST_SEGMENTS)
            made = spec.Node(name=name, index=index, segment=segment, daemon=self._daemon(parts), ports=ports)
            nodes.setdefault(name, made)
            if "link" in parts:
                self._links[name] = read_link(self, parts["link"])
            found += self._pods_of(parts.get("pods"), name, index, everywhere)
        found += self._pod_list(pods, nodes)
        return tuple(nodes.values()), self._distinct(found, nodes)

    def _given(self, count: int, what: str, *, least: int, most: int) -> int:
        """What an option says; `least` if that cannot be."""
        if least <= count <= most:
            return count
        self.problem(self._root, f"{what}: {count}", expected=f"{least} to {most}")
        return least

    def _refused_pods(self, nodes: yaml.Node | None, pods: yaml.Node | None) -> yaml.Node | None:
        """The list of pods beside which the option --pods is refused, if there is one."""
        seen, expected = f"--pods {self._over.pods}", "one of the two"
        own = nodes.value if isinstance(nodes, yaml.SequenceNode) else []
        if isinstance(pods, yaml.SequenceNode):
            self.problem(pods, f"{seen} beside a list of pods", expected=expected)
        elif own and all(_key(node, ["pods"]) is not node for node in own):
            self.problem(nodes, f"{seen}, and each node says its own", expected=expected)
        return pods if isinstance(pods, yaml.SequenceNode) else None

    def _topology(self, node: yaml.Node | None, names: Sequence[str]) -> tuple[topology.Pair, ...]:
        wanted: Any = self._over.topology
        if wanted is not None:
            node = self._root
        elif node is None:
            return ()
        else:
            shape = isinstance(node, yaml.ScalarNode)
            wanted = self.value(node, str if shape else list[list[str]], "topology")
        try:
            pairs = topology.pairs(wanted or topology.FULL, names)
        except ValueError as error:
            self.problem(node, str(error), expected=f"{topology.SHAPES}, or lists of nodes")
            return ()
        self.add(node, topology.problems(pairs, names, self.at(node)))
        return pairs

    def _daemon(self, parts: dict[str, yaml.Node]) -> str:
        """One with a slash is seen from the file's folder."""
        if "daemon" not in parts:
            return ""
        program = self.value(parts["daemon"], str, "daemon")
        if program == "":
            self.problem(parts["daemon"], "daemon: ''", expected="a program")
        return os.path.join(self._folder, program) if program and "/" in program else program or ""  # noqa: PTH118

    def _node_entries(self, node: yaml.Node | None) -> Iterator[tuple[yaml.Node | None, str, dict[str, yaml.Node]]]:
        """Its place in the file, its name, and what else is said of it."""
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if isinstance(item, yaml.ScalarNode):
                    yield item, self.value(item, str, "a node's name") or "", {}
                else:
                    parts = self.mapping(item, tuple(labkeys.NODE), "node", needed=labkeys.needed(labkeys.NODE))
                    name = self.value(parts["name"], str, "a node's name") if "name" in parts else None
                    if name is not None:
                        yield parts["name"], name, parts
            if not 1 <= len(node.value) <= spec.MOST_NODES:
                self.problem(node, f"{len(node.value) or 'no'} nodes", expected=f"1 to {spec.MOST_NODES}")
            if self._over.nodes is not None:
                self.problem(node, f"--nodes {self._over.nodes} beside a list of nodes", expected="one of the two")
            return
        count = 3
        if self._over.nodes is not None:
            count = self._given(self._over.nodes, "nodes", least=1, most=spec.MOST_NODES)
        elif node is not None:
            count = self.count(node, "nodes", least=1, most=spec.MOST_NODES)
        for index in range(1, count + 1):
            yield None, f"node{index}", {}

    def _pods_of(
        self, node: yaml.Node | None, name: str, index: int, everywhere: int
    ) -> Iterator[tuple[yaml.Node | None, spec.Pod]]:
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                pod = self.value(item, str, "a pod's name")
                if pod is not None:
                    yield item, spec.Pod(name=pod, node=name)
            return
        count = everywhere if node is None else self.count(node, "pods", least=0, most=spec.MOST_PODS)
        for number in range(1, count + 1):
            yield None, spec.Pod(name=f"pod{index}-{number}", node=name)

    def _pod_list(self, node: yaml.Node | None, nodes: Iterable[str]) -> Iterator[tuple[yaml.Node | None, spec.Pod]]:
        if not isinstance(node, yaml.SequenceNode):
            if isinstance(node, yaml.MappingNode):
                self.problem(node, "pods is a mapping", expected="a number, or a list of {name: …, node: …}")
            return
        for item in node.value:
            parts = self.mapping(item, tuple(labkeys.POD), "pod", needed=labkeys.needed(labkeys.POD))
            name, on = (
                self.value(parts[key], str, f"a pod's {key}") if key in parts else None for key in ("name", "node")
            )
            if on is not None and on not in nodes:
                self.problem(parts["node"], f"a pod on node {on!r}", expected="a node of this lab", known=nodes)
            elif name is not None and on is not None:
                yield parts["name"], read_pod(self, parts, name, on)

    def _distinct(self, found: list[tuple[yaml.Node | None, spec.Pod]], nodes: Iterable[str]) -> tuple[spec.Pod, ...]:
        pods: dict[str, spec.Pod] = {}
        for place, pod in found:
            if place is not None:
                self.check_name(place, "a pod", pod.name)
            if pod.name in pods or pod.name in nodes:
                other = "pod" if pod.name in pods else "node"
                self.problem(
                    place, f"a pod named {pod.name!r} beside a {other} of that name", expected="names that differ"
                )
            pods.setdefault(pod.name, pod)
        return tuple(pods.values())
