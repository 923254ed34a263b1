"""What a runtime does with a conflist, by hand: plugins as programs, in order, on a machine (cni.md §1, §2.5, §2.6).

Weft's bin directory and `DEBIAN`'s run the same conflist. Debian has no flannel plugin: there its part is done here as
flannel.md §10.4 to §10.6 has it: its configuration for the delegate is made, kept in the state file, and run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, Final

from tests.runtime.machine import Machine

DEBIAN: Final = Path("/usr/lib/cni")
IFNAME: Final = "eth0"
_FLANNEL: Final = "/var/lib/cni/flannel"

Json = dict[str, Any]


class PluginError(Exception):
    """What a plugin answered instead of a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A pod as plugins know it. `netns` is a path on the machine, `ports` are as runtimes pass them."""

    id: str
    netns: str
    ports: tuple[Json, ...] = ()


class Runner:
    """Runs conflists with the plugins of one directory; `flannel` takes the part of flannel's plugin."""

    def __init__(self, machine: Machine, bin_dir: Path, *, flannel: bool = False) -> None:
        self.machine = machine
        self.bin_dir = bin_dir
        self._takes_flannel = flannel

    def add(self, conflist: Mapping[str, Any], pod: Attachment) -> Json:
        """Run ADD of every plugin; returns the last one's result."""
        result: Json | None = None
        for plugin in conflist["plugins"]:
            result = self._call("ADD", conflist, plugin, pod, result)
        assert result is not None
        return result

    def delete(self, conflist: Mapping[str, Any], pod: Attachment, result: Json) -> None:
        """Run DEL of every plugin, the last first, with the result that ADD had if the version has that."""
        for plugin in reversed(conflist["plugins"]):
            self._call("DEL", conflist, plugin, pod, result if _version(conflist) >= (0, 4) else None)

    def check(self, conflist: Mapping[str, Any], pod: Attachment, result: Json, *, without: Sequence[str] = ()) -> None:
        """Run CHECK of every plugin, but for those whose type is in `without`."""
        for plugin in conflist["plugins"]:
            if plugin["type"] not in without:
                self._call("CHECK", conflist, plugin, pod, result)

    def _call(
        self, command: str, conflist: Mapping[str, Any], plugin: Json, pod: Attachment, previous: Json | None
    ) -> Json | None:
        config = {key: value for key, value in plugin.items() if key != "capabilities"}
        config |= {"name": conflist["name"], "cniVersion": conflist["cniVersion"]}
        if plugin.get("capabilities", {}).get("portMappings") and pod.ports:
            config["runtimeConfig"] = {"portMappings": pod.ports}
        if previous is not None:
            config["prevResult"] = previous
        if plugin["type"] == "flannel" and self._takes_flannel:
            return self._flannel(command, config, pod)
        return self._run(command, config, pod)

    def _run(self, command: str, config: Mapping[str, Any], pod: Attachment) -> Json | None:
        variables = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": pod.id,
            "CNI_NETNS": pod.netns,
            "CNI_IFNAME": IFNAME,
            "CNI_ARGS": "",
            "CNI_PATH": str(self.bin_dir),
        }
        program = ["env", *(f"{name}={value}" for name, value in variables.items()), str(self.bin_dir / config["type"])]
        printed = self.machine.run(*program, check=False, input=json.dumps(config))
        answer: Json | None = json.loads(printed) if printed.strip() else None
        if answer is not None and "code" in answer:
            raise PluginError(f"{config['type']} {command}: {answer}")
        return answer

    def _flannel(self, command: str, config: Json, pod: Attachment) -> Json | None:
        state = self.machine.path(_FLANNEL) / pod.id
        if command == "CHECK":
            return None
        if command == "ADD":
            state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            delegate = _delegate(config, self.machine.path("/run/flannel/subnet.env").read_text())
            state.write_text(json.dumps(delegate, sort_keys=True, separators=(",", ":")))
            return self._run("ADD", delegate, pod)
        if state.exists():
            self._run("DEL", json.loads(state.read_text()), pod)
            state.unlink()
        return None


def _version(conflist: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(map(int, conflist["cniVersion"].split(".")))


def _delegate(config: Json, subnet_env: str) -> Json:
    """Return what flannel's plugin makes of its configuration and of subnet.env (flannel.md §10.4)."""
    env = dict(line.split("=", 1) for line in subnet_env.splitlines())
    present = [family for family in ("", "IPV6_") if f"FLANNEL_{family}SUBNET" in env]
    made = {"type": "bridge", "ipMasq": env["FLANNEL_IPMASQ"] != "true", "mtu": int(env["FLANNEL_MTU"])}
    made |= {"isGateway": True, **config.get("delegate", {}), "name": config["name"]}
    made["cniVersion"] = config["cniVersion"]
    if "runtimeConfig" in config:
        made["runtimeConfig"] = config["runtimeConfig"]
    subnets = [str(ip_interface(env[f"FLANNEL_{family}SUBNET"]).network) for family in present]
    networks = [env[f"FLANNEL_{family}NETWORK"] for family in present]
    made["ipam"] = {
        "type": "host-local",
        "ranges": [[{"subnet": subnet}] for subnet in subnets],
        "routes": [{"dst": network} for network in networks],
    }
    return made
