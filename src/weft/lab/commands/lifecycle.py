"""`weft lab up`, `down`, `list` and `clean`: labs as a whole."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, get_args

import click

from weft.lab import places, protocol, spec, topology
from weft.lab.commands import ending, show, start
from weft.lab.commands.choose import DEFAULT, VARIABLE, ask, backends, base, find, lab_option, labs, up_now, within
from weft.lab.manifests import Manifest
from weft.lab.topology import SHAPES
from weft.model.errors import ConfigError, Problem, WeftError
from weft.model.text import table
from weft.screen.documents import DOCUMENTS, Progress, document, next_commands, output_option, show_report
from weft.screen.say import say

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.command()
@click.argument("file", required=False, type=_FILE)
@click.option("-f", "--file", "named", type=_FILE, metavar="FILE", help="The same; - is standard input.")
@click.option("--nodes", type=click.IntRange(1, spec.MOST_NODES), help="How many nodes: 3 by default.")
@click.option("--pods", type=click.IntRange(0, spec.MOST_PODS), help="How many pods on each node: 2 by default.")
@click.option("--backend", shell_complete=backends, help="vxlan, host-gw, …: vxlan by default.")
@click.option("--family", type=click.Choice(list(spec.FAMILIES)), help="IPv4, IPv6 or both: 4 by default.")
@click.option("--nft", is_flag=True, help="Rules by nft instead of iptables (EnableNFTables).")
@click.option("--store", type=click.Choice(get_args(spec.Store)), help="What holds the leases: etcd by default.")
@click.option("--password", is_flag=True, help="Nodes of a mesh share one, which seals all between them.")
@click.option("--nat", type=click.Choice(get_args(spec.Nat)), help="All nodes but the first behind a NAT of their own.")
@click.option("--kubernetes", "kubelets", is_flag=True, help="Nodes of Kubernetes, with weft as a DaemonSet.")
@click.option(
    "--topology",
    metavar="SHAPE|FILE",
    help=f"Which nodes reach each other: {SHAPES}, or a FILE of nodes and those that each reaches. All by default.",
)
@click.option(
    "--policy",
    "policies",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Policies that nodes enforce. May be given again.",
)
@click.option(
    "--name",
    default="",
    envvar=VARIABLE,
    show_envvar=True,
    help=f"The lab's name: by default the file's, or {DEFAULT}.",
)
@click.option("--dry-run", "dry", is_flag=True, help="Check everything, say what would be, and start nothing.")
@click.option("--keep", is_flag=True, help="If the start fails, keep what has started, to look at it.")
@output_option
def up(file: Path | None, *, named: Path | None, name: str, dry: bool, keep: bool, output: str, **options: Any) -> None:
    """Start a lab, from options or from a FILE, and wait until every pod runs.

    \b
      weft lab up --nodes 2 --backend host-gw
      weft lab up lab.yaml
      weft lab up lab.yaml --nodes 5 --name other
      weft lab up -f - <lab.yaml
      weft lab up lab.yaml --dry-run
      weft lab up --store mesh --password --topology line
      weft lab up --policy policies.yaml

    An option beside a FILE takes the place of what the file says, or is refused with the reason.
    """
    from weft.lab.network import planned

    if name and (problems := spec.name_problem("a lab", "--name", name)):
        raise ConfigError(*problems)
    if file is not None and named is not None:
        raise ConfigError(_problem("weft lab up", f"{file} and --file {named}", "one file"))
    shape = options.pop("topology")
    policies = tuple(each for path in options.pop("policies") for each in _policies(path))
    over = spec.Overrides(
        kubernetes=options.pop("kubelets"), topology=shape and _topology(shape), policies=policies, **options
    )
    wanted = _wanted(file or named, name, over)
    if wanted.kubelets and wanted.pods:
        hint = "Leave it out; 'kubectl create deployment' makes pods."
        raise ConfigError(_problem("--pods beside --kubernetes", "pods of Kubernetes come from its API", hint=hint))
    if dry:
        start.check(wanted, base(), os.environ)
        plan = planned(wanted)
        show_report(output, plan, show.plan(plan))
        return
    progress = Progress(output)
    try:
        report = start.up(wanted, base(), os.environ, note=progress, keep=keep)
    except WeftError:
        progress.done()
        if keep and up_now(base()).get(wanted.name):
            next_commands(output, *_of_what_is_kept(places.make(base(), wanted.name)))
        raise
    except KeyboardInterrupt:
        if output not in DOCUMENTS:
            say("\ninterrupted: nothing of the lab is left", err=True)
        raise
    finally:
        progress.done()
    show_report(output, report, show.lab(report))
    place = places.make(base(), wanted.name)
    first, option = report.nodes[0].name, within(place)
    end = f"weft lab down{option.removeprefix(' --lab')}"
    # One pod alone has no other to reach.
    use = f"weft lab pingall{option}" if len(report.pods) > 1 else f"weft lab run{option} POD --node {first}"
    if wanted.kubelets:
        use = "kubectl get pods --all-namespaces --output=wide"
    reach = [f"export KUBECONFIG={place.kubeconfig}"] if wanted.store == "kubernetes" else []
    next_commands(output, *reach, use, f"weft lab exec{option} {first} -- ip route", end)


def _of_what_is_kept(place: places.Place) -> list[str]:
    option = within(place)
    return [
        f"weft lab ps{option}  # what has started is kept",
        f"weft lab logs{option} all",
        f"weft lab down{option.removeprefix(' --lab')}",
    ]


def _wanted(file: Path | None, name: str, over: spec.Overrides) -> spec.Lab:
    from weft.lab.files import labfile

    if file is not None:
        piped = str(file) == "-"
        text = sys.stdin.read() if piped else file.read_text(errors="replace")
        return labfile.read(text, "standard input" if piped else str(file), name=name, over=over)
    lab = labfile.regular(
        name=name or DEFAULT,
        backend=over.backend or spec.usual_backend(over.store or "etcd"),
        families=spec.FAMILIES[over.family or "4"],
        nft=over.nft,
        nodes=3 if over.nodes is None else over.nodes,
        pods=over.pods if over.pods is not None else 0 if over.kubernetes else 2,
        store="kubernetes" if over.kubernetes else over.store or "etcd",
        kubelets=over.kubernetes,
        nat=over.nat,
        shape=over.topology or topology.FULL,
        password=over.password,
    )
    return labfile.with_policies(lab, over.policies, "--policy")


def _policies(path: Path) -> tuple[Manifest, ...]:
    from weft.lab.files import policyfile

    return policyfile.read(sys.stdin.read() if str(path) == "-" else path.read_text(errors="replace"), str(path))


def _topology(given: str) -> topology.Wanted:
    if re.search(topology.PATTERN, given):
        return given
    try:
        return topology.read(Path(given).read_text(errors="replace"))
    except OSError as error:
        seen = f"no shape, and no file that can be read: {error.strerror}"
        raise ConfigError(Problem("FLAG-001", f"--topology {given}", seen, expected=f"{SHAPES}, or a file")) from None


def _problem(where: str, seen: str, expected: str = "", hint: str = "") -> Problem:
    return Problem("LAB-001", where, seen, expected=expected, hint=hint)


@click.command()
def schema() -> None:
    """Print the JSON Schema of a lab file, by which an editor completes and checks one.

    \b
      weft lab schema >lab.schema.json

    A file says `# yaml-language-server: $schema=lab.schema.json` in its first line.
    """
    from weft.lab.files import labkeys

    click.echo(document("json", labkeys.schema()), nl=False)


@click.command()
@lab_option
def export(lab: str) -> None:
    """Print the lab file that would start the lab that runs now.

    It has nodes, pods with their addresses and ports, the present network configuration, Services, bad links and
    partitions. What no file can say is named on standard error.

    \b
      weft lab export >lab.yaml
      weft lab down; weft lab up lab.yaml
    """
    from weft.lab.files import labexport

    place = find(lab)
    described, report = ask(place, protocol.Describe()), ask(place, protocol.Ps())
    done = ask(place, protocol.AskNews({})).lab.events
    exported, left_out = labexport.exported(described, report, done)
    click.echo(labexport.written(exported), nl=False)
    for line in left_out:
        say(f"weft: not in the file: {line}", err=True)


@click.command()
@click.argument("name", default="", envvar=VARIABLE, metavar="[LAB]", shell_complete=labs)
@output_option
def down(name: str, output: str) -> None:
    """End a lab and all that is in it: LAB, else that of the environment variable WEFT_LAB, else the only one."""
    place = find(name)
    ending.down(place)
    show_report(output, {"down": place.name}, f"lab {place.name} is down\n")


@click.command("list")
@output_option
def list_labs(output: str) -> None:
    """List the labs there are, also those whose supervisor was killed."""
    found = [
        {"name": place.name, "state": "up" if place.alive else "dead", "pid": place.pid}
        for place in places.found(base())
    ]
    text = table(("LAB", "STATE", "PID"), ((str(lab["name"]), str(lab["state"]), str(lab["pid"])) for lab in found))
    show_report(output, found, text if found else "no labs\n")
    if dead := [str(lab["name"]) for lab in found if lab["state"] == "dead"]:
        next_commands(output, shlex.join(["weft", "lab", "clean", *dead]))
    elif not found:
        next_commands(output, "weft lab up")


@click.command()
@click.argument("names", nargs=-1, metavar="[LAB]…", shell_complete=labs)
@output_option
def clean(names: tuple[str, ...], output: str) -> None:
    """Remove every trace of labs whose supervisor was killed: of those named, or of all such.

    Labs that are up stay so; `weft lab down` ends them.
    """
    cleaned = ending.clean(base(), names)
    show_report(output, {"removed": cleaned}, f"removed: {', '.join(cleaned)}\n" if cleaned else "no dead labs\n")
