"""Finds how the API is reached: by --kubeconfig-file, whose server --kube-api-url replaces, else as a pod does."""

from pathlib import Path
from typing import Final

from weft.cluster.kube.access import Access, Pem, parse_url
from weft.cluster.kube.credentials import TokenFile
from weft.config.kubernetes import Surroundings
from weft.model.errors import ConfigError, Problem
from weft.model.value import replace

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find(url: str, kubeconfig: str, *, around: Surroundings, account: Path = ACCOUNT) -> Access:
    if kubeconfig:
        from weft.cluster.kube.kubeconfig import load  # YAML takes megabytes

        access = load(Path(kubeconfig), around.environ)
        return replace(access, url=url) if url else access
    if url:
        parse_url(url)
        return Access(url=url)
    host, port = around.host, around.port
    if host and port:
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Access(
            url=server,
            ca=Pem(file=str(account / "ca.crt"), where=str(account / "ca.crt")),
            credentials=TokenFile(account / "token"),
        )
    hint = "Give --kubeconfig-file, or --kube-api-url=URL; a pod of the cluster needs neither"
    seen = "this is no pod of a cluster (KUBERNETES_SERVICE_HOST and _PORT are not set), and no flag names the API"
    raise ConfigError(Problem(code="FLAG-001", where="--kube-subnet-mgr", seen=seen, hint=hint))
