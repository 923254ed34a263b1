"""This node's own links: the devices between nodes, and the bridges of pods."""

from collections.abc import Collection, Iterator
from itertools import combinations
from shlex import quote
from typing import Final

from weft.diag.finding import Command, Finding, check, finding, link_up, mended, setting
from weft.diag.sight.node import Sight
from weft.diag.sight.peers import peers
from weft.model.kernel.reported import LinkInfo

# What a device adds to a packet at least, by its kind: outer headers of IPv4.
_WRAPPED: Final = {"vxlan": 50, "ipip": 20, "wireguard": 60}
_V6_MORE: Final = 20  # bytes by which its header is longer
_NAMED: Final = 3
_SMALLEST_V6: Final = 1280  # RFC 8200 §5


@check("devices-apart", "no two VXLAN devices share VNI and port", "links")
def _clashes(sight: Sight) -> Iterator[Finding]:
    ours = {link.name for link in sight.devices}
    for one, two in combinations(sight.vxlans, 2):
        if (one.port, one.vni) == (two.port, two.vni) and not {one.name, two.name} <= ours:
            seen = f"both have VNI {one.vni} and UDP port {one.port}"
            other = two.name if one.name in ours else one.name
            hint = f"Only one of them gets the packets. Remove {other}, or choose another VNI or Port for all nodes"
            yield finding("VTEP-002", f"{one.name} and {two.name}", seen, hint)


@check("devices", "devices between nodes are up, with pods' MTU", "links")
def _devices(sight: Sight) -> Iterator[Finding]:
    for link in sight.devices:
        if not link.up:
            command = link_up(link.name)
            hint = (
                "The routes through it are gone too; weftd puts the device and them back."
                f" If weftd does not run: {command}"
            )
            yield finding("VTEP-003", f"link {link.name}", "it is down", hint, expected="up", fix=(command,))
        elif _is_flannels_v6(link, sight):
            seen = (
                f"pods' MTU is {sight.mtu}, but {link.name} carries only {link.mtu}:"
                " flanneld subtracts 50 bytes, and IPv6 needs 70"
            )
            hint = (
                "Pods learn the smaller size by ICMPv6, unless something drops it."
                f" Set mtu to {link.mtu} in the delegate of the CNI configuration"
            )
            where, expected = "FLANNEL_MTU in subnet.env", str(link.mtu)
            yield finding("MTU-001", where, seen, hint, expected=expected, weight="warning")
        elif link.mtu < sight.mtu:
            words = ("ip", "link", "set", link.name, "mtu", str(sight.mtu))
            command = Command(words, f"gives {link.name} the MTU of pods")
            expected = f"{sight.mtu}, as pods have"
            yield mended(command, "MTU-001", f"link {link.name}", f"MTU {link.mtu}", expected=expected)


def _is_flannels_v6(link: LinkInfo, sight: Sight) -> bool:
    """True of a VTEP for IPv6 as flanneld makes it: narrower than it says (flannel.md §12.3)."""
    return sight.daemon is None and link.name.startswith("flannel-v6.") and link.mtu == sight.mtu - _V6_MORE


@check("bridges", "pods' bridges are up, and as wide as their pods", "links", "networks")
def _bridges_up(sight: Sight) -> Iterator[Finding]:
    for bridge in sight.bridges:
        if not bridge.up:
            seen = "it is down, so no pod on it reaches anything"
            yield mended(link_up(bridge.name), "BRIDGE-006", f"bridge {bridge.name}", seen, expected="up")
        if bridge.mtu < (least := min(filter(None, (sight.mtu, _widest(sight, bridge))), default=0)):
            command = Command(("ip", "link", "set", bridge.name, "mtu", str(least)), f"gives {bridge.name} pods' MTU")
            where, seen, expected = f"bridge {bridge.name}", f"MTU {bridge.mtu}", f"{least}, as pods have"
            why = "Larger packets for its pods are lost where ICMP is filtered"
            yield mended(command, "MTU-001", where, seen, why=why, expected=expected)


def _widest(sight: Sight, bridge: LinkInfo) -> int:
    """The largest MTU of its pods; 0 without any."""
    ports = {port.name for port in sight.links if port.master == bridge.index}
    return max((mtu for name, mtu in sight.mtus_of_pods.items() if name in ports), default=0)


@check("bridge-addresses", "pods' bridges have addresses of this node's subnet", "links", "networks")
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
                hint = (
                    "Either this node's lease has changed since the bridge was made: move the pods off, then run"
                    f" 'ip link delete {quote(bridge.name)}'. Or another network uses this bridge: give one of the two"
                    " networks another bridge"
                )
                yield finding("BRIDGE-001", f"bridge {bridge.name}", seen, hint, expected=f"an address of {subnet}")


@check("hairpin", "pods reach themselves through their Services", "links", "networks")
def _hairpin(sight: Sight) -> Iterator[Finding]:
    named = {name for network in sight.networks if network.hairpin for name in network.bridges}
    bridges = {bridge.index: bridge for bridge in sight.bridges if bridge.name in named}
    for port in sight.links:
        if port.master in bridges and port.port is not None and not port.port.hairpin:
            words = ("bridge", "link", "set", "dev", port.name, "hairpin", "on")
            command = Command(words, f"lets the pod behind {port.name} reach itself")
            seen = "hairpin is off, so its pod cannot reach itself through its Service"
            where = f"{port.name} on {bridges[port.master].name}"
            yield mended(command, "BRIDGE-003", where, seen, expected="hairpin on", weight="warning")


@check(
    "uplink-mtu",
    "the uplink has room for pods' packets and what they are wrapped in",
    "links",
    each_minute=True,
)
def _wider(sight: Sight) -> Iterator[Finding]:
    """The uplink must carry packets of pods whole, wrapped or not: outer packets are never fragmented."""
    state = sight.daemon
    named = {*sight.ways.values()} if state is None or state.uplink is None else {state.uplink.index}
    kinds = {device.kind: device.name for device in sight.devices}
    wrapped = max((kind for kind in kinds if kind in _WRAPPED), key=lambda kind: _WRAPPED[kind], default="")
    more = _WRAPPED.get(wrapped, 0)
    for uplink in (link for link in sight.links if link.index in named) if sight.mtu and (more or not kinds) else ():
        least = sight.mtu + more
        if uplink.mtu < least:
            seen = f"MTU {uplink.mtu}"
            around = f" and {more} for {kinds[wrapped]}" if more else ""
            expected = f"{least} at least: {sight.mtu} for packets of pods{around}"
            hint = (
                "Set the uplink's MTU back; or set a smaller MTU in the network configuration's Backend,"
                " and restart weftd"
            )
            yield finding("MTU-001", f"uplink {uplink.name}", seen, hint, expected=expected)


@check("pods-mtu", "pods have the network's MTU", "links", "networks", each_minute=True)
def _narrower(sight: Sight) -> Iterator[Finding]:
    """Pods keep the MTU that they were made with, when the network's becomes smaller."""
    wide = {name: mtu for name, mtu in sight.mtus_of_pods.items() if mtu > sight.mtu > 0}
    if wide:
        have = "1 pod has" if len(wide) == 1 else f"{len(wide)} pods have"
        named = f"{'host end' if len(wide) == 1 else 'host ends'}: {', '.join(list(wide)[:_NAMED])}"
        seen = f"{have} MTU {_from_to(wide.values())} ({named}{' …' * (len(wide) > _NAMED)})"
        hint = "Their large packets are lost where ICMP is filtered. Recreate these pods"
        yield finding(
            "MTU-001", "MTU of pods", seen, hint, expected=f"{sight.mtu}, which the network has now", weight="warning"
        )


def _from_to(numbers: Collection[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


@check("ipv6-links", "links of IPv6 pods can carry IPv6", "links", "settings")
def _ipv6(sight: Sight) -> Iterator[Finding]:
    if any(subnet.version == 6 for subnet in sight.subnets):
        for link in (*sight.devices, *sight.bridges, *_perhaps_uplinks(sight)):
            name = f"net/ipv6/conf/{link.name}/disable_ipv6"
            if sight.settings.get(name) == "1":
                does = f"turns IPv6 on for {link.name}; its addresses come back with weftd's next look"
                yield mended(setting(name, "0", does), "V6-001", f"sysctl {name}", "IPv6 is off")
            if link.mtu < _SMALLEST_V6:
                seen, expected = f"MTU {link.mtu}", f"{_SMALLEST_V6} at least, without which a link has no IPv6"
                hint = (
                    "Raise the uplink's MTU, or MTU in the network configuration's Backend, whichever is too small,"
                    " and restart weftd; recreate pods that were made with the smaller MTU"
                )
                yield finding("V6-001", f"link {link.name}", seen, hint, expected=expected)


def _perhaps_uplinks(sight: Sight) -> list[LinkInfo]:
    """Links towards peers, where none leads to a peer's node by IPv6, or no peer is known by IPv6 and some by IPv4."""
    known = peers(sight)
    publics = [str(peer.public) for peer in known if peer.public is not None and peer.public.version == 6]
    missing = any(each not in sight.ways for each in publics) or (known and all(p.subnet.version == 4 for p in known))
    apart = (*sight.devices, *sight.bridges)
    others = [link for link in sight.links if not (link in apart or link.master or link.loopback)] if missing else []
    return [link for link in others if not sight.ways or link.index in sight.ways.values()]


CHECKS: Final = (_clashes, _devices, _wider, _narrower, _bridges_up, _bridge_addresses, _hairpin, _ipv6)
