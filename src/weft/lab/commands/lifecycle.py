"""`weft lab up`, `down`, `list` and `clean`: labs as a whole."""

import os
import shlex
from pathlib import Path
from typing import get_args

import click

from weft.lab import places, spec
from weft.lab.commands import show, start
from weft.lab.commands.choose import DEFAULT, VARIABLE, base, labs, within
from weft.lab.commands.speak import Progress, next_commands, output_option, show_report
from weft.model.errors import ConfigError, Problem
from weft.model.table import table
from weft.screen.documents import DOCUMENTS
from weft.screen.say import say


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--nodes", type=click.IntRange(1, spec.MOST_NODES), help="How many nodes: 3 if not told.")
@click.option("--pods", type=click.IntRange(0, spec.MOST_PODS), help="How many pods on each node: 2 if not told.")
@click.option("--backend", help="vxlan, host-gw, …: vxlan if not told.")
@click.option("--family", type=click.Choice(list(spec.FAMILIES)), help="IPv4, IPv6 or both: 4 if not told.")
@click.option("--nft", is_flag=True, help="Rules by nft instead of iptables (EnableNFTables).")
@click.option("--store", type=click.Choice(get_args(spec.Store)), help="What holds the leases: etcd if not told.")
@click.option("--kubernetes", "kubelets", is_flag=True, help="Nodes of Kubernetes, with weft as a DaemonSet.")
@click.option(
    "--name",
    default="",
    envvar=VARIABLE,
    show_envvar=True,
    help=f"The lab's name: if not told, the file's, or {DEFAULT}.",
)
@output_option
def up(
    file: Path | None,
    *,
    nodes: int | None,
    pods: int | None,
    backend: str | None,
    family: str | None,
    nft: bool,
    store: spec.Store | None,
    kubelets: bool,
    name: str,
    output: str,
) -> None:
    """Start a lab, from options or from a FILE, and wait until every pod runs."""
    from weft.lab import labfile

    if name and (problems := spec.name_problem("a lab", "--name", name)):
        raise ConfigError(*problems)
    if file is not None:
        given = {
            "--nodes": nodes,
            "--pods": pods,
            "--backend": backend,
            "--family": family,
            "--nft": nft or None,
            "--store": store,
            "--kubernetes": kubelets or None,
        }
        if clash := [option for option, value in given.items() if value is not None]:
            seen = f"{', '.join(clash)} beside {file}"
            raise ConfigError(
                Problem(code="LAB-001", where="weft lab up", seen=seen, expected="either options or a file")
            )
        wanted = labfile.read(file.read_text(errors="replace"), str(file), name=name)
    else:
        wanted = labfile.regular(
            name=name or DEFAULT,
            backend=backend or "vxlan",
            families=spec.FAMILIES[family or "4"],
            nft=nft,
            nodes=3 if nodes is None else nodes,
            pods=pods if pods is not None else 0 if kubelets else 2,
            store="kubernetes" if kubelets else store or "etcd",
            kubelets=kubelets,
        )
    if wanted.kubelets and wanted.pods:
        where, hint = "--pods beside --kubernetes", "Leave it out; 'kubectl create deployment' makes pods."
        raise ConfigError(Problem(code="LAB-001", where=where, seen="pods of Kubernetes come from its API", hint=hint))
    progress = Progress(output)
    try:
        report = start.up(wanted, base(), os.environ, note=progress)
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


@click.command()
@click.argument("name", default="", envvar=VARIABLE, metavar="[LAB]", shell_complete=labs)
@output_option
def down(name: str, output: str) -> None:
    """End a lab and all that is in it: LAB, else that of the environment variable WEFT_LAB, else the only one."""
    place = start.find(base(), name)
    start.down(place)
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
    cleaned = start.clean(base(), names)
    show_report(output, {"removed": cleaned}, f"removed: {', '.join(cleaned) or 'nothing was there'}\n")
