"""Nodes whose leases are in Kubernetes: real daemons on one underlay, with a real API server that all of them reach."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import NOBODY, ApiServer
from tests.support.kubernetes.kubeapi import Json
from tests.support.kubernetes.kubeobjects import NODES
from tests.support.weftd import DUAL, HOST_GW, ONLY_V6, VXLAN, Daemon, Underlay

MANIFEST: Final = Path(__file__).parents[3] / "deploy" / "kubernetes.yaml"
# What weft may ask of the API.
[RULES] = (each["rules"] for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ClusterRole")
# And beside that with --network-policy.
_POLICIES: Final = MANIFEST.with_name("network-policy.yaml")
[POLICY_RULES] = (each["rules"] for each in yaml.safe_load_all(_POLICIES.read_text()) if each["kind"] == "ClusterRole")
__all__ = ["DUAL", "HOST_GW", "ONLY_V6", "VXLAN", "KubeCluster", "KubeDaemon"]


class KubeDaemon(Daemon):
    """A node of Kubernetes, `node1`, and the `weftd --kube-subnet-mgr` on it.

    Its podCIDRs are 10.5.N.0/24 and fd05:0:0:N::/64.
    """

    def __init__(
        self, underlay: Underlay, folder: Path, number: int, *, server: ApiServer, token: str, net_conf: Path
    ) -> None:
        super().__init__(underlay, folder, number, prefix="")
        self.server = server
        self.name = f"node{number}"
        self.environment = {"NODE_NAME": self.name}
        self.token = token
        self._net_conf = net_conf

    def store_flags(self) -> list[str]:
        config = kubeobjects.write_kubeconfig(self.folder / "kubeconfig", self.server.api(self.token))
        return ["--kube-subnet-mgr", f"--kubeconfig-file={config}", f"--net-config-path={self._net_conf}"]

    def spawn(self, *flags: str, env: dict[str, str] | None = None, wrap: Sequence[str] = ()) -> "KubeDaemon":
        super().spawn(*flags, env={**self.environment, **(env or {})}, wrap=wrap)
        return self

    def register(self, *, subnets: bool = True, **meta: Any) -> "KubeDaemon":
        """Have the API know the node, as kubelet does."""
        cidrs = (f"10.5.{self.number}.0/24", f"fd05:0:0:{self.number:x}::/64") if subnets else ()
        kubeobjects.add_node(self.server.admin, self.name, *cidrs, wait=False, **meta)
        return self

    @property
    def object(self) -> Json:
        return self.server.admin.get(f"{NODES}/{self.name}")

    @property
    def said(self) -> dict[str, str]:
        """What it publishes: annotations without their prefix."""
        return kubeobjects.published(self.server.admin, self.name)


class KubeCluster:
    """Nodes that share a network configuration and an API server."""

    def __init__(self, underlay: Underlay, server: ApiServer, folder: Path) -> None:
        self.underlay = underlay
        self.server = server
        self.token = NOBODY  # by which its daemons ask
        self.daemons: list[KubeDaemon] = []
        self._folder = folder
        self._net_conf = folder / "net-conf.json"

    def configure(self, *parts: dict[str, Any]) -> None:
        """Write the network configuration, of which later parts win."""
        merged: dict[str, Any] = {}
        for part in parts or (VXLAN,):
            merged |= part
        for key in ("SubnetMin", "SubnetMax"):
            merged.pop(key, None)
        self._net_conf.write_text(json.dumps(merged))

    def node(self, number: int, *, kind: Callable[..., KubeDaemon] = KubeDaemon) -> KubeDaemon:
        """Make a node, which is not registered and whose daemon, of a kind, is not started."""
        folder = self._folder / f"node{number}"
        made = kind(self.underlay, folder, number, server=self.server, token=self.token, net_conf=self._net_conf)
        self.daemons.append(made)
        return made

    def nodes(self, *numbers: int) -> list[KubeDaemon]:
        """Register nodes, start their daemons at once and wait until all are ready."""
        made = [self.node(number).register().spawn() for number in numbers]
        for node in made:
            node.wait_ready()
        return made

    def close(self) -> None:
        for node in self.daemons:
            node.close()


def clusters(underlay: Underlay, server: ApiServer, folder: Path) -> Iterator[KubeCluster]:
    """One cluster, closed afterwards: the body of a fixture."""
    kubeobjects.grant(server.admin, "weft", kubeobjects.user("nobody"), RULES)
    cluster = KubeCluster(underlay, server, folder)
    try:
        yield cluster
    finally:
        cluster.close()
