"""A cluster file of kind → `spec.Lab`: nodes of Kubernetes, named as kind names them.

    kind: Cluster
    apiVersion: kind.x-k8s.io/v1alpha4
    name: edge
    networking: {ipFamily: dual, podSubnet: "10.244.0.0/16,fd00:10:244::/56"}
    nodes:
      - role: control-plane       # nodes are all alike here: the API server is in none of them
        extraPortMappings: [{containerPort: 30080, hostPort: 8080}]
      - role: worker

What a lab does not have is refused by name: nothing of a file is left out in silence.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final, Literal

import yaml

from weft.config.netconf import NetConf
from weft.lab import spec
from weft.lab.files import labkeys, yamlfile
from weft.lab.files.parts import PortMappings
from weft.lab.network import misfits, understand
from weft.model.errors import ConfigError
from weft.model.net import Family

API: Final = "kind.x-k8s.io/v1alpha4"
_NAME: Final = "kind"  # a cluster without a name
_NO_KUBEADM: Final = "nodes of a lab are set up by weft, without kubeadm"
_NO_PATCHES: Final = "nodes of a lab have a containerd of their own"
_CLUSTER: Final = {
    "kubeadmConfigPatches": _NO_KUBEADM,
    "kubeadmConfigPatchesJSON6902": _NO_KUBEADM,
    "containerdConfigPatches": _NO_PATCHES,
    "containerdConfigPatchesJSON6902": _NO_PATCHES,
    "featureGates": "a lab has Kubernetes' defaults",
    "runtimeConfig": "a lab has Kubernetes' defaults",
}
_NODE: Final = {
    "image": "nodes run the programs that WEFT_KUBERNETES names",
    "extraMounts": "nodes see the machine's files",
    "labels": "`kubectl label node` sets them",
    "kubeadmConfigPatches": _NO_KUBEADM,
    "kubeadmConfigPatchesJSON6902": _NO_KUBEADM,
}
_NETWORKING: Final = {
    "apiServerAddress": "KUBECONFIG names it",
    "apiServerPort": "KUBECONFIG names it",
    "serviceSubnet": "it is fixed in a lab",
    "dnsSearch": "nodes have the machine's",
}
_FAMILIES: Final[dict[str, tuple[Family, ...]]] = {"ipv4": (4,), "ipv6": (6,), "dual": (4, 6)}


def is_one(root: yaml.Node) -> bool:
    entries = root.value if isinstance(root, yaml.MappingNode) else []
    said = {str(key.value): str(value.value) for key, value in entries if isinstance(value, yaml.ScalarNode)}
    return said.get("apiVersion", "").startswith("kind.x-k8s.io/")


class Reader(yamlfile.Reader):
    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._ports = PortMappings(self)

    def lab(self, root: yaml.Node, name: str) -> spec.Lab:
        keys = ("apiVersion", "kind", "name", "nodes", "networking")
        parts = self.mapping(root, keys, "cluster", elsewhere=_CLUSTER)
        self.constants(parts, apiVersion=API, kind="Cluster")
        name = self.lab_name(parts, name) or _NAME
        text, checked = self._network(parts.get("networking"))
        lab = spec.Lab(
            name=name,
            network=text,
            families=() if checked is None else checked.families,
            nodes=tuple(self._nodes(parts.get("nodes"), name, parts.get("name"))),
            pods=(),
            store="kubernetes",
            kubelets=True,
        )
        if checked is not None:
            place = parts.get("networking") or parts.get("nodes")
            self.add(place, misfits(checked, lab, f"{self.at(place)} networking"))
        return lab

    def _network(self, node: yaml.Node | None) -> tuple[str, NetConf | None]:
        """The text and the checked value; None if it is wrong."""
        known = ("ipFamily", "podSubnet", "disableDefaultCNI", "kubeProxyMode")
        parts = {} if node is None else self.mapping(node, known, "networking", elsewhere=_NETWORKING)
        said = self._one_of(parts, "ipFamily", Literal["ipv4", "ipv6", "dual"]) or "ipv4"
        mode = self._one_of(parts, "kubeProxyMode", Literal["iptables", "nftables"]) or "iptables"
        if "disableDefaultCNI" in parts:  # weft is the network either way
            self.value(parts["disableDefaultCNI"], bool, "disableDefaultCNI")
        families = _FAMILIES[said]
        network = json.loads(spec.net_conf(backend="vxlan", families=families, nft=mode == "nftables"))
        if "podSubnet" in parts:
            network |= self._subnets(parts["podSubnet"], families)
        text = json.dumps(network)
        try:
            return text, understand(text)
        except ConfigError as error:
            place = parts.get("podSubnet")
            for problem in error.problems:
                self.problem(place, f"podSubnet: {problem.seen}", expected=problem.expected)
            return "", None

    def _subnets(self, node: yaml.Node, families: tuple[Family, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for text in (self.value(node, str, "podSubnet") or "").split(","):
            try:
                network = ip_network(text.strip())
            except ValueError as error:
                self.problem(node, f"podSubnet: {error}", expected="a network of each family, with a comma between")
                continue
            key = "Network" if network.version == 4 else "IPv6Network"
            if network.version not in families:
                self.problem(node, f"podSubnet {network}", expected="a network of a family that ipFamily names")
            elif key in found:
                self.problem(node, f"podSubnet {network} beside {found[key]}", expected="one network of each family")
            found[key] = str(network)
        if found and len(found) < len(families):
            self.problem(node, f"podSubnet {' '.join(found.values())}", expected="a network of each family of ipFamily")
        return found

    def _one_of(self, parts: Mapping[str, yaml.Node], key: str, kind: Any) -> Any:
        return self.value(parts[key], kind, key) if key in parts else None

    def _nodes(self, node: yaml.Node | None, lab: str, named: yaml.Node | None) -> Iterator[spec.Node]:
        """`named` is where the file names the lab."""
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        if node is not None and not items:
            self.problem(node, "no nodes", expected="a list of nodes")
        counts: Counter[str] = Counter()
        for index, item in enumerate(items or [None], 1):
            parts = {} if item is None else self.mapping(item, ("role", labkeys.PORTS), "node", elsewhere=_NODE)
            role = self._one_of(parts, "role", Literal["control-plane", "worker"]) or "control-plane"
            counts[role] += 1
            name = f"{lab}-{role}{counts[role] if counts[role] > 1 else ''}"
            self.check_name(item or named, "a node", name)
            yield spec.Node(name=name, index=index, ports=self._ports.read(parts.get(labkeys.PORTS)))
