"""What `ip -j` says of an attachment, without what no two attachments share: indexes, MACs, names, times."""

import json
from typing import Any, Final

from tests.runtime.machine import Machine

Json = Any

# Of a link: what is always different, and what the driver counts.
_BY_CHANCE: Final = frozenset(
    ("ifindex", "link_index", "link_netnsid", "address", "permaddr", "stats64", "ifalias", "link", "ifname")
)
# Of a bridge and of its port: identities made of MACs, and clocks.
_CLOCKS: Final = ("_timer", "_id", "_address", "_port", "_cost", "root_", "designated_", "id", "no", "no_hex")
_SETTINGS: Final = tuple(
    (family, name)
    for family, names in {
        "ipv4": ("forwarding", "rp_filter", "arp_notify", "proxy_arp", "route_localnet", "accept_local"),
        "ipv6": ("forwarding", "accept_ra", "accept_dad", "disable_ipv6", "autoconf", "keep_addr_on_down"),
    }.items()
    for name in names
)


def container(machine: Machine, name: str) -> Json:
    """Links, addresses, routes and settings inside the namespace `name`."""
    inside = ("-n", name)
    return {
        "links": {link["ifname"]: _link(link) for link in _ip(machine, *inside, "-d", "link")},
        "addresses": {
            link["ifname"]: [_address(info) for info in link["addr_info"] if info["scope"] != "link"]
            for link in _ip(machine, *inside, "address")
        },
        "routes": [
            route
            for family in ("-4", "-6")
            for route in _ip(machine, *inside, family, "route", "show", "table", "all")
            if not _made_by_kernel(route)
        ],
        "settings": _settings(machine, "eth0", "ip", "netns", "exec", name),
    }


def host(machine: Machine, name: str, bridge: str) -> Json:
    """The bridge, and the host's end of what `name` has as eth0."""
    [end] = _ip(machine, "-n", name, "link", "show", "eth0")
    veth = next(link for link in _ip(machine, "-d", "link") if link["ifindex"] == end["link_index"])
    [device] = _ip(machine, "-d", "link", "show", bridge)
    [addresses] = _ip(machine, "address", "show", bridge)
    del veth["inet6_addr_gen_mode"]  # ours makes itself no link-local address (docs/decisions/0016)
    return {
        "veth": _link(veth) | {"settings": _settings(machine, veth["ifname"])},
        "bridge": _link(device) | {"settings": _settings(machine, bridge)},
        "addresses": [_address(info) for info in addresses["addr_info"] if info["scope"] != "link"],
        "routes": _ip(machine, "route", "show", "dev", bridge),
    }


def _ip(machine: Machine, *arguments: str) -> list[Json]:
    return list(json.loads(machine.run("ip", "-j", *arguments) or "[]"))


def _link(link: Json) -> Json:
    kept = {key: value for key, value in link.items() if key not in _BY_CHANCE}
    kept["flags"] = sorted(link["flags"])
    for data in (kept.get("linkinfo", {}).get(part, {}) for part in ("info_data", "info_slave_data")):
        for key in [key for key in data if key.startswith(_CLOCKS) or key.endswith(_CLOCKS)]:
            del data[key]
    return kept


def _address(info: Json) -> Json:
    return {key: value for key, value in info.items() if not key.endswith("_time")}


def _made_by_kernel(route: Json) -> bool:
    """Link-local and multicast routes come with a MAC, and when the kernel gets to it."""
    return route["dst"].startswith(("fe80:", "ff00:", "multicast", "anycast")) or route.get("type") == "anycast"


def _settings(machine: Machine, link: str, *inside: str) -> dict[str, str]:
    names = [f"net.{family}.conf.{link}.{name}" for family, name in _SETTINGS]
    values = machine.run(*inside, "sysctl", "-n", *names).split()
    return {f"{family}/{name}": value for (family, name), value in zip(_SETTINGS, values, strict=True)}
