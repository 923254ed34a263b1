"""Results of ADD: one model, the newest, and every released version's JSON to and from it (cni.md §1.14, §1.15).

Three shapes exist. They are read by what the request's version says, and written in the request's version.
"""

from collections.abc import Iterable
from typing import Any, Final

from weft.model.attachment import Dns, Interface, IpConfig, Result, RouteConfig
from weft.model.net import Ip
from weft.wire import cnijson
from weft.wire.cni import CniError, encode, failure
from weft.wire.cnijson import JsonError, Object, parse_cidr, parse_ip

# The versions of one shape; "" is what a result of the first shape may say for 0.1.0.
_BLOCKS: Final = ("", "0.1.0", "0.2.0")
_VERSIONED: Final = ("0.3.0", "0.3.1", "0.4.0")
_PLAIN: Final = ("1.0.0", "1.1.0")

# What the kernel has room for: __u32, and rtm_scope, a byte (rtnetlink.h).
_MAX_NUMBER: Final = (1 << 32) - 1
_MAX_SCOPE: Final = 255


def read(obj: Object, version: str) -> Result:
    """Read a result that must have the shape of `version` (cni.md §1.15). `CniError` 999 with the text of the spec."""
    family = next((family for family in (_BLOCKS, _VERSIONED, _PLAIN) if version in family), None)
    if family is None:
        raise failure(f'unsupported CNI result version "{version}"')
    try:
        own = cnijson.text(obj, "cniVersion")
        if own not in family:
            listed = " ".join(family)
            raise failure(f'result type supports [{listed}] but unmarshalled CNIVersion is "{own}"')
        return _read_blocks(obj) if family is _BLOCKS else _read_lists(obj)
    except JsonError as error:
        raise failure(str(error)) from error


def read_previous(config: Object, version: str) -> Result | None:
    """Read `prevResult` of a request of `version` (cni.md §1.16); None if there is none."""
    obj = cnijson.member(config, "prevResult")
    if not obj:
        return None
    if not cnijson.value_of(obj, "cniVersion"):
        obj = {**obj, "cniVersion": version}
    try:
        return read(obj, version)
    except CniError as error:
        raise failure(f"could not parse prevResult: {error.msg}") from error


def _read_lists(obj: Object) -> Result:
    return Result(
        interfaces=cnijson.items(obj, "interfaces", _read_interface),
        ips=cnijson.items(obj, "ips", _read_ip),
        routes=cnijson.items(obj, "routes", read_route),
        dns=read_dns(cnijson.member(obj, "dns")),
    )


def _read_blocks(obj: Object) -> Result:
    ips: list[IpConfig] = []
    routes: list[RouteConfig] = []
    for key in ("ip4", "ip6"):
        block = cnijson.member(obj, key)
        if not block:
            continue
        ips.append(IpConfig(address=parse_cidr(cnijson.text(block, "ip")), gateway=_maybe_ip(block, "gateway")))
        routes += cnijson.items(block, "routes", read_route)
    return Result(ips=tuple(ips), routes=tuple(routes), dns=read_dns(cnijson.member(obj, "dns")))


def _read_interface(value: Any, where: str) -> Interface:
    obj = cnijson.as_object(value, where)
    return Interface(
        name=cnijson.text(obj, "name"),
        mac=cnijson.text(obj, "mac"),
        mtu=cnijson.integer(obj, "mtu"),
        sandbox=cnijson.text(obj, "sandbox"),
        socket_path=cnijson.text(obj, "socketPath"),
        pci_id=cnijson.text(obj, "pciID"),
    )


def _read_ip(value: Any, where: str) -> IpConfig:
    obj = cnijson.as_object(value, where)
    return IpConfig(
        address=parse_cidr(cnijson.text(obj, "address")),
        gateway=_maybe_ip(obj, "gateway"),
        interface=cnijson.maybe_integer(obj, "interface"),
    )


def read_route(value: Any, where: str) -> RouteConfig:
    """Read one route of a result or of an IPAM configuration."""
    obj = cnijson.as_object(value, where)
    return RouteConfig(
        dst=parse_cidr(cnijson.text(obj, "dst")),
        gw=_maybe_ip(obj, "gw"),
        mtu=cnijson.integer(obj, "mtu", least=0, most=_MAX_NUMBER),
        advmss=cnijson.integer(obj, "advmss", least=0, most=_MAX_NUMBER),
        priority=cnijson.integer(obj, "priority", least=0, most=_MAX_NUMBER),
        table=cnijson.maybe_integer(obj, "table", least=0, most=_MAX_NUMBER),
        scope=cnijson.maybe_integer(obj, "scope", least=0, most=_MAX_SCOPE),
    )


def read_dns(obj: Object) -> Dns:
    """Read resolver settings of a result or of a plugin's configuration."""
    return Dns(
        nameservers=cnijson.items(obj, "nameservers", cnijson.as_text),
        domain=cnijson.text(obj, "domain"),
        search=cnijson.items(obj, "search", cnijson.as_text),
        options=cnijson.items(obj, "options", cnijson.as_text),
    )


def _maybe_ip(obj: Object, key: str) -> Ip | None:
    value = cnijson.text(obj, key)
    return parse_ip(value) if value else None


def render(result: Result, version: str) -> bytes:
    """Return the result as a plugin prints it for a request of `version`."""
    return encode(to_json(result, version))


def to_json(result: Result, version: str) -> Object:
    """Return the result in the shape of `version`. `CniError` if that shape cannot hold it."""
    version = version or _BLOCKS[1]
    if version in _BLOCKS:
        return _write_blocks(result, version)
    if version in _VERSIONED or version in _PLAIN:
        return _write_lists(result, version)
    raise failure(f"no converter for CNI result version {_PLAIN[-1]} to {version}")


def _write_lists(result: Result, version: str) -> Object:
    plain = version in _PLAIN
    obj: Object = {"cniVersion": version}
    if result.interfaces:
        obj["interfaces"] = [_write_interface(interface, plain=plain) for interface in result.interfaces]
    if result.ips:
        obj["ips"] = [_write_ip(ip, plain=plain) for ip in result.ips]
    if result.routes:
        obj["routes"] = [write_route(route) for route in result.routes]
    if result.dns.is_set or not plain:
        obj["dns"] = write_dns(result.dns)
    return obj


def _write_blocks(result: Result, version: str) -> Object:
    obj: Object = {"cniVersion": version}
    for family, key in ((4, "ip4"), (6, "ip6")):
        first = next((ip for ip in result.ips if ip.address.version == family), None)
        if first is None:
            continue
        block: Object = {"ip": str(first.address)}
        if first.gateway is not None:
            block["gateway"] = str(first.gateway)
        routes = [route for route in result.routes if route.dst.version == family]
        if routes:
            block["routes"] = [write_route(RouteConfig(dst=route.dst, gw=route.gw)) for route in routes]
        obj[key] = block
    if "ip4" not in obj and "ip6" not in obj:
        raise failure("cannot convert: no valid IP addresses")
    obj["dns"] = write_dns(result.dns)
    return obj


def _write_interface(interface: Interface, *, plain: bool) -> Object:
    obj: Object = {"name": interface.name}
    extras: Iterable[tuple[str, Any]] = (
        ("mac", interface.mac),
        ("mtu", interface.mtu if plain else 0),
        ("sandbox", interface.sandbox),
        ("socketPath", interface.socket_path if plain else ""),
        ("pciID", interface.pci_id if plain else ""),
    )
    obj.update((key, value) for key, value in extras if value)
    return obj


def _write_ip(ip: IpConfig, *, plain: bool) -> Object:
    obj: Object = {} if plain else {"version": str(ip.address.version)}
    if ip.interface is not None:
        obj["interface"] = ip.interface
    obj["address"] = str(ip.address)
    if ip.gateway is not None:
        obj["gateway"] = str(ip.gateway)
    return obj


def write_route(route: RouteConfig) -> Object:
    """Return a route as JSON: empty fields are left out, `table` and `scope` only when absent."""
    obj: Object = {"dst": str(route.dst)}
    if route.gw is not None:
        obj["gw"] = str(route.gw)
    counts = (("mtu", route.mtu), ("advmss", route.advmss), ("priority", route.priority))
    obj.update((key, value) for key, value in counts if value)
    options = (("table", route.table), ("scope", route.scope))
    obj.update((key, value) for key, value in options if value is not None)
    return obj


def write_dns(dns: Dns) -> Object:
    """Return resolver settings as JSON, empty ones left out."""
    obj: Object = {}
    if dns.nameservers:
        obj["nameservers"] = list(dns.nameservers)
    if dns.domain:
        obj["domain"] = dns.domain
    if dns.search:
        obj["search"] = list(dns.search)
    if dns.options:
        obj["options"] = list(dns.options)
    return obj
