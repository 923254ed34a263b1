"""`weft lab policy`: policies of a lab are put, taken and asked about while it runs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from weft.lab import protocol
from weft.lab.commands.choose import ask, find, lab_and_output, nodes_and_pods, pods, within
from weft.lab.manifests import Manifest, by_name, name_of
from weft.lab.report import LabReport
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_of, table
from weft.model.value import Value, replace
from weft.screen.documents import next_commands, show_report
from weft.screen.groups import Group

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

    The lab was started with `weft lab up --policy FILE`, or with `policies` in its file.
    """


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE…")
@lab_and_output
def apply(files: tuple[Path, ...], lab: str, output: str) -> None:
    """Put policies and namespaces of a FILE into the lab, and wait until all nodes enforce them.

    Those of the same kind, namespace and name are replaced. A NetworkPolicy that names no namespace is in `lab`.

    \b
      weft lab policy apply policies.yaml
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    put = _read(files)
    place = find(lab)
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
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    place = find(lab)
    there = _policies(ask(place, protocol.Ps()))
    gone = [_meant(name, there) for name in names]
    ask(place, protocol.SetPolicies(delete=gone))
    show_report(output, {"deleted": gone}, "".join(f"{name} is gone\n" for name in gone))


@policy.command(name="list")
@click.argument("pod", required=False, default="", shell_complete=pods)
@lab_and_output
def list_(pod: str, lab: str, output: str) -> None:
    """List the policies of the lab, and the pods that each selects; with POD, those that hold for it."""
    from weft.lab import allowed

    report = ask(find(lab), protocol.Ps())
    names = [each.name for each in report.pods]
    if pod and pod not in names:
        raise ConfigError(Problem("LAB-002", pod, "no pod of this name", expected=one_of(names, pod)))
    found = [each for each in _listed(report, allowed.selected(report)) if not pod or pod in each.pods]
    rows = ((each.kind, each.namespace or "-", each.name, " ".join(each.pods) or "none") for each in found)
    text = table(("KIND", "NAMESPACE", "NAME", "PODS"), rows) if found else "no policies\n"
    show_report(output, found, text)


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE…")
@lab_and_output
def preview(files: tuple[Path, ...], lab: str, output: str) -> None:
    """Say what FILE would change: pods that become restricted, and pairs of pods that are cut or joined."""
    from weft.desired.policy.preview import preview as previewed
    from weft.lab import allowed
    from weft.screen.verdicts import show_preview

    report = ask(find(lab), protocol.Ps())
    there = by_name(report.policies or ()) | by_name(_read(files))
    after = allowed.world(replace(report, policies=list(there.values())))
    show_preview(previewed(allowed.world(report), after), output)


@policy.command()
@click.argument("source", metavar="A", shell_complete=nodes_and_pods)
@click.argument("target", metavar="B[:PORT[/PROTOCOL]]", shell_complete=nodes_and_pods)
@lab_and_output
def explain(source: str, target: str, lab: str, output: str) -> int:
    """Say whether policies let A send to B, by which rule, and why each other rule does not fit.

    \b
      weft lab policy explain pod1-1 pod2-1:80
      weft lab policy explain 192.0.2.7 pod1-1:53/udp

    A and B are pods by their names, nodes, or addresses; without a port, an echo request is asked about.

    Exits 0 if it is allowed, 1 if it is refused.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    from weft.lab import allowed
    from weft.screen.verdicts import asked_about, show_verdict

    report = ask(find(lab), protocol.Ps())
    known = {pod.name: f"{pod.namespace}/{pod.name}" for pod in report.pods}
    known |= {node.name: node.underlay[0] for node in report.nodes}
    name, colon, port = target.partition(":") if target.partition(":")[0] in known else (target, "", "")
    asked = asked_about(known.get(source, source), known.get(name, name) + colon + port)
    return show_verdict(asked, allowed.world(report), output)


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
        seen = "nodes of this lab enforce no policies"
        hint = "Start one with 'weft lab up --policy FILE', or with 'policies: []' in its file."
        raise ConfigError(Problem("LAB-001", place.name, seen, hint=hint))
    show_report(output, found, "\n".join(f"{each.node}\n{shown(each.seen)}" for each in found))


def _read(files: tuple[Path, ...]) -> list[Manifest]:
    from weft.lab.files import policyfile

    return [
        each
        for path in files
        for each in policyfile.read(sys.stdin.read() if str(path) == "-" else path.read_text(), str(path))
    ]


def _policies(report: LabReport) -> list[Manifest]:
    return [each for each in report.policies or () if each["kind"] != "Namespace"]


def _listed(report: LabReport, pods: dict[str, list[str]]) -> Iterator[Listed]:
    for each in _policies(report):
        meta = each["metadata"]
        yield Listed(
            kind=each["kind"], namespace=meta.get("namespace", ""), name=meta["name"], pods=pods[name_of(each)]
        )


def _meant(name: str, there: list[Manifest]) -> str:
    names = [name_of(each) for each in there]
    found = [each for each in names if name in (each, each.partition(" ")[2], each.rpartition("/")[2].split(" ")[-1])]
    if len(found) == 1:
        return found[0]
    seen = f"{len(found)} policies of this name" if found else "no policy of this name"
    raise ConfigError(Problem("LAB-002", name, seen, expected=one_of(found or names, name)))
