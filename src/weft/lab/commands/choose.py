"""Which lab a command means, what is in it, and how the next command would name it."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import click
from click.shell_completion import CompletionItem

from weft.diag.trace.hops import OUTSIDE
from weft.lab import places, protocol
from weft.lab.call import Call
from weft.lab.links import DAEMON, STORE
from weft.lab.places import Place
from weft.lab.spec import ALL
from weft.model.errors import ConfigError, Problem, WeftError
from weft.model.text import one_of
from weft.screen.documents import Command, output_option

Answer = TypeVar("Answer")
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

DEFAULT: Final = "weft"  # the name of a lab that was given none
VARIABLE: Final = "WEFT_LAB"  # names the lab where no option does


def base() -> Path:
    return places.home(os.environ)


def up_now(base: Path) -> dict[str, Place]:
    return {place.name: place for place in places.found(base) if place.alive}


def find(name: str, at: Path | None = None) -> Place:
    """The lab of this name; with "" the only lab that is up. `ConfigError` names those there are."""
    there = {place.name: place for place in places.found(at or base())}
    labs = {each: place for each, place in there.items() if place.alive}
    if name in labs:
        return labs[name]
    if not name and len(labs) == 1:
        return next(iter(labs.values()))
    dead = [each for each in there if each not in labs and (each == name or not (name or labs))]
    if dead:
        seen = f"no longer up: the supervisor of {', '.join(dead)} was killed"
        hint = f"'weft lab clean {' '.join(dead)}' removes what is left of it."
        raise ConfigError(Problem("LAB-002", name or "lab", seen, hint=hint))
    if not labs:
        hint = "'weft lab up' starts one." if not name else ""
        raise ConfigError(Problem("LAB-002", name or "lab", "no lab is up", hint=hint))
    seen, code = (f"no lab named {name} is up", "LAB-002") if name else (f"{len(labs)} labs are up", "LAB-001")
    raise ConfigError(Problem(code, name or "lab", seen, expected=f"{one_of(labs, name)}, by name"))


def ask(place: Place, request: protocol.Asked[Answer]) -> Answer:
    with closing(Call(place.socket, request)) as call:
        return call.result()


def ask_for_socket(place: Place, request: protocol.Capture | protocol.Filtered) -> int:
    """The descriptor is the caller's to close."""
    with closing(Call(place.socket, request)) as call:
        call.result()
        [descriptor] = call.descriptors()
    return descriptor


def labs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [place.name for place in places.found(base())]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def backends(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from weft.desired.backends import BACKENDS  # it takes a while, and only completion needs it

    return [CompletionItem(name) for name in BACKENDS if name.startswith(incomplete)]


def _completer(*kinds: str) -> Completer:
    """Of nodes, pods, daemons, the store, Services, and words such as `all`."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            report = ask(find(ctx.params.get("lab") or ""), protocol.Ps())
        except (WeftError, OSError):
            return []  # there is nothing to complete, and no place to say why
        found = [CompletionItem(node.name, help="node") for node in report.nodes if "node" in kinds]
        found += [CompletionItem(pod.name, help=f"pod on {pod.node}") for pod in report.pods if "pod" in kinds]
        found += [CompletionItem(each.name, help="Service") for each in report.services if "Service" in kinds]
        if "daemon" in kinds:
            found += [CompletionItem(f"{node.name}/{DAEMON}", help="its daemon") for node in report.nodes]
        if "store" in kinds:
            found.append(CompletionItem(STORE, help="what holds the leases"))
        found += [CompletionItem(ALL, help="every node") for kind in kinds if kind == ALL]
        found += [CompletionItem(OUTSIDE, help="outside of all nodes") for kind in kinds if kind == OUTSIDE]
        return [item for item in found if str(item.value).startswith(incomplete)]

    return complete


def logs_and_all(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        names = [ALL, *(path.stem for path in find(ctx.params.get("lab") or "").logs.iterdir())]
    except (WeftError, OSError):
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


nodes: Final = _completer("node")
pods: Final = _completer("pod")
nodes_and_pods: Final = _completer("node", "pod")
services: Final = _completer("Service")
ends: Final = _completer("node", "pod", "Service", OUTSIDE)
nodes_and_store: Final = _completer("node", "store")
things: Final = _completer("node", "daemon", "store")
everywhere: Final = _completer("node", "pod", ALL)


def lab_option(command: Command) -> Command:
    option = click.option(
        "-l",
        "--lab",
        default="",
        metavar="LAB",
        envvar=VARIABLE,
        show_envvar=True,
        shell_complete=labs,
        help="Which lab; not needed while there is one.",
    )
    return option(command)


def lab_and_output(command: Command) -> Command:
    return lab_option(output_option(command))


def hand_down(ctx: click.Context) -> None:
    """Options of a group count for its commands, too."""
    assert isinstance(ctx.command, click.Group)  # noqa: S101 - it is called by groups
    ctx.default_map = dict.fromkeys(ctx.command.commands, ctx.params)


def within(place: Place) -> str:
    """` --lab NAME` for a later command, or nothing if it means this lab anyway."""
    current = os.environ.get(VARIABLE, "")
    if current:
        return "" if current == place.name else f" --lab {place.name}"
    others = any(other.alive and other.name != place.name for other in places.found(base()))
    return f" --lab {place.name}" if others or place.name != DEFAULT else ""
