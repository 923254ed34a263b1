"""Pods on nodes of Kubernetes that answer, and what is asked of them: who reaches whom, and at which ports of nodes."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.kubernetes.kubeapi import Json
from tests.support.kubernetes.kubenodes import PODS, SECONDS, KubeNodes, pod
from tests.support.weftd import eventually
from weft.lab.kubernetes import images

PORT: Final = 8080
_ANSWERING: Final = f"""
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with socket.create_server(("", {PORT})) as server:
    while True:
        with server.accept()[0] as connection:
            connection.sendall(sys.argv[1].encode())
"""
_ASKING: Final = (
    "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).recv(99).decode())"
)


def answering(name: str, node: str, host_port: int = 0) -> Json:
    """A pod that says its name to whoever connects, also at a port of its node."""
    made = pod(name, node=node, image=images.WEFT)
    [container] = made["spec"]["containers"]
    container["command"] = ["/opt/weft/bin/python3", "-c", _ANSWERING, name]
    if host_port:
        container["ports"] = [{"containerPort": PORT, "hostPort": host_port}]
    return made


def start(nodes: KubeNodes, *pods: Json) -> float:
    """Make pods and wait until all run; returns after how many seconds they did."""
    began = time.monotonic()
    names = {each["metadata"]["name"] for each in pods}
    for each in pods:
        nodes.api.post(PODS, each)
    eventually(lambda: names <= addresses(nodes).keys(), seconds=SECONDS)
    return time.monotonic() - began


def addresses(nodes: KubeNodes) -> dict[str, str]:
    """The addresses of pods that run."""
    found = nodes.api.get(PODS)["items"]
    return {
        each["metadata"]["name"]: each["status"]["podIP"]
        for each in found
        if each["status"].get("phase") == "Running" and "podIP" in each["status"]
    }


def namespaces(nodes: KubeNodes) -> dict[str, tuple[str, str]]:
    """Of each pod that runs its node and the path of its network namespace there."""
    names = {address: name for name, address in addresses(nodes).items()}
    found = {}
    for node in nodes.inits:
        script = 'for ns in /run/netns/*; do echo "$ns $(nsenter --net=$ns ip -o addr show dev eth0)"; done'
        for line in nodes.run(node, "sh", "-c", script).splitlines():
            for address in re.findall(r"inet6? ([^/ ]+)/", line):
                if address in names:
                    found[names[address]] = node, line.split()[0]
    return found


def lost_pairs(nodes: KubeNodes) -> list[str]:
    """The pairs of pods of which the first cannot ping the second."""
    there, lost = addresses(nodes), []
    for name, (node, path) in namespaces(nodes).items():
        pings = "; ".join(f"ping -c1 -W3 {to} >/dev/null || echo {other}" for other, to in there.items())
        said = nodes.run(node, "nsenter", f"--net={path}", "sh", "-c", f"{pings}; true")
        lost += [f"{name} -> {other}" for other in said.split()]
    assert namespaces(nodes).keys() == there.keys()
    return lost


def at_port(nodes: KubeNodes, node: str, port: int) -> str:
    """Return what answers at a port of a node, asked from another one."""
    asked = nodes.run(node, "sh", "-c", "ip -o -4 addr show dev eth0").split()[3].partition("/")[0]
    asking = next(other for other in nodes.inits if other != node)
    return nodes.run(asking, "python3", "-c", _ASKING, asked, str(port), check=False).strip()


@contextmanager
def pinging(nodes: KubeNodes, pairs: Mapping[str, str]) -> Iterator[dict[str, int]]:
    """Have pods ping others ten times a second; afterwards the dict has how many answers were lost."""
    there, where = addresses(nodes), namespaces(nodes)
    lost: dict[str, int] = {}
    running = {}
    for name, other in pairs.items():
        node, path = where[name]
        command = [*nodes.enter(node), "nsenter", f"--net={path}", "ping", "-i", "0.1", "-W", "2", there[other]]
        running[f"{name} -> {other}"] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield lost
    finally:
        for pair, process in running.items():
            # The namespace of processes is entered by a child, which is ping.
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGINT)
            said = process.communicate(timeout=SECONDS)[0]
            counted = re.search(r"(\d+) packets transmitted, (\d+) received", said)
            assert counted, said
            lost[pair] = max(0, int(counted[1]) - int(counted[2]) - 1)  # the last one may be on its way
