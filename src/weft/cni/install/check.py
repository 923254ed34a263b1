"""Whether a node has every plugin that its networks name, and weft's own are as they were installed (CNI-001)."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from weft.cni.install import judging
from weft.cni.install.executables import SETTINGS
from weft.cni.install.inventory import Inventory, Replaced
from weft.cni.runtime import execute
from weft.cni.runtime.library import NetworkList, load_all
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value, replace
from weft.wire import cnijson
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError
from weft.wire.cnilist import PluginConf


class Line(Value):
    """`path` is empty if it is not there, `version` if it does not say."""

    network: str
    file: Path
    plugin: str
    path: str = ""
    version: str = ""
    speaks: tuple[str, ...] = ()


class Report(Value):
    lines: tuple[Line, ...]
    problems: tuple[Problem, ...]


def check(conf_dir: Path, bin_dir: Path) -> Report:
    again = shlex.join(["weft", "cni", "install", "--bin-dir", str(bin_dir), "--conf-dir", str(conf_dir)])
    lines: list[Line] = []
    problems = [*_ours(bin_dir, f"Mend it: {again}.")]
    told = {problem.where for problem in problems}
    for file, network in load_all(conf_dir):
        if isinstance(network, CniError):
            problems.append(Problem(code="CONF-002", where=str(file), seen=str(network)))
            continue
        for plugin in _needed(network, file, problems):
            line = Line(network=network.name, file=file, plugin=plugin)
            wrong: list[Problem] = []
            try:
                lines.append(_look(bin_dir, line, network, wrong))
            except CniError as error:
                lines.append(line)
                hint = f"`{again}` puts weft's plugins there; another {plugin} has to come from where it was."
                where = f"network {line.network} in {line.file}"
                wrong.append(Problem(code="CNI-001", where=where, seen=str(error), hint=hint))
            if _where(bin_dir / plugin) not in told:
                problems += wrong
    return Report(lines=tuple(lines), problems=tuple(problems))


def _ours(bin_dir: Path, hint: str) -> Iterator[Problem]:
    try:
        inventory = Inventory.read(bin_dir)
    except ConfigError as error:
        inventory = Inventory(bin_dir=bin_dir)
        yield from error.problems
    there = judging.look(bin_dir, judging.NAMES, inventory.digests)
    if not inventory.programs and not any(found.state in ("ours", "spoilt") for found in there.values()):
        return
    for name, found in there.items():
        gone = "it is not there any more" if found.state == "missing" and name in inventory.programs else ""
        if seen := gone or found.why:
            yield Problem(code="CNI-001", where=_where(found.path), seen=seen, hint=hint)
    if SETTINGS in inventory.digests and not inventory.owns(SETTINGS):
        seen = "it is missing or not as weft wrote it, so nothing stands in for weftd while that is away"
        yield Problem(code="CNI-001", where=str(bin_dir / SETTINGS), seen=seen, hint=hint)
    for found in Replaced.beside(bin_dir).unfit(judging.NAMES):
        yield Problem(
            code="CNI-001", where=_where(found.path), seen=f"it would be put back, but {found.why}", hint=hint
        )


def _needed(network: NetworkList, file: Path, problems: list[Problem]) -> dict[str, None]:
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


def _look(bin_dir: Path, line: Line, network: NetworkList, problems: list[Problem]) -> Line:
    path = Path(execute.find(line.plugin, [str(bin_dir)]))
    told = judging.ask(path)
    wanted = network.version or "0.1.0"
    if told.silent:
        problems.append(Problem(code="CNI-001", where=_where(path), seen=told.silent))
    elif judging.is_another(line.plugin, told):
        problems.append(Problem(code="CNI-001", where=_where(path), seen=f"it says that it is {told.plugin}"))
    elif wanted not in told.speaks:
        expected = f"{wanted}, the version of {line.file}"
        seen = f"it speaks {', '.join(told.speaks)}"
        problems.append(Problem(code="CNI-001", where=_where(path), seen=seen, expected=expected))
    return replace(line, path=str(path), version=told.version, speaks=told.speaks)


def _where(path: Path) -> str:
    return f"plugin {path}"
