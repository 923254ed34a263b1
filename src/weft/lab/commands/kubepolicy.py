"""`weft lab policy` where nodes are Kubernetes': its API has the policies and the pods."""

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping, Sequence

from weft.desired.policy.question import Question
from weft.desired.policy.verdict import World
from weft.lab import protocol
from weft.lab.commands.choose import ask
from weft.lab.kubernetes import programs
from weft.lab.manifests import Manifest, listed
from weft.lab.places import Place
from weft.model.errors import Problem, Unavailable
from weft.screen.documents import complain_beside
from weft.wire.kubepolicy import forms_in


def world(place: Place, output: str, environ: Mapping[str, str], asked: Question | None = None) -> World:
    """Everything, or what the question needs. What cannot be enforced as written is said on standard error."""
    from weft.cluster.kube.clusterreader import read_once
    from weft.cluster.kube.kubeconfig import load

    found, problems = asyncio.run(read_once(load(place.kubeconfig, environ), asked))
    complain_beside(output, problems)
    return found


def put(place: Place, manifests: Sequence[Manifest], environ: Mapping[str, str]) -> None:
    """Put them, and wait until nodes have them in effect.

    Raises `Unavailable`: with kubectl's words, or with the nodes that do not have them in time. So does `delete`.
    """
    said = _kubectl(place, environ, "apply", "-o", "json", "-f", "-", stdin=json.dumps(listed(manifests)))
    ask(place, protocol.AwaitPolicies(forms_in(said)))


def delete(place: Place, names: Sequence[str], environ: Mapping[str, str]) -> None:
    """Policies by their kinds and names, such as `NetworkPolicy default/web`."""
    for name in names:
        _delete(place, name, environ)
    ask(place, protocol.AwaitPolicies(dict.fromkeys(names, "")))


def _delete(place: Place, name: str, environ: Mapping[str, str]) -> None:
    kind, _, path = name.partition(" ")
    namespace, _, own = path.rpartition("/")
    _kubectl(place, environ, "delete", kind, own, *((f"--namespace={namespace}",) if namespace else ()))


def _kubectl(place: Place, environ: Mapping[str, str], *arguments: str, stdin: str = "") -> bytes:
    where = {"PATH": ":".join([*programs.path(environ), environ.get("PATH", os.defpath)])}
    if missing := programs.check(["kubectl"], where):
        raise Unavailable(*missing)
    command = [programs.find("kubectl", where), f"--kubeconfig={place.kubeconfig}", *arguments]
    ran = subprocess.run(command, input=stdin.encode(), capture_output=True, check=False)
    if ran.returncode:
        raise Unavailable(Problem("LAB-002", "kubectl", ran.stderr.decode(errors="replace").strip()))
    return ran.stdout
