"""A lab of Kubernetes nodes where weft is the DaemonSet, with the images, zones and DNS that suites of tests need."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.conformance import images
from tests.support.checkout import CHECKOUT
from tests.support.lab import WEFT
from weft.lab.kubernetes.programs import DNS as DNS_ADDRESS
from weft.model.value import Value

NETWORKS: Final[dict[str, tuple[str, ...]]] = {
    "vxlan4": ("--backend", "vxlan", "--family", "4"),
    "hostgw4": ("--backend", "host-gw", "--family", "4"),
    "vxlan46": ("--backend", "vxlan", "--family", "46"),
}


class Cluster(Value):
    """A lab, its kubeconfig, and a folder for the run; `repositories` tells Kubernetes' tests where images are."""

    lab: str
    config: Path
    kubectl: tuple[str, ...]
    folder: Path
    repositories: Path


@contextmanager
def cluster(network: str, programs: Path, *, policies: bool, suites: Path | None = None) -> Iterator[Cluster]:
    """A cluster of three nodes for the block. With `policies` they enforce them; `suites` want images of their own."""
    name = f"c{os.getpid()}"
    environ = os.environ | {"WEFT_KUBERNETES": str(programs)}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([WEFT, "lab", "up", "--kubernetes", "--name", name, *NETWORKS[network]], check=True, env=environ)
        try:
            config = Path("/run/weft-lab") / name / "kubeconfig"
            made = Cluster(
                lab=name,
                config=config,
                kubectl=(str(programs / "kubectl"), f"--kubeconfig={config}"),
                folder=Path(folder),
                repositories=Path(folder) / "repositories.yaml",
            )
            if policies:
                _enforce(made.kubectl)
            _prepare(made, programs, suites)
            print(f"{network}: the cluster is ready after {time.monotonic() - start:.1f} s", flush=True)
            yield made
        finally:
            subprocess.run([WEFT, "lab", "down", name], check=True)


def _enforce(kubectl: Sequence[str]) -> None:
    """Turn policies on in a running cluster, as docs/howto/enforce-network-policies.md says."""
    said([*kubectl, "apply", "-f", CHECKOUT / "deploy" / "network-policy.yaml"])
    daemons = [*kubectl, "--namespace=kube-flannel"]
    more = {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--network-policy=enforce"}
    said([*daemons, "patch", "daemonset/kube-flannel-ds", "--type=json", f"--patch={json.dumps([more])}"])
    said([*daemons, "rollout", "status", "daemonset/kube-flannel-ds", "--timeout=120s"])


def _prepare(made: Cluster, programs: Path, suites: Path | None) -> None:
    """Give the nodes images, zones and the cluster DNS, and wait for that."""
    made.repositories.write_text(json.dumps(images.REPOSITORIES))
    names = said([programs / "e2e.test", "--list-images"], {"KUBE_TEST_REPO_LIST": str(made.repositories)}).split()
    files = images.write_all(made.folder, programs, names, suites=suites)
    kubectl = made.kubectl
    nodes = [name.removeprefix("node/") for name in said([*kubectl, "get", "nodes", "-o", "name"]).split()]
    with ThreadPoolExecutor(len(nodes)) as threads:
        list(threads.map(lambda node: _import(made.lab, node, files), nodes))
    for node in nodes:
        said([*kubectl, "label", "node", node, f"topology.kubernetes.io/zone=zone-{node}"])
    dns = (Path(__file__).parent / "coredns.yaml").read_text().replace("CLUSTER_IP", DNS_ADDRESS[4])
    subprocess.run([*kubectl, "apply", "-f", "-"], input=dns, text=True, check=True, stdout=subprocess.DEVNULL)
    said([*kubectl, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s"])


def _import(lab: str, node: str, files: Sequence[Path]) -> None:
    command = [WEFT, "lab", "exec", "--lab", lab, node, "--"]
    command += ["ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", "-"]
    for file in files:
        with file.open("rb") as image:
            subprocess.run(command, stdin=image, check=True, stdout=subprocess.DEVNULL)


def said(command: list[Any], environ: dict[str, str] | None = None) -> str:
    """What a command says. `CalledProcessError` when it fails."""
    return subprocess.run(
        command, env=os.environ | (environ or {}), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
