"""`weft cni install`, `uninstall` and `handback`: weft's plugins onto a node, and off it again."""

import os
import shlex
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from weft.cni.host import state
from weft.cni.install import conflist, executables
from weft.cni.install.directories import Directories
from weft.cni.install.inventory import Inventory
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.text import table
from weft.model.value import fields_of
from weft.screen.documents import DOCUMENTS, complain, output_option, show_report
from weft.screen.groups import need_root
from weft.screen.say import say
from weft.wire.cni import CniError
from weft.wire.subnetenv import parse_for_cni

_PATH: Final = click.Path(path_type=Path, file_okay=False)
BIN_DIR: Final = click.option(
    "--bin-dir",
    default=lambda: Directories.known(os.environ).bin_dir,
    show_default=f"as installed, or {Directories().bin_dir}",
    type=_PATH,
    help="Where the runtime finds plugins.",
)
STATE_DIR: Final = click.option(
    "--state-dir",
    default=lambda: state.chosen(os.environ),
    show_default="the daemon's",
    help="The daemon's --state-dir.",
)
_NONE: Final = Path("none")
_LOOK_AGAIN: Final = 0.2  # seconds; a daemon takes seconds for its lease
_SAID: Final = {
    "written": "written",
    "there already": "the same was there already",
    "kept": "stays as it is, somebody else's; remove it first if weft's is wanted",
}


@click.command("install")
@BIN_DIR
@click.option(
    "--conf-dir",
    default=lambda: Directories.known(os.environ).conf_dir,
    show_default=f"as installed, or {Directories().conf_dir}",
    type=_PATH,
    help="Where the runtime finds networks.",
)
@click.option("--wait", is_flag=True, help="Configure the network only once this node has a lease.")
@click.option(
    "--subnet-file",
    default="/run/flannel/subnet.env",
    show_default=True,
    type=click.Path(path_type=Path),
    help="What the daemon writes when it has one.",
)
@click.option(
    "--network",
    type=click.Path(path_type=Path),
    help="A network's list to copy, as from a ConfigMap, instead of flannel's own; 'none' writes no network.",
)
@click.option(
    "--self-contained",
    is_flag=True,
    help="Put a copy of weft and all that it needs below the state directory, to stand in for weftd where that is a "
    "pod: the node needs no Python. The state directory must have the same path in the pod.",
)
@click.option("--no-standin", is_flag=True, help="Install no stand-in: plugins work only while weftd runs.")
@click.option("--check", is_flag=True, help="Change nothing: list what the networks there need, and what is missing.")
@output_option
def install_command(
    bin_dir: Path,
    conf_dir: Path,
    *,
    wait: bool,
    subnet_file: Path,
    network: Path | None,
    self_contained: bool,
    no_standin: bool,
    check: bool,
    output: str,
) -> None:
    """Put weft's plugins and flannel's list on a node.

    Each file is there whole or not at all, and the list last: no runtime sees a network without its plugins. Programs
    of others under the same names are kept in .weft-replaced; `weft cni uninstall` puts them back. A list of others
    under the same name stays, unless --network gives another. Other `weft cni` commands look where it was put.

    \b
      weft cni install
      weft cni install --bin-dir /usr/lib/cni --wait
      weft cni install --self-contained --network /etc/kube-flannel/cni-conf.json
      weft cni install --check
    """
    if check:
        _check(bin_dir, conf_dir, output)
        return
    copy = None if network in (None, _NONE) else conflist.read(network)
    had_standin = (bin_dir / executables.SETTINGS).exists()
    interpreter = None if no_standin else _copied() if self_contained else executables.PYTHON
    installed = executables.install(bin_dir.absolute(), interpreter=interpreter)
    if wait:
        _wait_for(subnet_file, quiet=output in DOCUMENTS)
    _remember(Directories(bin_dir=bin_dir.absolute(), conf_dir=conf_dir.absolute()))
    data: dict[str, Any] = {
        "bin_dir": str(installed.bin_dir),
        "plugins": installed.names,
        "interpreter": None if installed.interpreter is None else str(installed.interpreter),
        "replaced": installed.replaced,
    }
    lines = [f"{bin_dir}: {', '.join(installed.names)}"]
    if installed.replaced:
        lines.append(f"replaced, and kept in .weft-replaced: {', '.join(installed.replaced)}")
    if self_contained and interpreter is not None:
        lines.append(f"{interpreter.parents[1]}: a copy of weft, which stands in for weftd while that is away")
    if interpreter is None and had_standin:
        lines.append(f"{executables.SETTINGS}: removed; while weftd is away, plugins wait for it")
    if network != _NONE:
        path = conf_dir / conflist.NAME
        done = conflist.install(conf_dir, Inventory.found(bin_dir.absolute()), copy)
        data["conflist"] = {"path": str(path), "done": done}
        lines.append(f"{path}: {_SAID[done]}")
        lines += _what_comes_first(conf_dir, data)
    report(output, data, "\n".join(lines))


def _what_comes_first(conf_dir: Path, data: dict[str, Any]) -> list[str]:
    first = conflist.before(conf_dir)
    data["comes_first"] = None if first is None else str(first)
    return [] if first is None else [f"{first} comes first there: that is the network that runtimes use"]


def _copied() -> Path | None:
    """Return its interpreter, or that of an earlier copy where there is no room."""
    from weft.cni.install import nodepart  # late: 13 ms that only a copy waits for

    directory = nodepart.directory(os.environ)
    try:
        return nodepart.put(directory)
    except Unavailable as error:
        for problem in error.problems:
            complain(problem, programs=False)
        return nodepart.known(directory)


def _remember(chosen: Directories) -> None:
    """Where nothing can be noted, in some containers, the plugins work all the same."""
    try:
        chosen.remember(os.environ, partial(complain, programs=False))
    except OSError as error:
        where = shlex.join(["--net-dir", str(chosen.conf_dir), "--path", str(chosen.bin_dir)])
        say(f"not written down ({error}): give each `weft cni` command {where}", err=True)


def _check(bin_dir: Path, conf_dir: Path, output: str) -> None:
    from weft.cni.install import check as installcheck

    found = installcheck.check(conf_dir, bin_dir)
    rows = [
        (line.network, line.plugin, line.path or "missing", line.version, ", ".join(line.speaks))
        for line in found.lines
    ]
    data: dict[str, Any] = {
        "plugins": [{**fields_of(line), "file": str(line.file)} for line in found.lines],
        "problems": [fields_of(problem) for problem in found.problems],
    }
    text = table(("NETWORK", "PLUGIN", "PATH", "VERSION", "SPEAKS"), rows) if rows else f"no network in {conf_dir}"
    report(output, data, "\n".join([text.rstrip("\n"), *_what_comes_first(conf_dir, data)]))
    if found.problems:
        raise WeftError(*found.problems)


def _wait_for(subnet_file: Path, *, quiet: bool) -> None:
    said = ""
    while True:
        try:
            parse_for_cni(subnet_file.read_text(errors="replace"), str(subnet_file))
        except FileNotFoundError:
            seen = f"waiting for {subnet_file}, which weftd writes when it has a lease"
        except ConfigError as error:
            seen = str(error)
        else:
            return
        if seen != said and not quiet:
            say(seen, err=True)
        said = seen
        time.sleep(_LOOK_AGAIN)


@click.command("uninstall")
@BIN_DIR
@output_option
def uninstall_command(bin_dir: Path, output: str) -> None:
    """Take away exactly what `install` has put there.

    The network list goes first, and programs that weft's have replaced come back; copies of weft in the state
    directory go last. What somebody has changed since stays. Pods that are still attached need a plugin of the same
    name to be detached: see `weft cni handback`.

    \b
      weft cni uninstall
    """
    from weft.cni.install import nodepart  # late, as above

    done: dict[str, str] = {**executables.uninstall(Inventory.read(bin_dir.absolute()))}
    if nodepart.remove(copies := nodepart.directory(os.environ)):
        done[str(copies)] = "removed"
    if Directories.known(os.environ).bin_dir == bin_dir.absolute():
        _remember(Directories())
    report(output, {"done": done}, names(done) or f"nothing of weft is in {bin_dir}")


def names(done: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {how}" for name, how in done.items())


def report(output: str, data: object, text: str) -> None:
    show_report(output, data, text.rstrip("\n") + "\n")


@click.command("handback")
@BIN_DIR
@STATE_DIR
@click.option(
    "--remove-network",
    is_flag=True,
    help="Remove weft's list of the network, too: the runtime starts and ends no pod until there is another list.",
)
@output_option
def handback_command(bin_dir: Path, state_dir: str, *, remove_network: bool, output: str) -> None:
    """Leave attached pods to the reference plugins.

    They go on, and upstream's plugins can detach them. Programs that weft's have replaced come back, then the port
    maps of running pods are written as upstream's portmap does; addresses and links are upstream's already. A name
    under which there was no program before stays weft's until another program takes it. A program that somebody has
    put there since stays, if it is the plugin of that name. May be repeated, with the daemon running or not.

    \b
      weft cni handback
      weft cni handback --remove-network
    """
    from weft.cni.host.host import open_node
    from weft.cni.leaks.sweeper import node_host
    from weft.cni.plugins.portmap.backends import hand_back

    need_root("weft cni handback")
    programs = executables.hand_back(Inventory.found(bin_dir.absolute()), networks=remove_network)
    kept = [name for name, how in programs.items() if how in ("still weft's", "weft's again")]
    done = {name: how for name, how in programs.items() if how != "still weft's" and "/" not in name}
    networks = {name: how for name, how in programs.items() if "/" in name}
    node = open_node(state_dir, retire=lambda _: None, lease_problem=str)
    try:
        with closing(node), node_host(node) as host:
            rewritten = hand_back(host)
    except CniError as error:
        hint = "Ports that are left work on; repeat it when the cause is gone."
        raise WeftError(Problem(code="CNI-003", where="weft cni handback", seen=str(error), hint=hint)) from error
    data = {
        "networks": networks,
        "programs": done,
        "still_weft": kept,
        "port_maps": [fields_of(attachment) for attachment in rewritten],
    }
    lines = [names(each) for each in (networks, done) if each]
    lines += [f"port maps of {each.container_id} {each.ifname} in {each.network}: upstream's" for each in rewritten]
    if kept:
        lines.append(f"still weft's, until you put other programs there: {', '.join(kept)}")
    report(output, data, "\n".join(lines) or "nothing of weft's had to be handed back")
