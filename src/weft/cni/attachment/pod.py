"""What one pod's attachment consists of: gateways, routes and addresses (cni.md §3.2, §3.3, §3.5).

Decides, and touches nothing: the plugins bridge and ptp and `interface` carry it out.
"""

from collections.abc import Iterable
from ipaddress import ip_interface, ip_network
from typing import Final

from weft.model.attachment import Cidr, Result, RouteConfig
from weft.model.net import Mac
from weft.model.value import Value, replace
from weft.wire.cni import INTERNAL, CniError

# The container's interface is the third of the result: bridge, the host's end, the container's end.
CONTAINER_INDEX: Final = 2

_DEFAULTS: Final = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


# Locally administered (IEEE 802); what comes after it is an IPv4 address.
_MAC_PREFIX: Final = b"\x0a\x58"


class Unfit(CniError):
    """A result that cannot be applied, or an address that is in the way: the text is upstream's."""

    def __init__(self, text: str) -> None:
        super().__init__(INTERNAL, text)


class AddressChange(Value):
    """What makes a link hold an address: what goes first, and whether there is anything to add."""

    remove: tuple[Cidr, ...] = ()
    add: bool = False


def with_gateways(result: Result, *, is_gateway: bool, is_default: bool) -> Result:
    ips = tuple(
        replace(
            ip,
            interface=CONTAINER_INDEX,
            gateway=ip.address.network.network_address + 1 if ip.gateway is None and is_gateway else ip.gateway,
        )
        for ip in result.ips
    )
    routes = list(result.routes)
    if is_default:
        for family in dict.fromkeys(ip.address.version for ip in ips):
            default = _DEFAULTS[family]
            gateway = next(ip.gateway for ip in ips if ip.address.version == family)
            # A default route that names no gateway gets this one anyway (cni.md §3.3): it counts, unlike upstream.
            if gateway is not None and not any(route.dst.network == default for route in routes):
                routes.append(RouteConfig(dst=ip_interface(default), gw=gateway))
    return replace(result, ips=ips, routes=tuple(routes))


def behind_gateways(result: Result, index: int) -> Result:
    for ip in result.ips:
        if ip.gateway is None:
            raise Unfit(f"IPAM has named no gateway for {ip.address}")
    return replace(result, ips=tuple(replace(ip, interface=index) for ip in result.ips))


def mac_of(result: Result) -> Mac | None:
    """Return the MAC that goes with a pod's IPv4 address, None unless it has exactly one.

    An address that is given again then has the MAC that neighbours remember (decision 0016). Of two addresses, the
    second might come again with another first one.
    """
    found = [ip.address.ip.packed for ip in result.ips if ip.address.version == 4]
    return Mac(_MAC_PREFIX + found[0]) if len(found) == 1 else None


def gateway_addresses(result: Result) -> tuple[Cidr, ...]:
    """IPv4 first, each once."""
    found = [ip_interface((ip.gateway, ip.address.network.prefixlen)) for ip in result.ips if ip.gateway is not None]
    return tuple(dict.fromkeys(sorted(found, key=lambda cidr: cidr.version)))


def addresses_of(result: Result, ifname: str) -> tuple[Cidr, ...]:
    """Return the addresses on `ifname`; one without an index belongs to no link here (cni.md §3.3)."""
    if not result.interfaces:
        raise Unfit("no interfaces to configure")
    found = []
    for ip in result.ips:
        if ip.interface is None:
            continue
        inside = 0 <= ip.interface < len(result.interfaces)
        if not inside or result.interfaces[ip.interface].name != ifname:
            raise Unfit(f'failed to add IP addr {ip.address} to "{ifname}": invalid interface index')
        found.append(ip.address)
    return tuple(found)


def routes_of(result: Result) -> tuple[RouteConfig, ...]:
    """A route without a gateway takes the first of its family (cni.md §3.3)."""
    first = {
        family: next((ip.gateway for ip in result.ips if ip.gateway is not None and ip.gateway.version == family), None)
        for family in _DEFAULTS
    }
    return tuple(
        route if route.gw is not None else replace(route, gw=first[route.dst.version]) for route in result.routes
    )


def ensure_address(want: Cidr, have: Iterable[Cidr], *, link: str, force: bool) -> AddressChange:
    """Say how `link` gets an address beside those it has (cni.md §3.5). Raises `Unfit`.

    Another IPv4 address is always in the way, an IPv6 one if one network contains the other's address; then `force`
    decides.
    """
    others = []
    for address in have:
        if address == want:
            return AddressChange()
        if address.version != want.version:
            continue
        if want.version == 4 or address.ip in want.network or want.ip in address.network:
            others.append(address)
    if others and not force:
        raise Unfit(f'"{link}" already has an IP address different from {want}')
    return AddressChange(remove=tuple(others), add=True)
