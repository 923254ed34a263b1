"""This node's own links: the devices between nodes, and the bridges of pods."""

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from weft.diag.finding import Check, Finding
from weft.diag.sight import Sight
from weft.model.errors import Problem

_SMALLEST_V6: Final = 1280  # RFC 8200 §5


def _clashes(sight: Sight) -> Iterator[Finding]:
    ours = {link.name for link in sight.devices}
    for one, two in combinations(sight.vxlans, 2):
        if (one.port, one.vni) == (two.port, two.vni) and not {one.name, two.name} <= ours:
            seen = f"both have VNI {one.vni} and UDP port {one.port}"
            other = two.name if one.name in ours else one.name
            hint = f"Packets go to one of them. Remove {other}, or choose another VNI or Port for all nodes"
            yield Finding(problem=Problem(code="VTEP-002", where=f"{one.name} and {two.name}", seen=seen, hint=hint))


def _devices(sight: Sight) -> Iterator[Finding]:
    for link in sight.devices:
        if not link.up:
            command = f"ip link set {link.name} up"
            hint = f"Routes through it went with it, and weftd puts all of it back. Without weftd: {command}"
            problem = Problem(code="VTEP-003", where=f"link {link.name}", seen="it is down", expected="up", hint=hint)
            yield Finding(problem=problem, fix=(command,))
        elif link.mtu < sight.mtu:
            command = f"ip link set {link.name} mtu {sight.mtu}"
            seen, expected = f"MTU {link.mtu}", f"{sight.mtu}, as pods have"
            problem = Problem(code="MTU-001", where=f"link {link.name}", seen=seen, expected=expected, hint=command)
            yield Finding(problem=problem, fix=(command,))


def _bridges_up(sight: Sight) -> Iterator[Finding]:
    for bridge in sight.bridges:
        if not bridge.up:
            command = f"ip link set {bridge.name} up"
            seen, hint = "it is down: no pod on it reaches anything", command
            problem = Problem(code="BRIDGE-006", where=f"bridge {bridge.name}", seen=seen, expected="up", hint=hint)
            yield Finding(problem=problem, fix=(command,))


def _bridge_addresses(sight: Sight) -> Iterator[Finding]:
    named = {name for network in sight.networks if "flannel" in network.plugins for name in network.bridges}
    for bridge in sight.bridges:
        if bridge.name not in named:
            continue
        have = [address for address in sight.addresses_of(bridge.index) if address.scope == 0]
        for subnet in sight.subnets:
            family = [address for address in have if address.ip.version == subnet.version]
            if family and not any(address.ip in subnet for address in family):
                seen = f"it has {', '.join(f'{each.ip}/{each.prefixlen}' for each in family)}"
                hint = "The lease has changed since. Move the pods off this node, then: ip link delete " + bridge.name
                where, expected = f"bridge {bridge.name}", f"an address of {subnet}"
                yield Finding(problem=Problem(code="BRIDGE-001", where=where, seen=seen, expected=expected, hint=hint))


def _hairpin(sight: Sight) -> Iterator[Finding]:
    named = {name for network in sight.networks if network.hairpin for name in network.bridges}
    bridges = {bridge.index: bridge for bridge in sight.bridges if bridge.name in named}
    for port in sight.links:
        if port.master in bridges and port.port is not None and not port.port.hairpin:
            command = f"bridge link set dev {port.name} hairpin on"
            seen = "hairpin is off: its pod does not reach itself by its own Service"
            where = f"{port.name} on {bridges[port.master].name}"
            problem = Problem(code="BRIDGE-003", where=where, seen=seen, expected="on", hint=command)
            yield Finding(problem=problem, weight="warning", fix=(command,))


def _ipv6(sight: Sight) -> Iterator[Finding]:
    if any(subnet.version == 6 for subnet in sight.subnets):
        for link in (*sight.devices, *sight.bridges):
            if link.mtu < _SMALLEST_V6:
                seen, expected = f"MTU {link.mtu}", f"{_SMALLEST_V6} at least, without which a link has no IPv6"
                problem = Problem(code="V6-001", where=f"link {link.name}", seen=seen, expected=expected)
                yield Finding(problem=problem)


CHECKS: Final = (
    Check(name="devices-apart", about="no two VXLAN devices share VNI and port", needs=("links",), find=_clashes),
    Check(name="devices", about="devices between nodes are up, with pods' MTU", needs=("links",), find=_devices),
    Check(name="bridges", about="pods' bridges are up", needs=("links", "networks"), find=_bridges_up),
    Check(
        name="bridge-addresses",
        about="pods' bridges have addresses of this node's subnet",
        needs=("links", "networks"),
        find=_bridge_addresses,
    ),
    Check(name="hairpin", about="pods reach themselves by their Services", needs=("links", "networks"), find=_hairpin),
    Check(name="ipv6-links", about="links of IPv6 pods can carry IPv6", needs=("links",), find=_ipv6),
)
