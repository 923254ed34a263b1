"""`weft bundle`: everything for a bug report of this node, in one file without secrets."""

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from weft import __version__
from weft.diag.bundle import archive, collect
from weft.diag.bundle.contents import FORM, Bundle, Manifest, files_of
from weft.diag.options import place_options, places_of
from weft.diag.sight.look import ask_peers, look
from weft.kernel import daemons
from weft.model.errors import Unavailable
from weft.model.node.history import EventsSince
from weft.model.text import counted, one_line
from weft.screen.documents import output_option, show_report
from weft.screen.groups import need_root

_STDOUT: Final = "-"


@click.command()
@output_option
@click.option(
    "--out",
    metavar="FILE.tar.gz",
    help="Where to put it; - is standard output. [default: weft-bundle-NODE-TIME.tar.gz in this directory, or standard"
    " output where nothing can be written here]",
)
@place_options
def bundle(output: str, *, out: str | None, **where: Any) -> int:
    """Write all that a bug report of this node needs into one file, without secrets.

    That is what `weft doctor` sees, with what peers answer; the daemon's state, events and last log lines; the kernel's
    links, addresses, routes, neighbours and settings; all programs' firewall rules; CNI configuration; versions.
    Passwords, keys, tokens and credentials in URLs are replaced. Addresses and names of nodes stay: look at it before
    you publish it.

    \b
      weft bundle
      weft bundle --out node1.tar.gz
      kubectl -n kube-flannel exec POD -- weft bundle >node1.tar.gz
      weft doctor --from node1.tar.gz
      weft trace --from node1.tar.gz 10.244.1.2 10.244.2.3

    `weft doctor`, `trace`, `status`, `peers` and `events` take `--from FILE`, on any machine and for any user.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    if out is None and not os.access(".", os.W_OK):
        out = _STDOUT
    if out == _STDOUT and sys.stdout.isatty():
        raise click.UsageError("a bundle is no text for a terminal: say where to put it, or redirect standard output")
    need_root("weft bundle")
    places = places_of(where)
    made = time.time()
    sight = ask_peers(look(places))
    told = _events(places.instance) if sight.daemon is not None else None
    texts, unseen = collect.texts(places)
    manifest = Manifest(form=FORM, weft=__version__, node=platform.node(), made=made, unseen=unseen)
    files = files_of(Bundle(manifest=manifest, sight=sight, told=told), texts)
    packed = archive.pack(files, made)
    if out == _STDOUT:
        click.echo(packed, nl=False)
        return 0
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(made))
    path = Path(out or f"weft-bundle-{manifest.node.replace('/', '_')}-{stamp}.tar.gz")
    archive.write(path, packed)
    said = [f"{path}: {counted(len(files), 'file')}, {len(packed)} bytes, secrets replaced"]
    said += [one_line(f"not seen {name}: {why}") for name, why in unseen.items()]
    done = {"file": str(path), "bytes": len(packed), "files": list(files), "unseen": unseen}
    show_report(output, done, "".join(f"{line}\n" for line in said))
    return 0


def _events(instance: str | None) -> EventsSince | None:
    try:
        return daemons.events(daemons.choose(instance), 0)
    except Unavailable:  # it has ended since, and its sight says what there was
        return None
