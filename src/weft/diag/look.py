"""Sees a node: the one place of diagnosis that reads the kernel, files and the daemon. Changes nothing.

What cannot be read is told by its name, with the reason, and the rest is read all the same.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from weft.cni.runtime import conf
from weft.desired.backends.vxlan import VxlanLink
from weft.diag import probing, ruleset
from weft.diag.sight import Configured, Reserved, Sight, Vxlan, peers
from weft.kernel import asking, sysctl
from weft.kernel.rtnetlink import linkdata
from weft.kernel.rtnetlink.attributes import Malformed
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import ConfigError, Unavailable
from weft.model.marks import BRIDGE_NETFILTER, FORWARDING
from weft.model.nodestate import NodeState
from weft.model.reported import LinkInfo
from weft.model.value import Value, replace
from weft.wire.cnilist import NetworkList
from weft.wire.subnetenv import PluginEnv, parse_for_cni

_SETTINGS: Final = (
    *FORWARDING.values(),
    *BRIDGE_NETFILTER.values(),
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv6/neigh/default/gc_thresh3",
    "net/netfilter/nf_conntrack_count",
    "net/netfilter/nf_conntrack_max",
)
_PROGRAMS: Final = frozenset(("weftd", "flanneld"))
_NFT: Final = ("nft", "-j", "list", "ruleset")
_SAVES: Final = {"ip": "iptables-save", "ip6": "ip6tables-save"}
_PATH: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_SECONDS: Final = 10.0
_USUAL: Final = (0, 32766, 32767)  # the kernel's own: local, main, default
_LEGACY: Final = (Path("net/ip_tables_names"), Path("net/ip6_tables_names"))


class Places(Value):
    """Where a node has its files, and which of its daemons is meant."""

    subnet_file: Path = Path("/run/flannel/subnet.env")
    conf_dir: Path = conf.DIRECTORY
    bin_dir: Path = Path("/opt/cni/bin")
    data_dir: Path = Path("/var/lib/cni/networks")
    proc: Path = Path("/proc")
    instance: str | None = None


def look(places: Places) -> Sight:
    """See this node, and by which links its peers are reached. Sends nothing."""
    seen: dict[str, Any] = {}
    unseen: dict[str, str] = {}

    @contextmanager
    def part(*names: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, ConfigError, Unavailable, subprocess.SubprocessError) as error:
            unseen.update(dict.fromkeys(names, _words(error)))

    with part("links", "routes", "neighbours"), Rtnl.open() as rtnl:
        seen |= _kernel(rtnl)
    with part("settings"):
        seen["settings"] = {name: value for name in _SETTINGS if (value := sysctl.read(name)) is not None}
    with part("counters"):
        seen["counters"] = counters((places.proc / "self/net/snmp").read_text())
    with part("rules"):
        seen["rules"] = ruleset.parse(_said(_NFT), {family: _saved(program) for family, program in _SAVES.items()})
    with part("legacy_tables"):
        seen["legacy_tables"] = _legacy(places.proc / "self")
    with part("subnet_env"):
        seen["subnet_env"] = _subnet_env(places.subnet_file)
    with part("networks"):
        found = ((path, network) for path, network in conf.load_all(places.conf_dir))
        seen["networks"] = tuple(configured(p, n) for p, n in found if isinstance(n, NetworkList))
    with part("plugins"):
        seen["plugins"] = _plugins(places.bin_dir)
    with part("reserved"):
        seen["reserved"] = tuple(_reserved(places.data_dir))
    with part("programs"):
        seen["programs"] = _programs(places.proc)
    with part("daemon"):
        seen["daemon"] = _daemon(places.instance)
    sight = Sight(unseen=unseen, **seen)
    with part("links"):
        sight = replace(sight, ways=_ways(sight))
    return replace(sight, unseen=unseen)


def ask_peers(sight: Sight) -> Sight:
    """The same sight with what peers answer to echo requests."""
    try:
        return replace(sight, probes=probing.probe(peers(sight), mtu=sight.mtu))
    except OSError as error:
        return replace(sight, unseen={**sight.unseen, "probes": _words(error)})


def _words(error: Exception) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def _kernel(rtnl: Rtnl) -> dict[str, Any]:
    links = rtnl.links()
    return {
        "links": tuple(links),
        "addresses": tuple(rtnl.addresses()),
        "routes": tuple(rtnl.routes()),
        "neighbours": tuple(rtnl.neighbours()),
        "fdb": tuple(entry for link in links if link.kind == "vxlan" for entry in rtnl.fdb(link.index)),
        "policies": sum(rule.priority not in _USUAL for rule in rtnl.rules()),
        "vxlans": tuple(found for link in links if link.kind == "vxlan" and (found := vxlan(link)) is not None),
    }


def vxlan(link: LinkInfo) -> Vxlan | None:
    """A VXLAN device's settings; None for one that the kernel tells otherwise than flannel makes them."""
    try:
        fields = linkdata.decode(VxlanLink, link.data)
    except Malformed:
        return None
    if fields is None:
        return None
    return Vxlan(name=link.name, vni=fields["vni"], port=fields["port"])


def counters(text: str) -> dict[str, int]:
    """Read /proc/net/snmp (proc(5)): a line of names and one of numbers for each protocol."""
    lines = [line.split() for line in text.splitlines()]
    return {
        f"{names[0].rstrip(':')}.{name}": int(number)
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
        for name, number in zip(names[1:], numbers[1:], strict=True)
    }


def _said(command: Iterable[str]) -> str:
    done = subprocess.run(list(command), capture_output=True, text=True, env=_PATH, timeout=_SECONDS, check=False)
    if done.returncode:
        raise OSError(done.returncode, f"{' '.join(command)}: {' '.join(done.stderr.split())[:200]}")
    return done.stdout


def _saved(program: str) -> str:
    """What iptables says of its rules where it keeps them in nf_tables: nft has some by name alone."""
    try:
        return _said((program,)) if "nf_tables" in _said((program, "--version")) else ""
    except OSError:
        return ""


def _legacy(own: Path) -> tuple[str, ...]:
    """The tables of iptables-legacy that have been used; a kernel that has none has no such file."""
    found = set[str]()
    for file in _LEGACY:
        with suppress(FileNotFoundError):
            found.update((own / file).read_text().split())
    return tuple(sorted(found))


def _subnet_env(file: Path) -> PluginEnv | None:
    try:
        return parse_for_cni(file.read_text(errors="replace"), str(file))
    except FileNotFoundError:
        return None


def configured(path: Path, network: NetworkList) -> Configured:
    """What a network's configuration says to a diagnosis."""
    bridges, hairpin = list[str](), False
    for plugin in network.plugins:
        delegate = plugin.obj.get("delegate")
        own = delegate if isinstance(delegate, dict) else plugin.obj
        if plugin.type in ("bridge", "flannel") and own.get("type", "bridge") == "bridge":
            bridges.append(str(own.get("bridge") or "cni0"))
            hairpin = hairpin or own.get("hairpinMode") is True
    named = tuple(name for plugin in network.plugins for name in plugin.named)
    return Configured(file=str(path), name=network.name, plugins=named, bridges=tuple(bridges), hairpin=hairpin)


def _plugins(directory: Path) -> frozenset[str]:
    return frozenset(path.name for path in directory.iterdir() if os.access(path, os.X_OK))


def _reserved(directory: Path) -> Iterator[Reserved]:
    with suppress(FileNotFoundError):
        for network in sorted(path for path in directory.iterdir() if path.is_dir()):
            given = {4: 0, 6: 0}
            for file in network.iterdir():
                with suppress(ValueError):  # host-local keeps its lock and what it gave last beside them
                    given[ip_address(file.name.replace("_", ":")).version] += 1
            yield Reserved(network=network.name, given_v4=given[4], given_v6=given[6])


def _programs(proc: Path) -> frozenset[str]:
    """Those of interest that run in this network namespace."""
    own = (proc / "self/ns/net").readlink()
    found = set[str]()
    for process in proc.iterdir():
        with suppress(OSError):  # it has ended
            if process.name.isdigit() and (process / "ns/net").readlink() == own:
                found.add((process / "comm").read_text().strip())
    return frozenset(found & _PROGRAMS)


def _daemon(wanted: str | None) -> NodeState | None:
    return asking.state(asking.choose(wanted)) if wanted or asking.here() else None


def _ways(sight: Sight) -> dict[str, int]:
    """The links by which peers' public IPs are reached."""
    ways: dict[str, int] = {}
    with Rtnl.open() as rtnl:
        for peer in peers(sight):
            if peer.public is not None:
                with suppress(OSError):  # no way at all: its echo will not come
                    ways[str(peer.public)] = rtnl.route_to(peer.public).index
    return ways
