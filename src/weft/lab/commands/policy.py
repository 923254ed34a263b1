"""`weft lab policy`: policies of a lab are put, taken and asked about while it runs."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.lab import protocol
from weft.lab.commands import kubepolicy
from weft.lab.commands.choose import ask, find, lab_and_output, nodes_and_pods, pods, within
from weft.lab.manifests import Manifest, at_home, listed, name_of
from weft.lab.places import Place
from weft.lab.report import LabReport
from weft.lab.spec import NAMESPACE
from weft.model.errors import ConfigError, Problem
from weft.model.policy import Pod
from weft.model.text import one_of, table
from weft.model.value import Value
from weft.screen.documents import next_commands, show_report
from weft.screen.groups import Group

if TYPE_CHECKING:
    from weft.desired.policy.question import Question
    from weft.desired.policy.verdict import World

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


class Listed(Value):
    """A policy, and the pods that it selects."""

    kind: str
    namespace: str
    name: str
    pods: list[str]


@click.group(cls=Group)
def policy() -> None:
    """Policies of a lab: NetworkPolicies and ClusterNetworkPolicies that its nodes enforce.

    The lab was started with `weft lab up --policy FILE`, or with `policies` in its file. Where nodes are Kubernetes',
    policies and pods are those of its API.
    """


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE…")
@lab_and_output
def apply(files: tuple[Path, ...], lab: str, output: str) -> None:
    """Put policies and namespaces of a FILE into the lab, and wait until all nodes enforce them.

    Those of the same kind, namespace and name are replaced. A NetworkPolicy that names no namespace is in `lab`; where
    nodes are Kubernetes', it is in `default`.

    Exits 1 and names the nodes that do not have them in effect after half a minute: they go on trying.

    \b
      weft lab policy apply policies.yaml
    """
    place = find(lab)
    in_api = _are_in_api(place, ask(place, protocol.Ps()))
    put = _read(files, in_api=in_api)
    if in_api:
        kubepolicy.put(place, put, os.environ)
    else:
        ask(place, protocol.SetPolicies(put=put))
    names = [name_of(each) for each in put]
    show_report(output, {"applied": names}, "".join(f"{name} is in effect\n" for name in names))
    next_commands(output, f"weft lab policy list{within(place)}", f"weft lab check{within(place)} --quick")


@policy.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@lab_and_output
def delete(names: tuple[str, ...], lab: str, output: str) -> None:
    """Take policies, by NAME or NAMESPACE/NAME, out of the lab, and wait until no node enforces them.

    \b
      weft lab policy delete only-web
      weft lab policy delete shop/only-web
    """
    from weft.lab import allowed

    place = find(lab)
    report = ask(place, protocol.Ps())
    there = list(allowed.selected(_world(place, report, output)))
    gone = [_meant(name, there) for name in names]
    if _are_in_api(place, report):
        kubepolicy.delete(place, gone, os.environ)
    else:
        ask(place, protocol.SetPolicies(delete=gone))
    show_report(output, {"deleted": gone}, "".join(f"{name} is gone\n" for name in gone))


@policy.command(name="list")
@click.argument("pod", required=False, default="", shell_complete=pods)
@lab_and_output
def list_(pod: str, lab: str, output: str) -> None:
    """List the policies of the lab, and the pods that each selects; with POD, those that hold for it.

    Where nodes are Kubernetes', POD is NAMESPACE/NAME.
    """
    from weft.lab import allowed

    place = find(lab)
    report = ask(place, protocol.Ps())
    known, name = _world(place, report, output), str if _are_in_api(place, report) else _own_name
    names = [name(each) for each in known.pods]
    if pod and pod not in names:
        raise ConfigError(Problem("LAB-002", pod, "no pod of this name", expected=one_of(names, pod)))
    selected = allowed.selected(known).items()
    found = [_listed(policy, [name(each) for each in its]) for policy, its in selected]
    found = [each for each in found if not pod or pod in each.pods]
    rows = ((each.kind, each.namespace or "-", each.name, " ".join(each.pods) or "none") for each in found)
    text = table(("KIND", "NAMESPACE", "NAME", "PODS"), rows) if found else "no policies\n"
    show_report(output, found, text)


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE…")
@lab_and_output
def preview(files: tuple[Path, ...], lab: str, output: str) -> None:
    """Say what FILE would change: pods that become restricted, and pairs of pods that are cut or joined."""
    from weft.desired.policy.preview import applied
    from weft.desired.policy.preview import preview as previewed
    from weft.screen.verdicts import show_preview
    from weft.wire.policyobjects import read_objects

    place = find(lab)
    report = ask(place, protocol.Ps())
    put = _read(files, in_api=_are_in_api(place, report))
    before = _world(place, report, output)
    over = read_objects({"files": json.dumps(listed(put))})
    show_preview(previewed(before, applied(before, over.things, over.assumed)), output)


@policy.command()
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B[:PORT[/PROTOCOL]]", shell_complete=nodes_and_pods)
@lab_and_output
def explain(source: str, target: str, lab: str, output: str) -> int:
    """Say whether policies let A send to B, by which rule, and why each other rule does not fit.

    \b
      weft lab policy explain pod1-1 pod2-1:80
      weft lab policy explain 192.0.2.7 pod1-1:53/udp

    A and B are pods by their names, nodes, or addresses, and B may be a Service, of which each pod is judged; without a
    port, an echo request is asked about. Where nodes are Kubernetes', pods are NAMESPACE/NAME, or NAME in namespace
    default, and a Service is svc/NAME.

    Exits 0 if it is allowed, 1 if it is refused.
    """
    from weft.screen.verdicts import asked_about, show_verdict

    place = find(lab)
    report = ask(place, protocol.Ps())
    known = {pod.name: f"{pod.namespace}/{pod.name}" for pod in report.pods}
    known |= {node.name: node.underlay[0] for node in report.nodes}
    known |= {service.name: f"svc/{NAMESPACE}/{service.name}" for service in report.services}
    name, colon, port = target.partition(":") if target.partition(":")[0] in known else (target, "", "")
    asked = asked_about(known.get(source, source), known.get(name, name) + colon + port)
    return show_verdict(asked, _world(place, report, output, asked), output)


@policy.command()
@lab_and_output
def denied(lab: str, output: str) -> None:
    """Show who was refused by policies in the last ten minutes, on each node.

    Exits 1 where no node enforces any.
    """
    from weft.screen.refusals import shown

    place = find(lab)
    found = ask(place, protocol.Denied())
    if not found:
        raise _not_enforced(place)
    show_report(output, found, "\n".join(f"{each.node}\n{shown(each.seen)}" for each in found))


def _read(files: tuple[Path, ...], *, in_api: bool) -> list[Manifest]:
    from weft.lab.files import policyfile

    return [
        at_home(each, in_api=in_api)
        for path in files
        for each in policyfile.read(sys.stdin.read() if str(path) == "-" else path.read_text(), str(path))
    ]


def _are_in_api(place: Place, report: LabReport) -> bool:
    """`ConfigError` where Kubernetes' API may have policies, and nobody enforces them."""
    if place.kubeconfig.exists() and report.policies is None:
        raise _not_enforced(place)
    return place.kubeconfig.exists()


def _not_enforced(place: Place) -> ConfigError:
    hint = "Start one with 'weft lab up --policy FILE', or with 'policies: []' in its file."
    return ConfigError(Problem("LAB-001", place.name, "nodes of this lab enforce no policies", hint=hint))


def _world(place: Place, report: LabReport, output: str, asked: "Question | None" = None) -> "World":
    from weft.lab import allowed

    return kubepolicy.world(place, output, os.environ, asked) if _are_in_api(place, report) else allowed.world(report)


def _own_name(pod: Pod) -> str:
    return pod.name


def _listed(policy: str, pods: list[str]) -> Listed:
    kind, _, path = policy.partition(" ")
    namespace, _, name = path.rpartition("/")
    return Listed(kind=kind, namespace=namespace, name=name, pods=pods)


def _meant(name: str, there: list[str]) -> str:
    found = [each for each in there if name in (each, each.partition(" ")[2], each.rpartition("/")[2].split(" ")[-1])]
    if len(found) == 1:
        return found[0]
    seen = f"{len(found)} policies of this name" if found else "no policy of this name"
    raise ConfigError(Problem("LAB-002", name, seen, expected=one_of(found or there, name)))
