"""A lab of Kubernetes nodes where weft is the DaemonSet, with the images, zones and DNS that suites of tests need."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

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
    """A lab, its kubeconfig, and a folder for the run."""

    lab: str
    config: Path
    kubectl: tuple[str, ...]
    folder: Path


@contextmanager
def cluster(
    network: str,
    programs: Path,
    images: Callable[[Path], Sequence[Path]],
    *,
    policies: bool,
    kinds: Sequence[Path] = (),
) -> Iterator[Cluster]:
    """A cluster of three nodes for the block, which enforce policies or not. `images` writes them into a folder.

    `kinds` are files of CustomResourceDefinitions. They come before policies are turned on: a running weftd notices a
    new kind only after up to a minute.
    """
    name = f"c{os.getpid()}"
    environ = os.environ | {"WEFT_KUBERNETES": str(programs)}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([WEFT, "lab", "up", "--kubernetes", "--name", name, *NETWORKS[network]], check=True, env=environ)
        try:
            config = Path("/run/weft-lab") / name / "kubeconfig"
            kubectl = (str(programs / "kubectl"), f"--kubeconfig={config}")
            made = Cluster(lab=name, config=config, kubectl=kubectl, folder=Path(folder))
            for file in kinds:
                said([*kubectl, "apply", "--server-side", "-f", file])
                said([*kubectl, "wait", "--for=condition=Established", "-f", file, "--timeout=60s"])
            if policies:
                _enforce(kubectl)
            _prepare(made, images(made.folder))
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


def _prepare(made: Cluster, images: Sequence[Path]) -> None:
    """Give the nodes images, zones and the cluster DNS, and wait for that."""
    kubectl = made.kubectl
    nodes = [name.removeprefix("node/") for name in said([*kubectl, "get", "nodes", "-o", "name"]).split()]
    with ThreadPoolExecutor(len(nodes)) as threads:
        list(threads.map(lambda node: _import(made.lab, node, images), nodes))
    for node in nodes:
        said([*kubectl, "label", "node", node, f"topology.kubernetes.io/zone=zone-{node}"])
    dns = (Path(__file__).parent / "coredns.yaml").read_text().replace("CLUSTER_IP", DNS_ADDRESS[4])
    subprocess.run([*kubectl, "apply", "-f", "-"], input=dns, text=True, check=True, stdout=subprocess.DEVNULL)
    said([*kubectl, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s"])


def _import(lab: str, node: str, images: Sequence[Path]) -> None:
    command = [WEFT, "lab", "exec", "--lab", lab, node, "--"]
    command += ["ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", "-"]
    for file in images:
        with file.open("rb") as image:
            subprocess.run(command, stdin=image, check=True, stdout=subprocess.DEVNULL)


def said(command: list[Any], environ: dict[str, str] | None = None) -> str:
    """What a command says. `CalledProcessError` when it fails."""
    return subprocess.run(
        command, env=os.environ | (environ or {}), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
