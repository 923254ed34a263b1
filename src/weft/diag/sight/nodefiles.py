"""What files of a node say: its networks, the daemon's subnet, and the addresses that host-local has given."""

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from weft.cni.runtime import conf
from weft.diag.sight.node import Configured, Reserved
from weft.wire.cnilist import NetworkList
from weft.wire.subnetenv import PluginEnv, parse_for_cni


def networks(directory: Path) -> tuple[Configured, ...]:
    found = conf.load_all(directory)
    return tuple(configured(path, network) for path, network in found if isinstance(network, NetworkList))


def configured(path: Path, network: NetworkList) -> Configured:
    bridges, hairpin, isolated = list[str](), False, False
    for plugin in network.plugins:
        # What flannel delegates to bridge need not be said (flannel.md §10.4).
        own = plugin.obj.get("delegate", {}) if plugin.type == "flannel" else plugin.obj
        if plugin.type in ("bridge", "flannel") and isinstance(own, dict) and own.get("type", "bridge") == "bridge":
            bridges.append(str(own.get("bridge") or "cni0"))
            hairpin = hairpin or own.get("hairpinMode") is True
            isolated = isolated or own.get("portIsolation") is True
    named = tuple(name for plugin in network.plugins for name in plugin.named)
    return Configured(
        file=str(path), name=network.name, plugins=named, bridges=tuple(bridges), hairpin=hairpin, isolated=isolated
    )


def subnet_env(file: Path) -> PluginEnv | None:
    try:
        return parse_for_cni(file.read_text(errors="replace"), str(file))
    except FileNotFoundError:
        return None


def reserved(directory: Path) -> Iterator[Reserved]:
    with suppress(FileNotFoundError):
        for network in sorted(path for path in directory.iterdir() if path.is_dir()):
            given = {4: 0, 6: 0}
            for file in network.iterdir():
                with suppress(ValueError):  # host-local keeps its lock and what it gave last beside them
                    given[ip_address(file.name.replace("_", ":")).version] += 1
            yield Reserved(network=network.name, given_v4=given[4], given_v6=given[6])
