"""`weft plan` and `weft cleanup`: the daemon's own steps, shown or undone."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from weft.cni.commands.install import STATE_DIR
from weft.config.flags import parse_flags
from weft.config.goflags import tokens
from weft.config.options import Options
from weft.daemon.commands.cleanup import Site, clean_up, files_left
from weft.daemon.commands.preview import of_start
from weft.daemon.disk import memory
from weft.daemon.process import logs
from weft.daemon.world import World, real
from weft.kernel import daemons
from weft.model.node.history import History
from weft.model.node.nodestate import Plan
from weft.model.text import counted, one_line
from weft.model.value import Value, fields_of
from weft.screen.documents import DOCUMENTS, document, output_option
from weft.screen.groups import need_root
from weft.screen.say import say

_OTHER: Final = "a start with the flags of the weftd that runs here, but for those given here"
_ENVIRON: Final = "FLANNELD_"
_TAKES_A_WORD: Final = ("-W", "-X", "--check-hash-based-pycs")  # of Python's options


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@output_option
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def plan(output: str, flags: tuple[str, ...]) -> int:
    """Show what weftd would change now, and why; change nothing.

    The weftd that runs here answers. If the network configuration has changed since it started, the answer is what its
    next start would do.

    FLAGS are those of weftd, behind `--`; the environment FLANNELD_* counts as it does there. If no weftd runs here, or
    FLAGS differ from its own, the command itself tries a start with them, up to the lease; all other flags are those of
    the weftd that runs here. Where the public IP of the recorded lease is no longer this node's, a start sends that
    address an echo request and waits up to a second per family for an answer: the disk may be a copy of another node's.

    \b
      weft plan
      weft plan -- --iface=eth1 --ip-masq
      weft plan -o json -- --etcd-endpoints=http://10.0.0.1:2379

    Exits 0 when nothing would change, 3 when something would.
    """
    need_root("weft plan")
    world = real()
    running = running_here(flags, os.environ, world.directory)
    options = parse_flags(flags, os.environ) if running is None else running.options(flags, os.environ)
    if running is not None and options == running.options((), {}):
        shown, head = (
            daemons.plan(running.instance),
            f"answered by the weftd that runs here, instance {running.instance}",
        )
    else:
        logs.quiet()
        shown, head = asyncio.run(_start(options, world)), "" if running is None else _OTHER
    if output in DOCUMENTS:
        _print(output, shown)
    else:
        lines = [f"# {head}"] if head else []
        lines += [f"# {note}" for note in shown.notes]
        lines += [f"! {problem}" for problem in shown.problems]
        lines += [f"{step.text}  # {step.why}" for step in shown.steps]
        for line in lines:
            say(one_line(line))
        say(f"# {counted(len(shown.steps), 'step')}" if shown.steps else "# nothing to do")
    return 3 if shown.steps else 0


async def _start(options: Options, world: World) -> Plan:
    """Plan a start with a store of its own."""
    before = memory.load(world.directory(options), world.moment(), aside=False)
    opened = world.store.open(options, world.means(options, History()))  # a store that does not run notes nothing
    with closing(opened) as store:
        return await of_start(options, world, store, before)


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
    """
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


def _print(output: str, data: object) -> None:
    click.echo(document(output, data), nl=False)


class Started(Value):
    """How the weftd of an `instance` was started, for `weft plan`: its flags and its environment."""

    instance: str
    flags: Sequence[str]
    environ: Mapping[str, str]

    def options(self, flags: Sequence[str], environ: Mapping[str, str]) -> Options:
        """Its options; `flags` and `environ` come before them. Raises `ConfigError`."""
        given = {each.flag.name for each in tokens(flags).given}
        own = [each for each in tokens(self.flags).given if each.flag.name not in given]
        named = {name: value for name, value in environ.items() if name.startswith(_ENVIRON)}
        return parse_flags([*(f"--{each.flag.name}={each.text}" for each in own), *flags], {**self.environ, **named})


def running_here(
    flags: Sequence[str],
    environ: Mapping[str, str],
    directory: Callable[[Options], Path],
    proc: Path = Path("/proc"),
) -> Started | None:
    """The one that runs in this network namespace; of several, the one whose `directory` the flags name. Else None.

    Where its process cannot be looked at, no flags of its own are known. Raises `ConfigError`, and `Unavailable` for
    one that does not answer.
    """
    names = daemons.living()
    if len(names) > 1:
        meant = directory(parse_flags(flags, environ)).name
        names = [name for name in names if name.startswith(meant)]
    if not names:
        return None
    try:
        process = proc / str(daemons.process(names[0]) or "none")  # it may be in another pid namespace
        words = _texts(process / "cmdline")
        own = {key: value for key, _, value in (word.partition("=") for word in _texts(process / "environ"))}
    except OSError:  # it has ended meanwhile, or another user runs it
        return Started(instance=names[0], flags=(), environ=environ)
    return Started(instance=names[0], flags=words[_program(words) + 1 :], environ=own)


def _program(words: list[str]) -> int:
    """The place of the program in Python's command; in a pod it is called flanneld."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "-m":
            return place + 1
        place += 2 if words[place] in _TAKES_A_WORD else 1
    return place


def _texts(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
