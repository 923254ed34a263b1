"""Runs inside a node of a lab: attaches containers with two sets of plugins, prints milliseconds as JSON."""

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WARM_UP, ROUNDS, AT_ONCE, BURSTS = 3, 30, 50, 5
VERSION = "0.3.1"
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
# What flannel makes of its conflist (flannel.md §10.4), on a bridge and a subnet of its own.
DELEGATE = {
    "type": "bridge",
    "bridge": "cni1",
    "hairpinMode": True,
    "isDefaultGateway": True,
    "isGateway": True,
    "ipMasq": False,
    "mtu": 1450,
    "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "10.99.0.0/24"}]],
        "routes": [{"dst": "10.244.0.0/16"}],
    },
}
FLANNEL = {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}}


class Chain:
    """A network configuration list and the directory of its plugins."""

    def __init__(self, name: str, folder: str, *plugins: dict[str, Any]) -> None:
        self._name = name
        self._folder = folder
        self._plugins = plugins

    def add(self, container: str) -> float:
        """Attach; returns milliseconds."""
        start = time.perf_counter()
        result: dict[str, Any] | None = None
        for plugin in self._plugins:
            result = self._run("ADD", plugin, container, result)
        return (time.perf_counter() - start) * 1e3

    def delete(self, container: str) -> float:
        """Detach; returns milliseconds."""
        start = time.perf_counter()
        for plugin in reversed(self._plugins):
            self._run("DEL", plugin, container, None)
        return (time.perf_counter() - start) * 1e3

    def _run(self, command: str, plugin: dict[str, Any], container: str, previous: Any) -> Any:
        config = {"cniVersion": VERSION, "name": self._name, **plugin}
        if previous is not None:
            config["prevResult"] = previous
        ran = subprocess.run(
            [f"{self._folder}/{plugin['type']}"],
            input=json.dumps(config).encode(),
            capture_output=True,
            check=False,
            env={
                "CNI_COMMAND": command,
                "CNI_CONTAINERID": container,
                "CNI_NETNS": f"/run/netns/{container}",
                "CNI_IFNAME": "eth0",
                "CNI_PATH": self._folder,
                "PATH": os.environ["PATH"],
            },
        )
        if ran.returncode:
            raise RuntimeError(f"{command} {plugin['type']}: {ran.stdout.decode()}{ran.stderr.decode()}")
        return json.loads(ran.stdout) if ran.stdout.strip() else None


def veths() -> int:
    return sum(1 for _ in Path("/proc/net/dev").open() if _.lstrip().startswith("veth"))


def measure(chain: Chain, containers: list[str]) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {"add": [], "del": [], "gone": [], "all": []}
    for index in range(WARM_UP + ROUNDS):
        before = veths()
        container = containers[index % len(containers)]
        added = chain.add(container)
        start = time.perf_counter()
        deleted = chain.delete(container)
        while veths() > before:
            time.sleep(0.001)
        if index >= WARM_UP:
            samples["add"].append(added)
            samples["del"].append(deleted)
            samples["gone"].append((time.perf_counter() - start) * 1e3)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(BURSTS):
            start = time.perf_counter()
            list(pool.map(chain.add, containers))
            samples["all"].append((time.perf_counter() - start) * 1e3)
            list(pool.map(chain.delete, containers))
    return samples


def main() -> None:
    containers = [f"bench{index}" for index in range(AT_ONCE)]
    for container in containers:
        subprocess.run(["ip", "netns", "add", container], check=True)
    chains = {
        "weft": Chain("cbr0", "/opt/cni/bin", FLANNEL, PORTMAP),
        "debian": Chain("debian", "/usr/lib/cni", DELEGATE, PORTMAP),
    }
    print(json.dumps({name: measure(chain, containers) for name, chain in chains.items()}))


if __name__ == "__main__":
    main()
