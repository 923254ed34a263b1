"""Kubernetes' API server and controller manager, the real ones, which scripts/kubernetes.sh builds.

RBAC decides what is allowed. Nobody but `admin` may do anything at first; `kubeobjects` beside it makes nodes,
accounts and rules. All of it is on one address, and in a network namespace when one is given: `netns`.
"""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import etcd as stores
from tests.support.etcd import Etcd
from tests.support.kubernetes import kubeobjects
from tests.support.kubernetes.kubeapi import Api
from tests.support.netns import Netns
from tests.support.server import Server

BUILD: Final = Path(__file__).parents[3] / "scripts" / "kubernetes.sh"
CLUSTER_CIDR: Final = "10.244.0.0/16"
SERVICE_CIDR: Final = "10.96.0.0/16"
ADMIN: Final = "admin-token"
NOBODY: Final = "nobody-token"  # somebody known, who may do nothing: the user nobody
_CONTROLLERS: Final = "controllers-token"
_TOKENS: Final = f"""\
{ADMIN},admin,admin-uid,"system:masters"
{NOBODY},nobody,nobody-uid
{_CONTROLLERS},system:kube-controller-manager,controllers-uid
"""
_NO_GO: Final = 4


def programs() -> Path:
    """The folder of the programs; skips the test where they cannot be built, fails it where they are not yet."""
    done = subprocess.run([BUILD, "--built"], capture_output=True, text=True, check=False)
    if done.returncode == _NO_GO:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


class ApiServer(Server):
    """An API server on an etcd, which runs, in the same namespace. A stop or a kill leaves what the etcd holds."""

    PATIENCE = 3.0  # with watches open, a minute is not enough

    def __init__(self, folder: Path, etcd: Etcd, *, netns: Netns | None = None) -> None:
        super().__init__(folder)
        self.etcd = etcd
        self.inside = _inside(netns)
        self.enter = _enter(netns)
        self.certs = stores.make_certs(folder / "certs", etcd.host)
        [self.port] = self.inside(lambda: stores.free_ports(1, etcd.host))
        self._tokens = folder / "tokens.csv"
        self._tokens.write_text(_TOKENS)
        self._program = programs() / "kube-apiserver"

    @property
    def url(self) -> str:
        return f"https://{self.etcd.host}:{self.port}"

    @property
    def ca(self) -> str:
        """The file with the certificate that the server's is signed by."""
        return self.certs.ca

    @property
    def admin(self) -> Api:
        """The API as one who may do everything."""
        return self.api(ADMIN)

    def api(self, token: str = "") -> Api:
        """The API as the owner of a token; as nobody known without one."""
        return Api(self.url, self.ca, token, inside=self.inside)

    @property
    def client(self) -> Api:
        """The API as the user `client`, by certificate."""
        return replace(self.api(), certificate=(self.certs.client, self.certs.client_key))

    def spawn(self, *flags: str) -> None:
        argv = [*self.enter, str(self._program), "--etcd-servers", self.etcd.url]
        argv += ["--bind-address", self.etcd.host, "--advertise-address", self.etcd.host]
        argv += ["--secure-port", str(self.port), "--endpoint-reconciler-type", "none"]
        argv += ["--tls-cert-file", self.certs.server, "--tls-private-key-file", self.certs.server_key]
        argv += ["--client-ca-file", self.ca, "--token-auth-file", str(self._tokens), "--authorization-mode", "RBAC"]
        argv += ["--service-cluster-ip-range", SERVICE_CIDR, "--service-account-issuer", self.url]
        argv += ["--service-account-key-file", self.certs.server]
        argv += ["--service-account-signing-key-file", self.certs.server_key]
        self.launch([*argv, *flags])

    def answers(self) -> bool:
        return self.admin.ready()

    def kubectl(self, *argv: str, stdin: str = "", token: str = ADMIN) -> str:
        """Run kubectl against this server; returns what it printed."""
        config = self.folder / f"{token}.kubeconfig"
        kubeobjects.write_kubeconfig(config, self.api(token))
        command = [*self.enter, str(programs() / "kubectl"), "--kubeconfig", str(config), *argv]
        ran = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=200, check=False)
        assert ran.returncode == 0, f"{' '.join(argv)}: {ran.stderr}"
        return ran.stdout


class Controllers(Server):
    """The controller manager, which gives each node without a podCIDR one of `cluster_cidrs`, one of each family."""

    def __init__(self, folder: Path, server: ApiServer, cluster_cidrs: Sequence[str] = (CLUSTER_CIDR,)) -> None:
        super().__init__(folder)
        self._server = server
        self._cluster_cidrs = ",".join(cluster_cidrs)
        self._config = folder / "kubeconfig"
        folder.mkdir(parents=True, exist_ok=True)
        kubeobjects.write_kubeconfig(self._config, server.api(_CONTROLLERS))
        self._program = programs() / "kube-controller-manager"

    def spawn(self, *flags: str) -> None:
        argv = [*self._server.enter, str(self._program), "--kubeconfig", str(self._config), "--secure-port", "0"]
        argv += ["--controllers", "node-ipam-controller", "--leader-elect=false"]
        argv += ["--allocate-node-cidrs=true", "--cluster-cidr", self._cluster_cidrs]
        argv += ["--service-cluster-ip-range", SERVICE_CIDR, "--use-service-account-credentials=true"]
        argv += ["--kube-api-qps", "500", "--kube-api-burst", "1000"]
        self.launch([*argv, *flags])

    def answers(self) -> bool:
        return True  # it works soon; tests wait for what it does


@contextmanager
def running(folder: Path, etcd: Etcd, *, netns: Netns | None = None) -> Iterator[ApiServer]:
    """Run an API server on an etcd that outlives it: without its store it ends slowly."""
    server = ApiServer(folder, etcd, netns=netns)
    try:
        yield server.start()
    finally:
        server.kill()


def _inside(netns: Netns | None) -> Callable[[Callable[[], Any]], Any]:
    return (lambda act: act()) if netns is None else netns.call


def _enter(netns: Netns | None) -> tuple[str, ...]:
    return () if netns is None else ("nsenter", f"--net={netns.path}")
