"""Pods on nodes that enforce policies: the files that say of them, their attachment, and what reaches whom."""

import json
import socket
from pathlib import Path
from typing import Any, Final

from tests.node.plugincalls import Runtime
from tests.support.netns import Netns
from tests.support.weftd import Daemon

PORT: Final = 8080
_SECONDS: Final = 0.4  # that an answer may take


class World:
    """The files of one cluster: each change is whole, as `kubectl` and `mv` make it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.pods: dict[str, dict[str, Any]] = {}
        self.policies: dict[str, dict[str, Any]] = {}

    @property
    def flags(self) -> tuple[str, str]:
        return "--network-policy=enforce", f"--network-policy-files={self.folder}"

    def pod(self, name: str, *ips: str, **labels: str) -> None:
        self.pods[name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "status": {"podIPs": [{"ip": ip} for ip in ips]},
        }

    def policy(self, name: str, selects: dict[str, str], **rules: Any) -> None:
        """`ingress=[…]`, `egress=[…]` as the API has them."""
        self.policies[name] = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name},
            "spec": {
                "podSelector": {"matchLabels": selects},
                "policyTypes": [direction.capitalize() for direction in rules],
                **rules,
            },
        }

    def write(self) -> None:
        items = [*self.pods.values(), *self.policies.values()]
        new = self.folder / "world.new"
        new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        new.rename(self.folder / "world.json")


def attach(runtime: Runtime, name: str) -> tuple[Netns, str]:
    """A pod and its IPv4 address, at which it answers on `PORT`."""
    pod = Netns()
    runtime.node.pods.append(pod)
    answer = runtime.ask("ADD", name, pod)
    assert "ips" in answer, answer
    listen(pod)
    return pod, answer["ips"][0]["address"].split("/")[0]


def listen(pod: Netns, port: int = PORT) -> None:
    server = pod.call(lambda: socket.create_server(("", port), backlog=4096))
    pod.closing.callback(server.close)


def connects(pod: Netns, target: str, port: int = PORT) -> bool:
    """Tell whether a new connection is answered: the kernel does that while nobody accepts."""

    def attempt() -> bool:
        try:
            socket.create_connection((target, port), _SECONDS).close()
        except OSError:
            return False
        return True

    return pod.call(attempt)


def rules(node: Daemon) -> str:
    """Both tables with the numbers that the kernel has given, so that what was written again differs."""
    return "".join(node.netns.run(f"nft -a -s -t list table {table} weft-policy") for table in ("inet", "bridge"))


def elements(node: Daemon, name: str) -> str:
    return node.netns.run(f"nft list set inet weft-policy {name} || nft list map inet weft-policy {name}")
