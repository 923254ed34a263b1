"""Who may do what in a lab's Kubernetes: one certificate for all servers, a token for each program.

All of it lies on the lab's own tmpfs and is worth nothing outside of it. The certificate signs itself, so it is its own
authority; its key signs the tokens of service accounts, too.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from weft.lab.inside import underlay
from weft.model.net import Family

HOME: Final = Path("/run/lab/kubernetes")
CERTIFICATE: Final = HOME / "server.crt"
KEY: Final = HOME / "server.key"
TOKENS: Final = HOME / "tokens.csv"
PORT: Final = 6443
WEFT: Final = "system:serviceaccount:kube-flannel:flannel"  # as deploy/kubernetes.yaml names it
_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_GROUPS: Final = {"admin": "system:masters", WEFT: "system:serviceaccounts"}


def openssl(binary: str, service: Sequence[str], families: Sequence[Family], nodes: int) -> list[str]:
    """Return the command that writes certificate and key; `service` are the first addresses of the Service networks.

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
    """Users and their tokens, made up for one lab."""

    def __init__(self, server: str) -> None:
        """`server` is the API's URL inside of the lab."""
        self._server = server
        self._tokens: dict[str, str] = {}

    def write(self, users: Sequence[str]) -> None:
        """Make tokens for these users, in the file that the API server reads at its start."""
        self._tokens = {user: secrets.token_hex(16) for user in users}
        rows = (f"{token},{user},{user},{_groups(user)}" for user, token in self._tokens.items())
        TOKENS.write_text("".join(f"{row}\n" for row in rows))

    def token(self, user: str) -> str:
        return self._tokens[user]

    def kubeconfig(self, user: str, *, server: str = "", authority: dict[str, str] | None = None) -> str:
        """Return a kubeconfig for a user: by default for programs of the lab, which see the certificate's file."""
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
        """Write a kubeconfig for a program in the lab's own namespaces; return its path."""
        path = HOME / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(self.kubeconfig(user))
        return str(path)


def _groups(user: str) -> str:
    return "system:nodes" if user.startswith("system:node:") else _GROUPS.get(user, "weft:lab")
