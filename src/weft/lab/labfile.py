"""The lab file: YAML → `spec.Lab`, with every mistake of the file named at once, each with its line.

    apiVersion: weft.dev/v1      # may be left out, as may kind
    kind: Lab
    name: edge
    network: {Network: 10.244.0.0/16, Backend: {Type: vxlan, DirectRouting: true}}   # flannel's net-conf
    nodes: 3                     # or a list of names, or of {name: …, pods: …}; pods as below
    pods: 2                      # on each node that does not say; or a list of {name: …, node: …}
    store: etcd                  # or kubernetes
    kubernetes: false            # true: nodes of Kubernetes, which has pods of its own

Values are checked by msgspec; the walk over YAML nodes is ours, because msgspec stops at the first mistake and
does not know lines.
"""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import yaml

from weft.config.netconf import NetConf, parse_netconf
from weft.desired.backends import BACKENDS
from weft.lab import spec
from weft.lab.inside import underlay
from weft.model.errors import ConfigError, Problem
from weft.model.value import replace

T = TypeVar("T")

_API: Final = "weft.dev/v1"
_NETWORK: Final = "network"
_NOT_FOR_PODS: Final = 3  # addresses of a node's subnet: its first and last, and the bridge's
_KEYS: Final = ("apiVersion", "kind", "name", "network", "nodes", "pods", "store", "kubernetes")
_understand = partial(parse_netconf, backends=BACKENDS)


def read(text: str, where: str, *, name: str = "") -> spec.Lab:
    """Return the lab that a file describes; `where` is its path, `name` wins over the file's own.

    Raises `ConfigError` with all problems of the file, each `where` with the line.
    """
    reader = _Reader(where)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = Problem(code="LAB-001", where=f"{where}:{line}", seen=str(error.problem), expected="YAML")
        raise ConfigError(problem) from None
    except yaml.YAMLError as error:
        raise ConfigError(Problem(code="LAB-001", where=f"{where}:1", seen=str(error), expected="YAML")) from None
    except RecursionError:
        seen = "nested too deeply"
        raise ConfigError(Problem(code="LAB-001", where=f"{where}:1", seen=seen, expected="a lab file")) from None
    lab = reader.lab(root, name)
    if reader.problems:
        raise ConfigError(*reader.problems)
    return lab


def regular(
    *,
    name: str,
    backend: str,
    families: tuple[spec.Family, ...],
    nft: bool,
    nodes: int,
    pods: int,
    store: spec.Store = "etcd",
    kubelets: bool = False,
) -> spec.Lab:
    """Return the lab that options describe, its net-conf checked. `ConfigError` if there is no such back end."""
    network = spec.net_conf(backend=backend, families=families, nft=nft)
    lab = spec.regular(
        name=name, network=network, families=families, nodes=nodes, pods=pods, store=store, kubelets=kubelets
    )
    if problems := _misfits(_understand(network, f"--backend {backend}"), lab, f"--nodes {nodes}"):
        raise ConfigError(*problems)
    return lab


def _misfits(network: NetConf, lab: spec.Lab, where: str) -> list[Problem]:
    """Say what would keep nodes of this lab from a subnet or from each other, or pods from an address."""
    problems = []
    nodes = len(lab.nodes)
    fullest, pods = max(Counter(pod.node for pod in lab.pods).items(), key=lambda item: item[1], default=("", 0))
    for family, name, pool in ((4, "Network", network.v4), (6, "IPv6Network", network.v6)):
        if pool is None:
            continue
        bits = pool.network.max_prefixlen - pool.subnet_len
        subnets = (int(pool.last) - int(pool.first) >> bits) + 1
        if subnets < nodes:
            seen = f"{name} {pool.network} has {subnets} subnets (/{pool.subnet_len}) for {nodes} nodes"
            hint = f"Write a lab file with a wider {name}, or with a larger SubnetLen."
            problems.append(
                Problem(code="LAB-001", where=where, seen=seen, expected="a subnet for each node", hint=hint)
            )
        room = (1 << bits) - _NOT_FOR_PODS
        if room < pods:
            seen = f"{fullest} has {pods} pods, and its IPv{family} subnet (/{pool.subnet_len}) room for {room}"
            hint = f"Write a smaller {name.replace('Network', 'SubnetLen')}, or fewer pods."
            problems.append(
                Problem(code="LAB-001", where=where, seen=seen, expected="an address for each pod", hint=hint)
            )
        below = underlay.address(4 if name == "Network" else 6).network
        if pool.network.version == below.version and pool.network.overlaps(below):
            seen = f"{name} {pool.network} overlaps {below}, where the lab's nodes are"
            problems.append(Problem(code="ADDR-001", where=where, seen=seen, expected="a network of the pods' own"))
    return problems


def _key(node: yaml.Node, path: Sequence[str]) -> yaml.Node:
    """Return the node of the key that `path` leads to, or of the nearest one above it that is there."""
    entries = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in reversed(entries):  # of several, the last counts
        if str(key.value).casefold() == path[0].casefold():
            return _key(value, path[1:]) if len(path) > 1 and isinstance(value, yaml.MappingNode) else key
    return node


class _Reader:
    """Walks the YAML nodes of one file and collects its problems."""

    def __init__(self, where: str) -> None:
        self._found: list[tuple[int, Problem]] = []
        self._where = where

    @property
    def problems(self) -> list[Problem]:
        """What is wrong, from the top of the file to its end."""
        return [problem for _, problem in sorted(self._found, key=lambda found: found[0])]

    def lab(self, root: yaml.Node | None, name: str) -> spec.Lab:
        parts = self._mapping(root, _KEYS, "lab") if root is not None else {}
        self._head(parts)
        if "name" in parts:
            own = self._value(parts["name"], str, "name")
            if own is not None:
                self._add(parts["name"], spec.name_problem("a lab", self._at(parts["name"]), own))
            name = name or own or ""
        network = parts.get("network")
        text, checked = self._network(network)
        store, kubelets = self._store(parts)
        nodes, pods = self._nodes(parts.get("nodes"), parts.get("pods"), everywhere=0 if kubelets else 2)
        if kubelets and pods:
            self._problem(parts["kubernetes"], "pods in a lab of Kubernetes nodes", expected="pods from its API")
        if checked is None:
            return spec.Lab(name=name or "weft", network="", families=(), nodes=nodes, pods=pods)
        lab = spec.Lab(
            name=name or "weft",
            network=text,
            families=checked.families,
            nodes=nodes,
            pods=pods,
            store=store,
            kubelets=kubelets,
        )
        place = network or parts.get("nodes")
        self._add(place, _misfits(checked, lab, f"{self._at(place)} {'network' if network else 'nodes'}"))
        return lab

    def _head(self, parts: dict[str, yaml.Node]) -> None:
        for key, only in (("apiVersion", _API), ("kind", "Lab")):
            if key in parts and (seen := self._value(parts[key], str, key)) not in (only, None):
                self._problem(parts[key], f"{key} is {seen!r}", expected=only)

    def _store(self, parts: dict[str, yaml.Node]) -> tuple[spec.Store, bool]:
        """Return what holds the leases, and whether nodes are ones of Kubernetes: then it does."""
        kubelets = "kubernetes" in parts and self._value(parts["kubernetes"], bool, "kubernetes") is True
        if "store" not in parts:
            return "kubernetes" if kubelets else "etcd", kubelets
        store: spec.Store = self._value(parts["store"], spec.Store, "store") or "etcd"  # type: ignore[arg-type]
        if kubelets and store == "etcd":
            self._problem(parts["store"], "etcd as the store of Kubernetes nodes", expected="kubernetes, or nothing")
        return store, kubelets

    def _network(self, node: yaml.Node | None) -> tuple[str, NetConf | None]:
        """Return the net-conf as text and checked, None if it is wrong."""
        if node is None:
            text = spec.net_conf(backend="vxlan", families=(4,), nft=False)
            return text, _understand(text)
        value = self._value(node, dict[str, Any], "network")
        if value is None:
            return "", None
        try:
            text = json.dumps(value)
        except (TypeError, ValueError) as error:  # a date, a set, bytes; an alias of what it stands in
            self._problem(node, f"network: {error}", expected="what JSON can say")
            return "", None
        self._distinct_keys(node)
        try:
            checked = _understand(text, _NETWORK)
        except ConfigError as error:
            self._in_network(node, error.problems)
            return "", None
        # The daemon ignores these, as flannel does. In a lab file they are misspelt.
        self._in_network(node, checked.unknown)
        return text, checked

    def _distinct_keys(self, node: yaml.Node) -> None:
        """Note each key that stands twice in one mapping at or below `node`: YAML would take the last in silence."""
        children = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value).casefold()
                if name in seen:
                    self._problem(key, f"{key.value!r} a second time", expected="each key once")
                seen.add(name)
                children.append(value)
        for child in children:
            self._distinct_keys(child)

    def _in_network(self, node: yaml.Node, problems: Iterable[Problem]) -> None:
        """Note problems of the network configuration, each with the line of its key."""
        for problem in problems:
            place = _key(node, problem.where.removeprefix(_NETWORK).removeprefix(": ").split("."))
            self._add(place, [replace(problem, where=f"{self._at(place)} {problem.where}")])

    def _nodes(
        self, node: yaml.Node | None, pods: yaml.Node | None, *, everywhere: int
    ) -> tuple[tuple[spec.Node, ...], tuple[spec.Pod, ...]]:
        """Return nodes and pods; `everywhere` is how many are on a node that says nothing."""
        if isinstance(pods, yaml.ScalarNode):
            everywhere = self._count(pods, "pods", least=0, most=spec.MOST_PODS)
        elif pods is not None:
            everywhere = 0
        nodes: dict[str, spec.Node] = {}
        found: list[tuple[yaml.Node | None, spec.Pod]] = []
        for index, (place, name, own) in enumerate(self._node_entries(node), 1):
            if place is not None:
                self._add(place, spec.name_problem("a node", self._at(place), name))
            if name in nodes:
                self._problem(place, f"a second node named {name!r}", expected="names that differ")
            nodes.setdefault(name, spec.Node(name=name, index=index))
            found += self._pods_of(own, name, index, everywhere)
        found += self._pod_list(pods, nodes)
        return tuple(nodes.values()), self._distinct(found, nodes)

    def _node_entries(self, node: yaml.Node | None) -> Iterator[tuple[yaml.Node | None, str, yaml.Node | None]]:
        """Yield each node's place in the file, its name and what it says about its pods."""
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if isinstance(item, yaml.ScalarNode):
                    yield item, self._value(item, str, "a node's name") or "", None
                else:
                    parts = self._mapping(item, ("name", "pods"), "node", needed=("name",))
                    name = self._value(parts["name"], str, "a node's name") if "name" in parts else None
                    if name is not None:
                        yield parts["name"], name, parts.get("pods")
            if not node.value:
                self._problem(node, "no nodes", expected="one node at least")
            return
        count = 3 if node is None else self._count(node, "nodes", least=1, most=spec.MOST_NODES)
        for index in range(1, count + 1):
            yield None, f"node{index}", None

    def _pods_of(
        self, node: yaml.Node | None, name: str, index: int, everywhere: int
    ) -> Iterator[tuple[yaml.Node | None, spec.Pod]]:
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                pod = self._value(item, str, "a pod's name")
                if pod is not None:
                    yield item, spec.Pod(name=pod, node=name)
            return
        count = everywhere if node is None else self._count(node, "pods", least=0, most=spec.MOST_PODS)
        for number in range(1, count + 1):
            yield None, spec.Pod(name=f"pod{index}-{number}", node=name)

    def _pod_list(self, node: yaml.Node | None, nodes: Iterable[str]) -> Iterator[tuple[yaml.Node | None, spec.Pod]]:
        if not isinstance(node, yaml.SequenceNode):
            if isinstance(node, yaml.MappingNode):
                self._problem(node, "pods is a mapping", expected="a number, or a list of {name: …, node: …}")
            return
        for item in node.value:
            parts = self._mapping(item, ("name", "node"), "pod", needed=("name", "node"))
            values = {key: self._value(part, str, f"a pod's {key}") for key, part in parts.items()}
            name, on = values.get("name"), values.get("node")
            if on is not None and on not in nodes:
                self._problem(parts["node"], f"a pod on node {on!r}", expected="a node of this lab", known=nodes)
            elif name is not None and on is not None:
                yield parts["name"], spec.Pod(name=name, node=on)

    def _distinct(self, found: list[tuple[yaml.Node | None, spec.Pod]], nodes: Iterable[str]) -> tuple[spec.Pod, ...]:
        pods: dict[str, spec.Pod] = {}
        for place, pod in found:
            if place is not None:
                self._add(place, spec.name_problem("a pod", self._at(place), pod.name))
            if pod.name in pods or pod.name in nodes:
                other = "pod" if pod.name in pods else "node"
                self._problem(
                    place, f"a pod named {pod.name!r} beside a {other} of that name", expected="names that differ"
                )
            pods.setdefault(pod.name, pod)
        return tuple(pods.values())

    def _count(self, node: yaml.Node, what: str, *, least: int, most: int) -> int:
        value = self._value(node, int, what)
        if value is None:
            return least
        if not least <= value <= most:
            self._problem(node, f"{what}: {value}", expected=f"{least} to {most}")
            return least
        return value

    def _value(self, node: yaml.Node, kind: type[T], what: str) -> T | None:
        try:
            return msgspec.convert(yaml.constructor.SafeConstructor().construct_document(node), kind)
        except (msgspec.ValidationError, yaml.MarkedYAMLError) as error:
            # A YAML error's own text shows the line once more, below the problem itself.
            self._problem(node, f"{what}: {error.problem if isinstance(error, yaml.MarkedYAMLError) else error}")
            return None

    def _mapping(
        self, node: yaml.Node, known: tuple[str, ...], what: str, *, needed: tuple[str, ...] = ()
    ) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._problem(
                node,
                f"the {what} is a {type(node).__name__.removesuffix('Node').lower()}",
                expected=f"a mapping with {', '.join(known)}",
            )
            return {}
        parts: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name not in known:
                self._problem(
                    key, f"unknown key {name!r}", expected=f"one of {', '.join(known)}", known=known, name=name
                )
            elif name in parts:
                self._problem(key, f"{name!r} a second time", expected="each key once")
            else:
                parts[name] = value
        for name in needed:
            if name not in parts:
                self._problem(node, f"a {what} without {name!r}", expected=f"a mapping with {', '.join(needed)}")
        return parts

    def _at(self, node: yaml.Node | None) -> str:
        return self._where if node is None else f"{self._where}:{node.start_mark.line + 1}"

    def _problem(
        self, node: yaml.Node | None, seen: str, *, expected: str = "", known: Iterable[str] = (), name: str = ""
    ) -> None:
        close = difflib.get_close_matches(name or seen.rpartition(" ")[2].strip("'"), list(known), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "docs/reference/lab-file.md describes the file."
        problem = Problem(code="LAB-001", where=self._at(node), seen=seen, expected=expected, hint=hint)
        self._add(node, [problem])

    def _add(self, node: yaml.Node | None, problems: Iterable[Problem]) -> None:
        line = 0 if node is None else node.start_mark.line
        self._found += [(line, problem) for problem in problems]
