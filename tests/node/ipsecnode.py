"""Nodes whose daemons run charon, which outlives them."""

import os
import signal
from contextlib import suppress
from typing import Final

from tests.node.test_status import asked
from tests.support.weftd import VXLAN, Cluster, Daemon, eventually
from weft.daemon.backends.ipsec import process

PSK: Final = "0123456789abcdef" * 6
IPSEC: Final = {**VXLAN, "Backend": {"Type": "ipsec", "PSK": PSK}}


def start(cluster: Cluster, *numbers: int) -> list[Daemon]:
    """Start nodes, and wait until all have agreed on keys with all."""
    nodes = [cluster.node(number).start() for number in numbers]
    agreed(nodes)
    return nodes


def agreed(nodes: list[Daemon], *, seconds: float = 30.0) -> None:
    for node in nodes:
        eventually(lambda node=node: counts(node).get("sessions") == len(nodes) - 1, seconds=seconds)


def counts(node: Daemon) -> dict[str, int]:
    found: dict[str, int] = asked(node)["loops"]["charon"]["counts"]
    return found


def charon(node: Daemon) -> int:
    """The charon of a node; 0 if it has none."""
    found = node.netns.call(process.running)
    assert len(found) <= 1
    return found[0] if found else 0


def end_charons(cluster: Cluster) -> None:
    """End the charons of a cluster's nodes: they would outlive them. Their daemons would start them again."""
    for node in cluster.daemons:
        if node.running:
            node.kill()
        with suppress(ProcessLookupError):
            if pid := charon(node):
                os.kill(pid, signal.SIGKILL)
