"""The little of a container runtime that pods need: run a conflist's plugins in order (cni.md §1.10, §2.3 to §2.6).

Not a runtime library: no CHECK, no GC, no cache on disk. A plugin is started as containerd starts one: in the
node's namespaces, with the CNI variables, the configuration on its standard input.
"""

import json
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from weft.lab.filesystem import PLUGINS
from weft.model.errors import Problem, Unavailable, WeftError

# flannel.md §10.7, cni-conf.json.
CONFLIST: Final[Mapping[str, Any]] = {
    "name": "cbr0",
    "cniVersion": "0.3.1",
    "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
CONFLIST_NAME: Final = "10-flannel.conflist"
# What containerd and CRI-O run before the network's own list.
_LOOPBACK: Final[Mapping[str, Any]] = {"name": "cni-loopback", "cniVersion": "0.3.1", "plugins": [{"type": "loopback"}]}

Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a plugin ended."""

    status: int
    stdout: bytes
    stderr: bytes


class Run(Protocol):
    """Runs a program in the node: its path, the CNI variables, what it reads."""

    def __call__(self, program: str, variables: Mapping[str, str], stdin: bytes) -> Awaitable[Ran]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A container as plugins know it. `netns` is a path in the node."""

    id: str
    netns: str
    name: str

    def variables(self, command: str, interface: str) -> dict[str, str]:
        """Return the CNI variables of a call (cni.md §1.2), with the arguments that Kubernetes' runtimes pass."""
        arguments = (
            f"IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME={self.name};K8S_POD_INFRA_CONTAINER_ID={self.id}"
        )
        return {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": self.id,
            "CNI_NETNS": self.netns,
            "CNI_IFNAME": interface,
            "CNI_ARGS": arguments,
            "CNI_PATH": str(PLUGINS),
        }


def network_of(directory: Path) -> Mapping[str, Any]:
    """Return the first network list of a directory, as a runtime chooses it."""
    for path in sorted(directory.glob("*.conflist")):
        network: dict[str, Any] = json.loads(path.read_text())
        return network
    raise Unavailable(_problem(str(directory), "no conflist"))


async def attach(run: Run, network: Mapping[str, Any], sandbox: Sandbox) -> Result:
    """Add the container to loopback and to `network`; return the last plugin's result. On failure nothing stays."""
    try:
        await _add(run, _LOOPBACK, sandbox, "lo")
        return await _add(run, network, sandbox, "eth0")
    except BaseException:
        with suppress(WeftError):  # the first failure is the one to tell
            await detach(run, network, sandbox, None)
        raise


async def detach(run: Run, network: Mapping[str, Any], sandbox: Sandbox, result: Result | None) -> None:
    """Take the container off `network` and loopback. `result` is what `attach` returned, if it did.

    A plugin that refuses does not keep the others from being asked; the first refusal is raised at the end.
    """
    refusals: list[WeftError] = []
    for listed, interface in ((network, "eth0"), (_LOOPBACK, "lo")):
        for plugin in reversed(listed["plugins"]):
            # Before version 0.4.0 no previous result is passed to DEL.
            earlier = result if listed is network and _version(listed) >= (0, 4) else None
            try:
                await _call(run, listed, plugin, sandbox.variables("DEL", interface), earlier)
            except WeftError as error:
                refusals.append(error)
    if refusals:
        raise refusals[0]


async def _add(run: Run, network: Mapping[str, Any], sandbox: Sandbox, interface: str) -> Result:
    result: Result | None = None
    for plugin in network["plugins"]:
        answer = await _call(run, network, plugin, sandbox.variables("ADD", interface), result)
        result = json.loads(answer)
    return result or {}


async def _call(
    run: Run,
    network: Mapping[str, Any],
    plugin: Mapping[str, Any],
    variables: Mapping[str, str],
    earlier: Result | None,
) -> bytes:
    """Run one plugin. No mapping of ours has `runtimeConfig`: capabilities are asked for, nothing is passed."""
    config = {key: value for key, value in plugin.items() if key != "capabilities"}
    config |= {"name": network["name"], "cniVersion": network["cniVersion"]}
    if earlier is not None:
        config["prevResult"] = earlier
    where = f"plugin {plugin['type']}, {variables['CNI_COMMAND']}"
    try:
        ran = await run(str(PLUGINS / plugin["type"]), variables, json.dumps(config).encode())
    except FileNotFoundError:
        raise Unavailable(Problem(code="CNI-001", where=where, seen=f"no such program in {PLUGINS}")) from None
    if ran.status != 0:
        raise Unavailable(_problem(where, _words(ran)))
    return ran.stdout


def _words(ran: Ran) -> str:
    """Return what a failed plugin said: its error object, else whatever it printed."""
    with suppress(ValueError, AttributeError):
        said = json.loads(ran.stdout)
        details = f": {said['details']}" if said.get("details") else ""
        return f"error {said.get('code')}: {said.get('msg')}{details}"
    text = (ran.stdout + ran.stderr).decode(errors="replace").strip()
    return f"status {ran.status}: {text or 'and not a word'}"


def _version(network: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(map(int, network["cniVersion"].split(".")))


def _problem(where: str, seen: str) -> Problem:
    return Problem(code="LAB-002", where=where, seen=seen, hint="'weft lab logs NODE' shows the daemon's side.")
