"""The `weft` command: finds the sub-command, runs it, prints what went wrong. The only place that exits.

Sub-commands are imported when they are called, so that `weft --help` and completion answer at once. What a
sub-command does belongs elsewhere; here stands only where to find it.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise, takewhile
from pathlib import PurePath
from typing import Final

import click

from weft import __version__
from weft.model.errors import TYPED, Problem, WeftError, not_whole
from weft.model.text import typed_from
from weft.screen.documents import DOCUMENTS, PEOPLE, complain, output_option, show_report
from weft.screen.groups import Late, LateGroup

FAILED: Final = 1
INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell reports it

LAB: Final = {
    "lab": Late("weft.lab.commands.lab:lab", "A multi-node cluster network on this machine."),
    "ui": Late("weft.ui.command:ui", "A page that shows a lab, or what this node's daemon knows."),
}  # in the distribution weft-lab, which nodes do without
NODE: Final = {
    "status": Late("weft.daemon.commands.status:status", "How this node's daemon is, on one screen."),
    "peers": Late("weft.daemon.commands.peers:peers", "The other nodes, and what became of each lease."),
    "events": Late("weft.daemon.commands.events:events", "What happened on this node, and what was repaired."),
    "monitor": Late("weft.daemon.commands.events:monitor", "What happens on this node, as it happens."),
    "explain": Late("weft.diag.doctor.explain:explain", "What the code of a problem means, and what to do."),
    "doctor": Late("weft.diag.doctor.command:doctor", "What is wrong with this node, and what mends it."),
    "check": Late("weft.diag.check.command:check", "What this node's pods reach, and what failures have in common."),
    "trace": Late("weft.diag.trace.command:trace", "What a packet passes on this node, and where it ends."),
    "drops": Late("weft.diag.drops.command:drops", "What this node drops of the pod network, and why."),
    "bundle": Late("weft.diag.collect:bundle", "Collect what a bug report of this node needs, without secrets."),
    "mesh": Late("weft.daemon.commands.mesh:mesh", "The mesh of a weftd that has no store."),
    "policy": Late("weft.daemon.commands.policy:policy", "NetworkPolicies: what they allow, and why they refuse."),
    "plan": Late("weft.daemon.commands.verbs:plan", "What the daemon would change now, and why."),
    "cleanup": Late("weft.daemon.commands.verbs:cleanup", "Remove exactly what weft made in the kernel."),
    "cni": Late("weft.cni.commands.cni:cni", "Call plugins by hand, and put weft's plugins on a node."),
    "ipam": Late("weft.cni.commands.ipam:ipam", "Who has which address on this node; freeing leaked ones."),
    "install-conf": Late(
        "weft.cni.commands.upstream:install_conf", "Copy a file so that it is there whole or not at all."
    ),
    "mk-docker-opts": Late("weft.cni.commands.upstream:mk_docker_opts", "Options for dockerd, made from subnet.env."),
}
ABSENT: Final = LAB if find_spec("weft.lab") is None else {}
COMMANDS: Final = NODE if ABSENT else {**LAB, **NODE}


@click.group(
    cls=LateGroup,
    late=COMMANDS,
    absent=ABSENT,
    add=f"pip install weft_lab-{__version__}-*.whl, which 'make wheel' builds",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", message="weft %(version)s")
def weft() -> None:
    """A pod network for Kubernetes, and for anything else that speaks CNI.

    The node daemon is `weftd`; most commands are about the node on which they run. To see a cluster network at work on
    this machine alone, try `weft lab demo`, of the wheel weft_lab.
    """


@weft.command()
@output_option
def version(output: str) -> None:
    """Print the version."""
    show_report(output, {"version": __version__}, f"weft {__version__}\n")


@weft.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for weft and weftd.

    For bash: eval "$(weft completion bash)"
    """
    from click.shell_completion import get_completion_class

    from weft.config.flaghelp import completion_of

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(script(weft, {}, "weft", "_WEFT_COMPLETE").source())
    click.echo(completion_of(shell))


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 1 failed, 2 wrong input, 130 interrupted; or the error's own.

    What went wrong goes to standard error: a line for each problem, with `-o json` a JSON object on each.
    """
    output = _output(args)
    programs = output in DOCUMENTS
    TYPED.set(typed_from(os.environ) if output in PEOPLE else str)
    try:
        code = weft.main(args=list(args), prog_name="weft", standalone_mode=False, obj=run)  # for `weft lab sh`
    except click.exceptions.Abort:  # Ctrl-C: what was running has cleaned up on the way here
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        complain(_misused(error), programs=programs)
        return error.exit_code
    except WeftError as error:
        for problem in error.problems:
            complain(problem, programs=programs)
        return error.status
    except (ImportError, OSError) as error:  # what a command did not expect of this machine
        complain(_unexpected(error), programs=programs)
        return FAILED
    return code if isinstance(code, int) else 0


def _misused(error: click.ClickException) -> Problem:
    context = error.ctx if isinstance(error, click.UsageError) else None
    where = context.command_path if context else "weft"
    hint = f"'{where} --help' lists what there is."
    # Some commands take a lab as a word, so others are given one that way, too.
    taken_for_another = type(error) is click.UsageError or isinstance(getattr(error, "param", None), click.Argument)
    if context and taken_for_another:
        options = {name for each in context.command.params for name in each.opts}
        for option in sorted({"--lab", "--name"} & options):
            hint = f"A lab is named by {option} NAME. {hint}"
    return Problem(code="FLAG-001", where=where, seen=error.format_message(), hint=hint)


def _unexpected(error: ImportError | OSError) -> Problem:
    if isinstance(error, ImportError):
        return not_whole("weft", error)
    where = str(error.filename or "this machine")
    hint = ""
    if isinstance(error, PermissionError):
        needed = "Root was refused: a container needs the capabilities that those in weft's deploy/ have."
        hint = "Try it as root." if os.geteuid() else needed
    if error.errno == errno.EROFS and os.environ.get("POD_NAME"):
        hint = (
            "weft's pod only reads its node's directories: its init container installs plugins, and"
            " docs/howto/move-a-cluster.md says how they are handed back"
        )
    return Problem(code="HOST-002", where=where, seen=error.strerror or str(error), hint=hint)


def _output(args: Sequence[str]) -> str:
    """How a command line that may be wrong asks for what it prints; `text` if it does not say so."""
    line = takewhile(lambda word: word != "--", args)
    found = "text"
    for word, value in pairwise((*line, "")):
        if word in ("-o", "--output"):
            found = value
        elif word.startswith(("-o", "--output=")):
            found = word.removeprefix("-o").removeprefix("--output=")
    return found


def main() -> None:
    """Run the command line of this process, and exit.

    By a link of a command's name, whatever its suffix (`mk-docker-opts.sh`), the program is that command.
    """
    # As Ctrl-C: what is running cleans up on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    program, *args = sys.argv
    called = PurePath(program).stem
    try:
        sys.exit(run([called, *args] if called in COMMANDS else args))
    except KeyboardInterrupt:  # beside any command
        sys.exit(INTERRUPTED)
