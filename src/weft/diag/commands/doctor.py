"""`weft doctor`: what is wrong with this node, by name, and what mends it."""

from pathlib import Path
from typing import Any

import click
import msgspec

from weft.cni.commands.install import need_root
from weft.diag import forms
from weft.diag.checks import CHECKS
from weft.diag.finding import ask
from weft.diag.look import Places, ask_peers, look
from weft.model.text import one_line

_DEFAULT = Places()


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "junit", "sarif"]),
    default="text",
    help="How to print it.",
)
@click.option("-v", "--verbose", is_flag=True, help="Name the checks that found nothing, too.")
@click.option("--instance", metavar="NAME", help="Of several daemons on this node, the one of this name.")
@click.option("--subnet-file", default=str(_DEFAULT.subnet_file), show_default=True, help="The daemon's subnet file.")
@click.option("--conf-dir", default=str(_DEFAULT.conf_dir), show_default=True, help="Where runtimes find networks.")
@click.option("--bin-dir", default=str(_DEFAULT.bin_dir), show_default=True, help="Where they find plugins.")
def doctor(output: str, *, verbose: bool, instance: str | None, **directories: str) -> int:
    """Examine this node and say what is wrong with its pod network, and what mends it.

    It sees the kernel, the firewall, the runtime's configuration, the daemon's own state if weftd runs, and asks each
    peer for an echo. It changes nothing. It serves nodes with flannel's daemon, or with plugins alone, as well.

    \b
      weft doctor
      weft doctor -v
      weft doctor -o json | jq -r '.findings[].code'
      weft lab exec node1 weft doctor

    Exits 0 when no fault was found, 3 when one was; warnings do not count.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    need_root("weft doctor")
    places = Places(instance=instance, **{name: Path(directory) for name, directory in directories.items()})
    diagnosis = ask(CHECKS, ask_peers(look(places)))
    if output == "text":
        for line in forms.lines(diagnosis, verbose=verbose):
            click.echo(one_line(line))
    elif output == "junit":
        click.echo(forms.junit(diagnosis))
    else:
        _print(forms.as_json(diagnosis) if output == "json" else forms.sarif(diagnosis))
    return 0 if diagnosis.is_well else 3


def _print(data: dict[str, Any]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
