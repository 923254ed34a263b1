"""Whether a node has every plugin that its networks name: which program, of which version, speaking what (CNI-001)."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weft.cni.runtime import execute
from weft.cni.runtime.library import NetworkList, Programs, Runtime, load_all
from weft.model.errors import Problem
from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError
from weft.wire.cnilist import PluginConf

_ABOUT: Final = re.compile(rb"^CNI \S+ plugin (?:version )?(.+)$", re.MULTILINE)
_SECONDS: Final = 10.0


class Line(Value):
    """A plugin that a network needs. `path` is empty if it is not there, `version` if it does not say."""

    network: str
    file: Path
    plugin: str
    path: str = ""
    version: str = ""
    speaks: tuple[str, ...] = ()


class Report(Value):
    """All plugins of all networks, and all that is wrong."""

    lines: tuple[Line, ...]
    problems: tuple[Problem, ...]


def check(conf_dir: Path, bin_dir: Path) -> Report:
    """Look at every network of a directory, and at the programs that it needs in another."""
    programs = Programs(paths=[str(bin_dir)], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, timeout=_SECONDS)
    lines: list[Line] = []
    problems: list[Problem] = []
    for file, network in load_all(conf_dir):
        if isinstance(network, CniError):
            problems.append(Problem(code="CONF-002", where=str(file), seen=str(network)))
            continue
        for plugin in _needed(network, file, problems):
            line = Line(network=network.name, file=file, plugin=plugin)
            try:
                lines.append(_look(programs, line, network, problems))
            except CniError as error:
                lines.append(line)
                problems.append(_missing(line, str(error), conf_dir, bin_dir))
    return Report(lines=tuple(lines), problems=tuple(problems))


def _needed(network: NetworkList, file: Path, problems: list[Problem]) -> dict[str, None]:
    """Return the plugins that a network runs, in the order in which it names them."""
    needed: dict[str, None] = {}
    for plugin in network.plugins:
        try:
            needed |= dict.fromkeys((*plugin.named, *_implied(plugin)))
        except JsonError as error:
            problems.append(Problem(code="CONF-002", where=f"{file}: {plugin.type}", seen=str(error)))
            needed[plugin.type] = None
    return needed


def _implied(plugin: PluginConf) -> Iterator[str]:
    """Give what flannel runs without that anybody has to name it (flannel.md §10.4)."""
    if plugin.type == "flannel":
        for key, default in (("delegate", "bridge"), ("ipam", "host-local")):
            if not cnijson.text(cnijson.member(plugin.obj, key), "type"):
                yield default


def _look(programs: Programs, line: Line, network: NetworkList, problems: list[Problem]) -> Line:
    path = programs.find(line.plugin)
    speaks = Runtime(run=programs).versions(line.plugin)
    wanted = network.version or "0.1.0"
    if wanted not in speaks:
        expected = f"{wanted}, the version of {line.file}"
        seen = f"it speaks {', '.join(speaks)}"
        problems.append(Problem(code="CNI-001", where=f"plugin {path}", seen=seen, expected=expected))
    # Without a command a plugin tells people what it is (cni.md §1.3).
    said = _ABOUT.search(execute.execute(path, programs.env, b"", timeout=_SECONDS).stderr)
    version = said.group(1).decode("utf-8", "replace") if said else ""
    return Line(network=line.network, file=line.file, plugin=line.plugin, path=path, version=version, speaks=speaks)


def _missing(line: Line, seen: str, conf_dir: Path, bin_dir: Path) -> Problem:
    there = shlex.join(["weft", "cni", "install", "--bin-dir", str(bin_dir), "--conf-dir", str(conf_dir)])
    hint = f"`{there}` puts weft's plugins there; another {line.plugin} has to come from where it was."
    return Problem(code="CNI-001", where=f"network {line.network} in {line.file}", seen=seen, hint=hint)
