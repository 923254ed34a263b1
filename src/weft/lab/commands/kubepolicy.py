"""`weft lab policy` where nodes are Kubernetes': its API has the policies and the pods."""

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping, Sequence

from weft.desired.policy.question import Question
from weft.desired.policy.verdict import World
from weft.lab.kubernetes import programs
from weft.lab.manifests import Manifest, listed
from weft.lab.places import Place
from weft.model.errors import Problem, Unavailable
from weft.screen.documents import complain_beside


def world(place: Place, output: str, environ: Mapping[str, str], asked: Question | None = None) -> World:
    """Everything, or what the question needs. What cannot be enforced as written is said on standard error."""
    from weft.cluster.kube.clusterreader import read_once
    from weft.cluster.kube.kubeconfig import load

    found, problems = asyncio.run(read_once(load(place.kubeconfig, environ), asked))
    complain_beside(output, problems)
    return found


def put(place: Place, manifests: Sequence[Manifest], environ: Mapping[str, str]) -> None:
    """Raises `Unavailable` with kubectl's words, as `delete` does."""
    _kubectl(place, environ, "apply", "-f", "-", stdin=json.dumps(listed(manifests)))


def delete(place: Place, name: str, environ: Mapping[str, str]) -> None:
    """A policy by its kind and name, such as `NetworkPolicy default/web`."""
    kind, _, path = name.partition(" ")
    namespace, _, own = path.rpartition("/")
    _kubectl(place, environ, "delete", kind, own, *((f"--namespace={namespace}",) if namespace else ()))


def _kubectl(place: Place, environ: Mapping[str, str], *arguments: str, stdin: str = "") -> None:
    where = {"PATH": ":".join([*programs.path(environ), environ.get("PATH", os.defpath)])}
    if missing := programs.check(["kubectl"], where):
        raise Unavailable(*missing)
    command = [programs.find("kubectl", where), f"--kubeconfig={place.kubeconfig}", *arguments]
    ran = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Unavailable(Problem("LAB-002", "kubectl", ran.stderr.strip()))
