"""What a change of a lease, or of the uplink, is in words: what was, and what is now."""

import json
from typing import Any

from weft.desired.inputs import Facts
from weft.model.lease import Lease, Way
from weft.model.value import replace


def of_lease(before: Lease, after: Lease) -> tuple[str, str]:
    """Both are empty if they say the same."""
    return _differing(_told(before), _told(after))


def is_alike(before: Lease, after: Lease) -> bool:
    """Whether only where the peer's WireGuard is looked for has changed: one place after the other, told to nobody."""
    return _apart_from_endpoint(before) == _apart_from_endpoint(after)


def _apart_from_endpoint(lease: Lease) -> Lease:
    way = lease.way
    return lease if way is None or way.tunnel is None else replace(lease, way=replace(way, tunnel=None))


def of_uplink(before: Facts, after: Facts) -> tuple[str, str]:
    """The name stands first if anything differs."""
    was, now = _differing(_link(before), _link(after))
    if not was or before.uplink.name != after.uplink.name:
        return was, now
    return f"{before.uplink.name}, {was}", f"{after.uplink.name}, {now}"


def reached(lease: Lease) -> str:
    return ", ".join(f"{name} {value}" for name, value in _told(lease).items() if name in _REACHED and value != "none")


_REACHED = ("subnets", "public IP", "public IPv6", "back end", "way")


def _told(lease: Lease) -> dict[str, str]:
    attrs = lease.attrs
    return {
        "subnets": " ".join(map(str, lease.subnets)),
        "public IP": _or_none(attrs.public_ip),
        "public IPv6": _or_none(attrs.public_ipv6),
        "back end": attrs.backend or "none",
        **_data("", attrs.data),
        **_data("IPv6 ", attrs.data_v6),
        **({} if lease.way is None else _way(lease.way)),
    }


def _way(way: Way) -> dict[str, str]:
    return {"way": str(way), "its address": " ".join(map(str, way.remotes)) or "none"}


def _link(facts: Facts) -> dict[str, str]:
    """A new index of the same name is another link."""
    uplink = facts.uplink
    return {
        "link": uplink.name,
        "IPv4": _or_none(uplink.v4),
        "IPv6": _or_none(uplink.v6),
        "MTU": str(uplink.mtu),
        "index": str(uplink.index),
        "networks": " ".join(map(str, facts.onlink)) or "none",
    }


def _data(family: str, data: Any) -> dict[str, str]:
    """Key by key where it is an object."""
    if isinstance(data, dict):
        return {f"{family}{key}": json.dumps(value) for key, value in data.items()}
    return {} if data is None else {f"{family}data": json.dumps(data)}


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


def _differing(before: dict[str, str], after: dict[str, str]) -> tuple[str, str]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    was = ", ".join(f"{name} {before.get(name, 'none')}" for name in names)
    return was, ", ".join(f"{name} {after.get(name, 'none')}" for name in names)
