"""Kubernetes' API server and controllers in the lab's own namespaces: their command lines."""

from collections.abc import Sequence
from typing import Final

from weft.config.netconf import NetConf
from weft.lab.inside import underlay
from weft.lab.kubernetes.access import CERTIFICATE, HOME, KEY, PORT, TOKENS
from weft.lab.spec import SERVICES
from weft.model.net import Family

CONTROLLERS: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
FIRST: Final[dict[Family, str]] = {4: "10.96.0.1", 6: "fd31:96::1"}  # the API's own Service
DNS: Final[dict[Family, str]] = {4: "10.96.0.10", 6: "fd31:96::a"}


def services(families: Sequence[Family]) -> str:
    """Return the networks of Services, as flags take them."""
    return ",".join(SERVICES[family] for family in families)


def api(binary: str, etcd: str, families: Sequence[Family]) -> list[str]:
    """Return the command line of the API server, with RBAC on, on `etcd`."""
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
    """Return the command line of the controller manager, which gives each node its podCIDRs.

    `only` names the controllers that are wanted; without, all of them.
    """
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
    """Return the command line of the scheduler."""
    return [binary, f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500"]
