"""What CHECK finds wrong with an attachment: the result of its ADD against what is there now (cni.md §3.8).

Decides, and touches nothing. The first `Wrong` thing is raised, in upstream's words where it has some. Later plugins
may have changed what is not named here (MTU, settings, the table of a route).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from weft.model.attachment import Interface, Result, RouteConfig
from weft.model.kernel.reported import AddressInfo, LinkInfo, PortVlans, RouteInfo
from weft.wire.cni import INTERNAL, CniError

_LOCAL_TABLE: Final = 255
_LONGEST_PREFIX: Final = {4: 32, 6: 128}


class Wrong(CniError):
    """`text` says what is wrong, `found` what is there instead."""

    def __init__(self, text: str, found: str) -> None:
        super().__init__(INTERNAL, text, f"CHECK-001: {found}")


def container_interface(result: Result, ifname: str, netns: str) -> Interface:
    named = [interface for interface in result.interfaces if interface.name == ifname and interface.sandbox]
    for interface in named:
        if interface.sandbox == netns:
            return interface
    sandbox = named[0].sandbox if named else ""
    others = ", ".join(interface.name for interface in result.interfaces) or "no interface"
    raise Wrong(
        f"Sandbox in prevResult {sandbox} doesn't match configured netns: {netns}",
        f"prevResult names {others}; {ifname} in {netns} is not among them",
    )


def check_container_end(want: Interface, link: LinkInfo | None, *, up: bool) -> LinkInfo:
    if link is None:
        raise Wrong(f"Interface name {want.name} not found", f"the container has no {want.name}")
    if link.kind != "veth":
        kind = link.kind or "hardware or loopback"
        raise Wrong(f"Error: Container interface {want.name} not of type veth", f"{want.name} is of kind {kind}")
    if want.mac and str(link.mac) != want.mac:
        text = f"Interface {want.name} Mac {want.mac} doesn't match container Mac: {link.mac}"
        raise Wrong(text, f"{want.name} had {want.mac} and has {link.mac}")
    if up and not link.up:
        raise Wrong(f"Interface {want.name} is down", f"somebody has set {want.name} down in the container")
    return link


def check_bridge(result: Result, name: str, link: LinkInfo | None, *, promisc: bool) -> LinkInfo:
    want = next((interface for interface in result.interfaces if interface.name == name), None)
    if want is None:
        raise Wrong("Interface name missing", f"prevResult names no interface {name}")
    if want.sandbox:
        raise Wrong(f"Interface {name} should not be in sandbox", f"prevResult says that {name} is in {want.sandbox}")
    if link is None:
        raise Wrong(f"Interface name {name} not found", f"the host has no {name}")
    if link.kind != "bridge":
        raise Wrong(
            f"Interface {name} does not have link type of bridge", f"{name} is of kind {link.kind or 'hardware'}"
        )
    if want.mac and str(link.mac) != want.mac:
        text = f"Bridge interface {name} Mac doesn't match: {want.mac} not found"
        raise Wrong(text, f"{name} had {want.mac} and has {link.mac}")
    if link.promisc != promisc:
        asked, there = str(promisc).lower(), str(link.promisc).lower()
        text = f"Bridge interface {name} configured Promisc Mode {asked} doesn't match current state: {there}"
        raise Wrong(text, f"promiscuous mode of {name} was switched {'on' if link.promisc else 'off'} by somebody")
    if not link.up:
        raise Wrong(f"Interface {name} is down", f"somebody has set {name} down")
    return link


def check_host_end(result: Result, link: LinkInfo | None, missing: str) -> LinkInfo:
    if link is None:
        raise Wrong(missing, "the other end of the container's interface is not on this host")
    want = next((one for one in result.interfaces if one.name == link.name and not one.sandbox), None)
    if want is None:
        raise Wrong(
            missing, f"the other end of the container's interface is {link.name}, which prevResult does not name"
        )
    if want.mac and str(link.mac) != want.mac:
        text = f"Interface {link.name} Mac doesn't match: {want.mac} not found"
        raise Wrong(text, f"{link.name} had {want.mac} and has {link.mac}")
    if not link.up:
        raise Wrong(f"Interface {link.name} is down", f"somebody has set {link.name} down on the host")
    return link


def check_port(link: LinkInfo, bridge: LinkInfo, *, hairpin: bool, isolated: bool) -> None:
    if link.master != bridge.index or link.port is None:
        missing = f"CNI veth created for bridge {bridge.name} was not found"
        raise Wrong(missing, f"{link.name} is no port of {bridge.name} any more")
    flags = (("hairpin mode", hairpin, link.port.hairpin), ("isolation", isolated, link.port.isolated))
    for flag, want, have in flags:
        if want != have:
            text = f"Port {link.name} of bridge {bridge.name}: {flag} is {'on' if have else 'off'}"
            raise Wrong(text, f"the configuration wants it {'on' if want else 'off'}")


def check_vlans(link: LinkInfo, have: PortVlans, *, own: int, tagged: Iterable[int]) -> None:
    if have.own != own:
        raise Wrong(
            f"Port {link.name} is not in VLAN {own}", f"its untagged frames belong to VLAN {have.own or 'none'}"
        )
    lost = sorted(set(tagged) - have.tagged)
    if lost:
        carried = ", ".join(map(str, sorted(have.tagged))) or "none"
        raise Wrong(f"Port {link.name} does not carry VLAN {lost[0]}", f"it carries tagged: {carried}")


def check_addresses(
    result: Result, want: Interface, addresses: Sequence[AddressInfo], routes: Sequence[RouteInfo]
) -> None:
    there = {(seen.ip, seen.prefixlen): seen for seen in addresses}
    for ip in result.ips:
        index = ip.interface  # an address counts if nothing, or nothing that exists, is said about it
        if index is not None and 0 <= index < len(result.interfaces) and result.interfaces[index] != want:
            continue
        length = ip.address.network.prefixlen
        seen = there.get((ip.address.ip, length))
        if seen is None:
            listed = ", ".join(f"{address}/{prefix}" for address, prefix in there) or "no address"
            raise Wrong(f"Failed to match addr {ip.address} on interface {want.name}", f"{want.name} has {listed}")
        if seen.dad_failed:
            text = f"link {want.name} has address {ip.address.ip} in DADFAILED state"
            raise Wrong(text, f"another host on this network has {ip.address.ip}")
        network = RouteConfig(dst=ip.address)
        if length < _LONGEST_PREFIX[ip.address.version] and not _has_route(routes, network):
            text = f"Failed to find Gateway {ip.gateway} for interface {want.name}"
            raise Wrong(text, f"the container has no route to {ip.address.network}")


def check_routes(wanted: Iterable[RouteConfig], routes: Sequence[RouteInfo]) -> None:
    """A default route counts whatever its gateway is."""
    for want in wanted:
        if not _has_route(routes, want):
            via = f" GW:{want.gw}" if want.gw is not None else ""
            there = ", ".join(_describe(route) for route in routes if route.dst == want.dst.network)
            text = f"Expected Route {{Dst:{want.dst.network}{via}}} not found in routing table"
            raise Wrong(text, f"there is {there or 'none'} to {want.dst.network}")


def _has_route(routes: Iterable[RouteInfo], want: RouteConfig) -> bool:
    for route in routes:
        if route.dst != want.dst.network or route.table == _LOCAL_TABLE:
            continue
        # Source based routing moves routes into tables of its own.
        if want.table not in (None, route.table):
            continue
        gateways = {route.via, *(hop.via for hop in route.hops)}
        if want.gw is None or want.dst.network.prefixlen == 0 or want.gw in gateways:
            return True
    return False


def _describe(route: RouteInfo) -> str:
    via = ", ".join(str(hop.via) for hop in route.hops) or route.via
    return f"one via {via} in table {route.table}"
