"""What plugins leave on a node: links, addresses, routes, rules, files. If two looks are equal, nothing is left."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.machine import Machine
from tests.support.weftd import eventually

# Where plugins, the daemon and runtimes keep something of an attachment.
_DIRECTORIES: Final = ("var/lib/cni", "var/lib/weft", "run/netns", "run/weft")
# host-local's memory of where to go on, and its lock: they belong to the network.
_OF_THE_NETWORK: Final = ("last_reserved_ip.", "lock")

Traces = dict[str, Any]


def look(machine: Machine) -> Traces:
    """Look at a node."""
    links = json.loads(machine.run("ip", "-j", "link"))
    addresses = json.loads(machine.run("ip", "-j", "address"))
    return {
        "links": sorted(link["ifname"] for link in links),
        "addresses": sorted(
            f"{link['ifname']} {info['local']}/{info['prefixlen']}"
            for link in addresses
            for info in link["addr_info"]
            if info["scope"] != "link"
        ),
        "routes": sorted(machine.run("ip", "route").splitlines() + machine.run("ip", "-6", "route").splitlines()),
        "rules": machine.run("nft", "--stateless", "list", "ruleset").splitlines(),
        "files": sorted(_files(machine.root)),
    }


def gone_back(machine: Machine, before: Traces) -> None:
    """Wait until a node looks as it did: DEL answers a moment before the links are deleted."""

    def same() -> bool:
        return look(machine) == before

    try:
        eventually(same, seconds=3)
    except AssertionError:
        assert look(machine) == before  # pytest shows the difference


def _files(root: Path) -> Iterator[str]:
    for directory in _DIRECTORIES:
        for path, _, files in os.walk(root / directory):
            for file in files:
                if not file.startswith(_OF_THE_NETWORK):
                    yield str((Path(path) / file).relative_to(root))
