"""A node to measure whose leases are in Kubernetes: the real API server, with as many nodes of 10 KB as wanted."""

import http.client
import json
import re
import ssl
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self

from benchmarks.world import STORE, Peer, World
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.apiserver import ADMIN, ApiServer
from tests.support.kubernetes.kubeobjects import flannel

OWN_NAME: Final = "node-own"
_AT_ONCE: Final = 50  # a request to etcd takes 1.5 MB
# What kubelet writes: some fifty images, by tag and by digest.
_IMAGES: Final = [
    {
        "names": [f"registry.example/team/service-{number}@sha256:{number:064x}", f"registry.example/service:{number}"],
        "sizeBytes": 100_000_000 + number,
    }
    for number in range(45)
]


def node_of(name: str, subnet: str, annotations: dict[str, str]) -> dict[str, Any]:
    """A node as kubelet keeps it: 10 KB of JSON."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": f"{abs(hash(name)):032x}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "spec": {"podCIDR": subnet, "podCIDRs": [subnet]},
        "status": {"conditions": [ready], "images": _IMAGES, "nodeInfo": {}},
    }


class KubeWorld(World):
    """A world whose store is Kubernetes; `nodes` peers are registered and publish their leases."""

    def __init__(self, *, nodes: int = 0) -> None:
        super().__init__()
        self.nodes = [Peer(index) for index in range(nodes)]
        self.variables = {"NODE_NAME": OWN_NAME}

    def __enter__(self) -> Self:
        super().__enter__()
        # flanneld ends with a panic on a node without any annotation; a kubelet always writes this one.
        kubelets = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        registered = [node_of(OWN_NAME, "10.0.1.0/24", kubelets)]
        for peer in self.nodes:
            said = flannel(str(peer.public), peer.mac)
            registered.append(node_of(f"peer-{peer.subnet.network_address}", str(peer.subnet), said))
        items = [(f"/registry/minions/{node['metadata']['name']}", json.dumps(node)) for node in registered]
        for start in range(0, len(items), _AT_ONCE):
            self.put(dict(items[start : start + _AT_ONCE]))
        etcd: Any = SimpleNamespace(host="127.0.0.1", url=STORE)
        self.server = ApiServer(self.folder / "apiserver", etcd, netns=self.netns).start()
        (self.folder / "net-conf.json").write_text(json.dumps(self.config))
        self.kubeconfig = kubeobjects.write_kubeconfig(self.folder / "kubeconfig", self.server.admin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.server.kill()
        super().__exit__(kind, error, tb)

    @property
    def store_flags(self) -> list[str]:
        """The API server, as an administrator."""
        config = self.folder / "net-conf.json"
        return ["--kube-subnet-mgr", f"--kubeconfig-file={self.kubeconfig}", f"--net-config-path={config}"]

    def received(self) -> float:
        """Megabytes that the daemon has received so far, by the kernel's count of the connections that it keeps."""
        said = self.netns.run("ss --tcp --info --processes --no-header --oneline --numeric")
        own = [line for line in said.splitlines() if f"pid={self._daemon.pid}," in line]
        return sum(int(number) for line in own for number in re.findall(r"bytes_received:(\d+)", line)) / 1e6

    def connection(self) -> "Kept":
        """A connection that is kept, to be used inside the namespace."""
        return Kept(self.server)


class Kept:
    """A connection to the API server for many requests in a row."""

    def __init__(self, server: ApiServer) -> None:
        context = ssl.create_default_context(cafile=server.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as weft does: Python 3.13 wants of a CA what Go does not
        self._connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
        self._headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/strategic-merge-patch+json"}

    def patch(self, name: str, body: dict[str, Any]) -> None:
        """Patch a node's status."""
        self._connection.request("PATCH", f"/api/v1/nodes/{name}/status", json.dumps(body), self._headers)
        with self._connection.getresponse() as answer:
            text = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise RuntimeError(f"the API server answers {answer.status}: {text[:300]!r}")

    def close(self) -> None:
        """End it."""
        self._connection.close()
