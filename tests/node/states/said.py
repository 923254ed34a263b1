"""What `ip`, `bridge`, `wg` and `nft` say of a node, a line for each thing that a back end has made there.

The tables of this folder have it for each configuration. A VTEP's own MAC, which chance gives, is OWN.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any, Final

from tests.support.waiting import looks
from tests.support.weftd import Cluster, Daemon

_ONE: Final = {"SubnetMin": "10.5.100.0", "SubnetMax": "10.5.100.0"}  # the node's own, then, whatever chance says
_ONE_V6: Final = {"IPv6SubnetMin": "fd05:0:0:100::", "IPv6SubnetMax": "fd05:0:0:100::"}
# Of a kind of device, what `ip -d` says beside name and MTU.
_DETAILS: Final = {
    "vxlan": ("id", "local", "local6", "link", "port", "learning", "gbp"),
    "tun": ("type",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A back end's options, the network's others, the peers' leases and the daemon's flags; then what is said."""

    says: str
    options: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    peers: tuple[dict[str, Any], ...] = ()
    flags: tuple[str, ...] = ()


def configured(cluster: Cluster, backend: str, case: Case) -> Daemon:
    """Write the configuration and the peers of a case; returns a node that was not started."""
    v6 = _ONE_V6 if "EnableIPv6" in case.network else {}
    network = {"Network": "10.5.0.0/16", **_ONE, **case.network, **v6}
    cluster.configure(network, Backend={"Type": backend, **case.options})
    for number, peer in enumerate(case.peers, start=50):
        cluster.peer(number, **({} if backend == "vxlan" else {"BackendType": backend, "data": None}) | peer)
    return cluster.node(1)


def comes(node: Daemon, case: Case) -> None:
    """Wait until this, and nothing else, is said of a node whose daemon is ready; in whatever order."""
    expected = sorted(filter(None, map(str.strip, case.says.splitlines())))
    found: list[str] = []
    for _ in looks(2):
        if (found := sorted(said(node))) == expected:
            return
    raise AssertionError("\n".join(unified_diff(expected, found, "expected", "found", lineterm="")))


def said(node: Daemon) -> Iterator[str]:
    own = dict.fromkeys(node.macs.values(), "OWN") if list(node.state_dir.glob("*/identity.json")) else {}
    for line in _said(node):
        yield re.sub(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", lambda found: own.get(found[0], found[0]), line)


def _said(node: Daemon) -> Iterator[str]:
    for link in node.netns.json("ip -d -j address show"):
        if (name := link["ifname"]).startswith("flannel"):
            yield _link(link)
            for address in link["addr_info"]:
                if address["scope"] == "global":
                    yield f"address {address['local']}/{address['prefixlen']} dev {name}"
            if link["linkinfo"]["info_kind"] == "vxlan":
                yield from _vxlan(node, name)
            if name.startswith("flannel-wg"):
                yield from _wireguard(node, name)
    for version in (4, 6):
        for line in node.ip(f"-{version} route show proto 165 table all").splitlines():
            yield f"route {re.sub(r' (metric 1024|pref medium)', '', line).strip()}"
    for table in re.findall(r"table \S+ flannel\S+", node.netns.run("nft list tables")):
        rules = node.netns.run(f"nft -s list {table}").splitlines()
        yield from (rule.strip() for rule in rules if re.search(r"\b(return|accept|masquerade.*)$", rule))


def _vxlan(node: Daemon, name: str) -> Iterator[str]:
    yield f"accept_ra of {name}: {node.netns.run(f'cat /proc/sys/net/ipv6/conf/{name}/accept_ra').strip()}"
    for version in (4, 6):
        for line in node.ip(f"-{version} neigh show dev {name} nud permanent").splitlines():
            yield f"neighbour {line.removesuffix(' proto 165 ').strip()} dev {name}"
    for line in node.netns.run(f"bridge fdb show dev {name}").splitlines():
        yield f"forward {line.strip()} dev {name}"


def _wireguard(node: Daemon, name: str) -> Iterator[str]:
    inside = ["nsenter", f"--mount=/proc/{node.pid}/ns/mnt"]  # its server's socket is seen from there alone
    for line in node.netns.run([*inside, "wg", "show", name, "dump"]).splitlines()[1:]:
        key, _, endpoint, allowed, *_ = line.split("\t")
        # In the order in which they came; each is an object of its own.
        yield f"peer {key} at {endpoint} for {','.join(sorted(allowed.split(',')))} dev {name}"


def _link(link: dict[str, Any]) -> str:
    kind, data = link["linkinfo"]["info_kind"], link["linkinfo"].get("info_data", {})
    details = " ".join(f"{name} {json.dumps(data[name])}".replace('"', "") for name in _DETAILS[kind] if name in data)
    up = "up" if "UP" in link["flags"] else "down"
    mac = f" address {link['address']}" if "address" in link else ""
    alias = f" alias {link['ifalias']}" if "ifalias" in link else ""
    return f"link {link['ifname']} {up} mtu {link['mtu']} qlen {link['txqlen']}{mac}{alias}: {kind} {details}"
