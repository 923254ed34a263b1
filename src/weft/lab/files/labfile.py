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
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import yaml

from weft.config.netconf import NetConf
from weft.lab import spec, topology
from weft.lab.files import kindfile, labkeys, policyfile, yamlfile
from weft.lab.files.nodes import Nodes
from weft.lab.files.parts import read_cuts, read_nat, read_services
from weft.lab.files.yamlfile import key_of
from weft.lab.links import STORE, Link
from weft.lab.manifests import Manifest, at_home, by_name
from weft.lab.network import misfits, understand
from weft.lab.spec import Overrides
from weft.model.errors import ConfigError, Problem
from weft.model.net import FAMILIES, Family
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
    more = by_name(at_home(each, in_api=lab.kubelets) for each in policies)
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


def _put(config: dict[str, Any], name: str, value: Any) -> None:
    """Into a network configuration, whose keys have no case; of several, the last counts."""
    config[next((key for key in reversed(config) if key.casefold() == name.casefold()), name)] = value


class _Reader(yamlfile.Reader):
    """What options say (`over`) takes the place of what the file says, or is refused beside it."""

    def __init__(self, where: str, root: yaml.Node, over: Overrides) -> None:
        super().__init__(where)
        self._root = root  # where options are told of for which the file has no place
        self._over = over
        self._folder = os.path.dirname(where)  # noqa: PTH120 - text, and "" for standard input

    def lab(self, root: yaml.Node, name: str) -> spec.Lab:
        parts = self.mapping(root, tuple(labkeys.LAB), "lab")
        self.constants(parts, apiVersion=labkeys.API, kind=labkeys.KIND)
        name = self.lab_name(parts, name)
        network, kubernetes = parts.get("network"), parts.get("kubernetes", root)
        store, kubelets = self._store(parts)
        text, checked = self._network(network, store)
        found = Nodes(self, self._root, self._over, self._folder)
        nodes, pods = found.read(parts.get("nodes"), parts.get("pods"), everywhere=0 if kubelets else 2)
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
            families=FAMILIES if checked is None else checked.families,
            nodes=nodes,
            pods=pods,
            store=store,
            kubelets=kubelets,
            nat=self._nat(parts, {each.segment for each in nodes}),
            password=self._over.password or self._is_set(parts, "password"),
            topology=self._topology(parts.get("topology"), [each.name for each in nodes]),
            links={name: link for name, link in found.links.items() if link != Link()},
            cuts=tuple(read_cuts(self, parts.get("cuts"), places)),
        )
        policies = policyfile.of_lab(self, parts.get(labkeys.POLICIES), self._folder)
        if policies is not None:
            lab = replace(lab, policies=tuple(at_home(each, in_api=lab.kubelets) for each in policies))
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
            place = node and key_of(node, problem.where.removeprefix(_NETWORK).removeprefix(": ").split("."))
            self.add(place, [replace(problem, where=f"{self.at(place)} {problem.where}")])

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
