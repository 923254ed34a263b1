"""`weft policy`: what NetworkPolicies allow and what is wrong with them, and who was refused here."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from weft.daemon.commands.enforced import following, here, look, told_here
from weft.daemon.commands.policyworld import read_world, texts, with_files
from weft.desired.policy.advice import Advice, advice
from weft.desired.policy.names import pod_said
from weft.desired.policy.preview import preview, world_of
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import counted
from weft.model.value import Value, replace
from weft.screen.documents import DOCUMENTS, output_option, piece, show_report
from weft.screen.groups import Group, need_root
from weft.screen.refusals import line, shown, shown_here
from weft.screen.say import say
from weft.screen.verdicts import asked_about, show_preview, show_verdict
from weft.wire.policyobjects import read_objects

_PATH: Final = click.Path(exists=True, path_type=Path)
_FROM: Final = click.option(
    "--from",
    "files",
    type=_PATH,
    multiple=True,
    help="File or directory of objects (YAML or JSON): namespaces, pods, Services and policies. May be given again.",
)
_KUBECONFIG: Final = click.option(
    "--kubeconfig",
    type=_PATH,
    help="Ask the Kubernetes API as this file says; by default as kubectl does (KUBECONFIG, a pod's account, ~/.kube).",
)


class Checked(Value):
    """`problems` cannot be enforced as written, `advice` is what is probably not meant."""

    policies: int
    problems: tuple[Problem, ...]
    advice: tuple[Advice, ...]


@click.group(cls=Group)
def policy() -> None:
    """NetworkPolicies and ClusterNetworkPolicies: what they allow, why they refuse, what is wrong with them.

    `explain` and `preview` read what this node's weftd does where it reads files, else ask the Kubernetes API; or they
    read files as `check` does, and need no node. `list` and `denied` ask this node, on which weftd enforces policies.
    """


@policy.command()
@click.argument("source", metavar="A")
@click.argument("target", metavar="B[:PORT[/PROTOCOL]]")
@_FROM
@_KUBECONFIG
@click.option("--with", "more", type=_PATH, multiple=True, help="As if these objects were applied, too.")
@output_option
def explain(
    source: str, target: str, *, files: Sequence[Path], kubeconfig: Path | None, more: Sequence[Path], output: str
) -> int:
    """Say whether policies let A send to B, by which rule, and why each other rule does not fit.

    \b
      weft policy explain shop/web shop/db:5432
      weft policy explain outside svc/shop/web:80
      weft policy explain 192.0.2.7 shop/web:53/udp --from cluster.yaml --with new.yaml

    A and B are pods (NAMESPACE/NAME, or NAME in namespace default), addresses, or `outside`, an address that no block
    names by itself; B may be a Service (its name, svc/NAME, or its address), of which each pod is judged. Without a
    port, an echo request is judged. Policies of both ends count: what may leave A, and what may enter B.

    Where this node enforces, it also says (to root) since when, and which changes are not in effect here yet.

    Exits 0 if it is allowed, 1 if it is refused.
    """
    asked = asked_about(source, target)
    told = None if files else told_here()
    world = read_world(files, kubeconfig, os.environ, output, told=told, asked=asked, more=more)
    return show_verdict(asked, world, output, None if told is None or more else told.effect)


@policy.command()
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE…")
@output_option
def check(files: Sequence[Path], output: str) -> int:
    """Name what in policies cannot be enforced as written, and what is probably a mistake.

    \b
      weft policy check new.yaml
      weft policy check policies/ pods.yaml

    Probable mistakes are a policy of a namespace that is not there, one that selects no pod, two peers where one with
    both selectors may be meant, a block with addresses of pods, a port's name that no pod has, and egress that leaves
    out DNS. What needs pods or namespaces to be judged is left out if the files have none.

    Exits 0 if it finds nothing, else 1.
    """
    found = read_objects(texts(files))
    count = len(found.policies) + len(found.cluster)
    if not count and not found.problems:
        seen, expected = "no policy is in it", "a NetworkPolicy or a ClusterNetworkPolicy"
        raise ConfigError(Problem("POL-005", ", ".join(map(str, files)), seen, expected=expected))
    checked = Checked(policies=count, problems=found.problems, advice=advice(world_of(found.things), found.assumed))
    show_report(output, checked, "".join(f"{line}\n" for line in _checked(checked)))
    return 1 if checked.problems or checked.advice else 0


@policy.command(name="preview")
@click.argument("put", nargs=-1, required=True, type=_PATH, metavar="FILE…")
@_FROM
@_KUBECONFIG
@output_option
def preview_(put: Sequence[Path], files: Sequence[Path], kubeconfig: Path | None, output: str) -> None:
    """Say what FILE would change: pods that become restricted, and pairs of pods that are cut or joined.

    \b
      weft policy preview new.yaml
      weft policy preview new.yaml --from cluster.yaml
    """
    now = read_world(files, kubeconfig, os.environ, output, told=None if files else told_here())
    show_preview(preview(now, with_files(now, put, output)), output)


@policy.command(name="list")
@click.argument("pod", required=False, default="")
@output_option
def list_(pod: str, output: str) -> None:
    """List this node's pods, and the policies that restrict what enters each and what leaves it; with POD, of that one.

    \b
      weft policy list
      weft policy list shop/web

    It is what the kernel has, so this needs no weftd; one that runs says since when policies are in effect, what is not
    and why, and which other nodes do not say in their leases that they enforce any. POD is NAMESPACE/NAME, or NAME in
    namespace default.

    Exits 1 where nothing is enforced, and for a pod that the kernel does not have.
    """
    need_root("weft policy list")
    seen = here()
    if pod:
        wanted = pod if "/" in pod else f"default/{pod}"
        seen = replace(seen, pods=tuple(each for each in seen.pods if each.pod == pod_said(wanted)))
        if not seen.pods:
            hint = (
                "It runs on another node, or in the node's own network; if it is here, all of its packets are refused"
            )
            raise Unavailable(
                Problem("POL-003", f"pod {wanted}", "this node's tables do not have it", hint=hint), *seen.problems
            )
    show_report(output, seen, shown_here(seen))


@policy.command()
@click.option("-w", "--watch", is_flag=True, help="Then print each flow whose packets are refused, until Ctrl-C.")
@output_option
def denied(watch: bool, output: str) -> int:  # noqa: FBT001 - click's way
    """Show who was refused on this node in the last ten minutes: by whom, how often, when last, by which policies.

    \b
      weft policy denied
      weft policy denied -w -o json | jq -r '.target_pod'

    The kernel remembers it, so this needs no weftd, and shows what was refused while none ran. Pods of other nodes have
    names if weftd runs and knows them. In an audit it shows what would be refused.

    Exits 1 where nothing is enforced.
    """
    need_root("weft policy denied")
    seen = look()
    if not watch:
        show_report(output, seen, shown(seen))
        return 0
    for each, audit in following(seen):
        say(line(each, audit=audit)) if output not in DOCUMENTS else click.echo(piece(output, each), nl=False)
    return 0


def _checked(checked: Checked) -> Iterator[str]:
    for problem in checked.problems:
        yield str(problem)
    for each in checked.advice:
        yield f"{each.policy} {each.path}: {each.seen}. {each.hint}."
    if not checked.problems and not checked.advice:
        yield f"Nothing to say of {counted(checked.policies, 'policy object')}."
