"""`weft plan` and `weft cleanup`: the daemon's own steps, shown or undone."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from weft.cni.commands.install import STATE_DIR
from weft.config.flags import parse_flags
from weft.daemon.commands import started
from weft.daemon.commands.cleanup import Site, clean_up, files_left
from weft.daemon.commands.preview import preview
from weft.daemon.process import logs
from weft.daemon.world import real
from weft.model.text import counted, one_line
from weft.model.value import fields_of
from weft.screen.documents import DOCUMENTS, document, output_option
from weft.screen.nodeoptions import need_root
from weft.screen.say import say


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@output_option
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def plan(output: str, flags: tuple[str, ...]) -> int:
    """Show what a round of the daemon would change now, and why; change nothing.

    Where the public IP of the recorded lease is no longer this node's, it sends that address an echo request, as the
    daemon does, and waits up to a second per family for an answer: the disk may be a copy of another node's.

    FLAGS are those of weftd, behind `--`; the environment FLANNELD_* counts as it does there. All other flags are those
    of the weftd that runs here, if one does.

    \b
      weft plan
      weft plan -- --iface=eth1 --ip-masq
      weft plan -o json -- --etcd-endpoints=http://10.0.0.1:2379

    Exits 0 when nothing would change, 3 when something would.
    """  # noqa: D301 - click's mark for a paragraph that stays as it is
    need_root("weft plan")
    running = started.here()
    options = parse_flags(flags, os.environ) if running is None else running.options(flags, os.environ)
    logs.quiet()
    shown = asyncio.run(preview(options, real()))
    if output in DOCUMENTS:
        steps = [fields_of(each) for each in shown.steps]
        _print(output, {"notes": shown.notes, "problems": [fields_of(each) for each in shown.problems], "steps": steps})
    else:
        if running is not None:
            rest = ", but for what is given here" if flags else ""
            say(f"# with the flags of the weftd that runs here, process {running.pid}{rest}")
        for note in shown.notes:
            say(one_line(f"# {note}"))
        for problem in shown.problems:
            say(one_line(f"! {problem}"))
        for step in shown.steps:
            say(one_line(f"{step.text}  # {step.why}"))
        say(f"# {counted(len(shown.steps), 'step')}" if shown.steps else "# nothing to do")
    return 3 if shown.steps else 0


@click.command()
@output_option
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@click.option("--subnet-file", default="/run/flannel/subnet.env", show_default=True, help="The daemon's subnet file.")
@STATE_DIR
def cleanup(output: str, dry_run: bool, subnet_file: str, state_dir: str) -> int:  # noqa: FBT001 - click's way
    """Remove exactly what weft made in the kernel, and the subnet file; then look again to prove it.

    Pods that are still attached lose their network, their host ports and their addresses. What only bears a mark like
    weft's is named and left. The state directory stays: it holds who this node is.

    \b
      weft cleanup --dry-run
    """  # noqa: D301 - as above
    need_root("weft cleanup")
    site = Site(subnet_file=Path(subnet_file), state_dir=Path(state_dir))
    done = asyncio.run(clean_up(site, dry_run=dry_run))
    looked = done.found if dry_run else done.still
    proved = not (done.left or looked.unseen)
    files = files_left(site, os.environ)
    if output in DOCUMENTS:
        problems = [fields_of(each) for each in looked.unseen]
        lines = {"found": done.found.lines, "left": done.left, "foreign": looked.foreign}
        _print(output, {"dry_run": dry_run, **lines, "files": files, "problems": problems})
    else:
        for line in done.found.lines if dry_run else done.removed:
            say(f"{'would remove' if dry_run else 'removed'} {line}")
        for line in (*looked.foreign, *(f"{path}: {why}" for path, why in files.items())):
            say(f"left {line}")
        for line in done.left:
            say(f"CLEAN-001 {line}", err=True)
        for problem in looked.unseen:
            say(str(problem), err=True)
        say("nothing of weft is left in the kernel" if proved and not dry_run else f"{len(done.found.lines)} found")
    return 0 if proved else 1


def _print(output: str, data: dict[str, Any]) -> None:
    click.echo(document(output, data), nl=False)
