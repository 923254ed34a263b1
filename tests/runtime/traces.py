"""What plugins leave on a node: links, addresses, routes, rules, files. If two looks are equal, nothing is left."""

import json
import os
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Final

from tests.runtime.machine import Machine
from tests.support.waiting import looks
from tests.support.weftd import eventually

# Where plugins, the daemon and runtimes keep something of an attachment.
_SECONDS: Final = 20
_DIRECTORIES: Final = ("var/lib/cni", "var/lib/weft", "run/netns", "run/weft")

Traces = dict[str, list[str]]


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
        "routes": sorted(_routes(machine)),
        "rules": machine.run("nft", "--stateless", "list", "ruleset").splitlines(),
        "files": sorted(_files(machine.root)),
    }


def look_without_pods(machine: Machine) -> Traces:
    """Look once the links of all pods are deleted."""
    return eventually(lambda: {} if _has_pods(traces := look(machine)) else traces)


def gone_back(machine: Machine, before: Traces) -> None:
    """Wait until a node looks as it did: links are deleted after the answer, and a stand-in ends some seconds later."""
    for _ in looks(_SECONDS):
        if not (changes := _changes(before, look(machine))):
            return
    raise AssertionError("\n".join(changes))


def _has_pods(traces: Traces) -> bool:
    return any(link.startswith("veth") for link in traces["links"])


def _changes(before: Traces, after: Traces) -> list[str]:
    return [
        f"{part}: {line}"
        for part, lines in before.items()
        for line in unified_diff(lines, after[part], lineterm="", n=1)
        if not line.startswith(("---", "+++"))
    ]


def _routes(machine: Machine) -> Iterator[str]:
    for family in ("-4", "-6"):
        for route in machine.run("ip", family, "route").splitlines():
            # A bridge without ports is down, and so is its route.
            yield route.replace(" linkdown", "").rstrip()


def _files(root: Path) -> Iterator[str]:
    """The files that belong to a pod: no locks, nor where host-local goes on, where plugins are, and what happened."""
    for directory in _DIRECTORIES:
        for path, _, files in os.walk(root / directory):
            for file in files:
                lasting = file.startswith(("last_reserved_ip.", "cni-directories.")) or file.endswith(
                    ("lock", "locks", "history.jsonl")
                )
                if not lasting:
                    yield str((Path(path) / file).relative_to(root))
