"""Kubernetes' own programs: where a lab finds them, who may do what, and their command lines.

They come from the directory that WEFT_KUBERNETES names, or from PATH. One self-signed certificate is for all servers
and signs the tokens of service accounts; each program has a token. All of it lies on the lab's own tmpfs and is worth
nothing outside.
"""

import json
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from weft.config.netconf import NetConf
from weft.lab.inside import underlay
from weft.lab.spec import SERVICES
from weft.model.errors import ConfigError, Problem
from weft.model.net import Family

DIRECTORY: Final = "WEFT_KUBERNETES"
STORE: Final = ("kube-apiserver", "kube-controller-manager", "kubectl", "openssl")
NODES: Final = (*STORE, "kube-scheduler", "kubelet", "kube-proxy", "containerd", "ctr", "runc")
_PACKAGES: Final = {"openssl": "openssl", "containerd": "containerd", "ctr": "containerd", "runc": "runc"}
HOME: Final = Path("/run/lab/kubernetes")
CERTIFICATE: Final = HOME / "server.crt"
KEY: Final = HOME / "server.key"
TOKENS: Final = HOME / "tokens.csv"
PORT: Final = 6443
WEFT: Final = "system:serviceaccount:kube-flannel:flannel"  # as deploy/kubernetes.yaml names it
_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_GROUPS: Final = {"admin": "system:masters", WEFT: "system:serviceaccounts"}
CONTROLLERS: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
FIRST: Final[dict[Family, str]] = {4: "10.96.0.1", 6: "fd31:96::1"}  # the API's own Service
DNS: Final[dict[Family, str]] = {4: "10.96.0.10", 6: "fd31:96::a"}


def find(name: str, environ: Mapping[str, str]) -> str:
    """It was found by `check`."""
    return shutil.which(name, path=environ["PATH"]) or name


def check(names: Iterable[str], environ: Mapping[str, str]) -> list[Problem]:
    return [_missing(name) for name in names if shutil.which(name, path=environ["PATH"]) is None]


def path(environ: Mapping[str, str]) -> list[str]:
    """The directory to look in before PATH, if one is named. `ConfigError` if it is not absolute."""
    directory = environ.get(DIRECTORY, "")
    if directory and not directory.startswith("/"):
        raise ConfigError(Problem("LAB-001", DIRECTORY, directory, expected="an absolute path"))
    return [directory] if directory else []


def _missing(name: str) -> Problem:
    hint = f"'apt-get install {_PACKAGES[name]}'." if name in _PACKAGES else ""
    hint = hint or f"scripts/kubernetes.sh builds Kubernetes' programs; {DIRECTORY} names the directory they are in."
    return Problem("HOST-002", name, "no such program on PATH", hint=hint)


def openssl(binary: str, service: Sequence[str], families: Sequence[Family], nodes: int) -> list[str]:
    """Writes certificate and key; `service` are the first addresses of the Service networks.

    Kubelets serve with it as well, so it has the addresses of all nodes.
    """
    own = [str(underlay.address(family, index).ip) for family in families for index in range(nodes + 1)]
    names = [f"DNS:{name}" for name in _NAMES]
    names += [f"IP:{address}" for address in ("127.0.0.1", "::1", *service, *own)]
    return [
        *(binary, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"),
        *("-subj", "/CN=weft lab", "-addext", f"subjectAltName={','.join(names)}"),
        *("-keyout", str(KEY), "-out", str(CERTIFICATE)),
    ]


class Accounts:
    """Users and their tokens, for one lab; `server` is the API's URL inside of the lab."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tokens: dict[str, str] = {}

    def write(self, users: Sequence[str]) -> None:
        """Into the file that the API server reads at its start."""
        self._tokens = {user: secrets.token_hex(16) for user in users}

        def group(user: str) -> str:
            return "system:nodes" if user.startswith("system:node:") else _GROUPS.get(user, "weft:lab")

        TOKENS.write_text("".join(f"{token},{user},{user},{group(user)}\n" for user, token in self._tokens.items()))

    def token(self, user: str) -> str:
        return self._tokens[user]

    def kubeconfig(self, user: str, *, server: str = "", authority: dict[str, str] | None = None) -> str:
        """By default for programs of the lab, which see the certificate's file."""
        cluster = {"server": server or self._server} | (authority or {"certificate-authority": str(CERTIFICATE)})
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        }
        return json.dumps(config, indent=2)

    def file(self, user: str) -> str:
        """Written for a program in the lab's own namespaces; returns the path."""
        path = HOME / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(self.kubeconfig(user))
        return str(path)


def services(families: Sequence[Family]) -> str:
    return ",".join(SERVICES[family] for family in families)


def api(binary: str, etcd: str, families: Sequence[Family]) -> list[str]:
    """With RBAC on."""
    own = str(underlay.address(families[0]).ip)
    return [
        binary,
        f"--etcd-servers={etcd}",
        f"--bind-address={own}",
        f"--advertise-address={own}",
        f"--secure-port={PORT}",
        f"--tls-cert-file={CERTIFICATE}",
        f"--tls-private-key-file={KEY}",
        f"--cert-dir={HOME}",
        f"--token-auth-file={TOKENS}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={services(families)}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={CERTIFICATE}",
        f"--service-account-signing-key-file={KEY}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controllers(binary: str, config: str, network: NetConf, *, only: Sequence[str] = ()) -> list[str]:
    """The controller manager gives each node its podCIDRs. `only` names the controllers; without, all."""
    pools = [pool for pool in (network.v4, network.v6) if pool is not None]
    sizes = {4: "--node-cidr-mask-size-ipv4", 6: "--node-cidr-mask-size-ipv6"}
    if len(pools) == 1:
        sizes = dict.fromkeys(sizes, "--node-cidr-mask-size")
    return [
        binary,
        f"--kubeconfig={config}",
        *([f"--controllers={','.join(only)}"] if only else []),
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={','.join(str(pool.network) for pool in pools)}",
        *(f"{sizes[pool.network.version]}={pool.subnet_len}" for pool in pools),
        f"--service-cluster-ip-range={services(network.families)}",
        f"--service-account-private-key-file={KEY}",
        f"--root-ca-file={CERTIFICATE}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def scheduler(binary: str, config: str) -> list[str]:
    return [binary, f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500"]
