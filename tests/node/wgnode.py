"""Nodes whose daemons may serve WireGuard by wireguard-go: its sockets have one folder for all namespaces."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.support.weftd import Cluster, Daemon

DEVICES: Final = ("flannel-wg", "flannel-wg-v6")
_OWN_FOLDER: Final = 'mkdir -p /run/wireguard && mount --bind "$0" /run/wireguard && exec "$@"'


def start(node: Daemon, *flags: str, env: dict[str, str] | None = None) -> Daemon:
    """Start a daemon with a folder of its own for these sockets."""
    node.spawn(*flags, env=env, wrap=inside(node))
    return node.wait_ready()


def inside(node: Daemon) -> list[str]:
    """What runs a daemon with such a folder."""
    folder = node.folder / "wireguard"
    folder.mkdir(exist_ok=True)
    return ["unshare", "--mount", "--", "sh", "-c", _OWN_FOLDER, str(folder)]


def server(node: Daemon, device: str = DEVICES[0]) -> int:
    """The process that serves a device of a node; 0 if there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            same = (process / "ns/net").stat().st_ino == Path(node.netns.path).stat().st_ino
            if same and (process / "cmdline").read_bytes() == f"/usr/bin/wireguard-go\0-f\0{device}\0".encode():
                return int(process.name)
    return 0


def end_servers(cluster: Cluster) -> None:
    """End what serves the devices of a cluster's nodes: it would outlive them. Their daemons would start it again."""
    for node in cluster.daemons:
        if node.running:
            node.kill()
        for device in DEVICES:
            if pid := server(node, device):
                os.kill(pid, signal.SIGKILL)
