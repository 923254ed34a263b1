"""Results of ADD, to and from each version's JSON; the model is the newest version's (cni.md §1.14, §1.15).

There are three shapes, chosen by the request's version.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from weft.model.attachment import Cidr, Dns, IpConfig, Result, RouteConfig
from weft.model.keyed import Key
from weft.model.net import Ip, is_reachable
from weft.model.value import Value, field, replace
from weft.wire import cni, cnijson
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode, encode

# The versions of one shape; "" is what a result of the first shape may say for 0.1.0.
_BLOCKS: Final = ("", "0.1.0", "0.2.0")
_VERSIONED: Final = ("0.3.0", "0.3.1", "0.4.0")
_PLAIN: Final = ("1.0.0", "1.1.0")


class _Block(Value):
    """The single address of a family."""

    ip: Annotated[Cidr, Key("ip")]
    gateway: Annotated[Ip | None, Key("gateway")] = None
    routes: Annotated[tuple[RouteConfig, ...], Key("routes")] = ()


class _Blocks(Value):
    """The first shape. An empty block counts as absent."""

    ip4: Annotated[Object, Key("ip4")] = field(default_factory=dict)
    ip6: Annotated[Object, Key("ip6")] = field(default_factory=dict)
    dns: Annotated[Dns, Key("dns")] = field(default_factory=Dns)


def read(obj: Object, version: str) -> Result:
    """The result must have the shape of `version`, else `CniError` 999 with the text of the spec (cni.md §1.15)."""
    family = next((family for family in (_BLOCKS, _VERSIONED, _PLAIN) if version in family), None)
    if family is None:
        raise failure(f'unsupported CNI result version "{version}"')
    try:
        own = cnijson.text(obj, "cniVersion")
        if own not in family:
            listed = " ".join(family)
            raise failure(f'result type supports [{listed}] but unmarshalled CNIVersion is "{own}"')
        return _read_blocks(obj) if family is _BLOCKS else decode(Result, obj)
    except JsonError as error:
        raise failure(str(error)) from error


def read_previous(config: Object, version: str) -> Result | None:
    """`prevResult` (cni.md §1.16)."""
    obj = cnijson.member(config, "prevResult")
    if not obj:
        return None
    if not cnijson.value_of(obj, "cniVersion"):
        obj = {**obj, "cniVersion": version}
    try:
        return read(obj, version)
    except CniError as error:
        raise failure(f"could not parse prevResult: {error.msg}") from error


def _read_blocks(obj: Object) -> Result:
    blocks = decode(_Blocks, obj)
    found = [decode(_Block, block) for block in (blocks.ip4, blocks.ip6) if block]
    return Result(
        ips=tuple(IpConfig(address=block.ip, gateway=block.gateway) for block in found),
        routes=tuple(route for block in found for route in block.routes),
        dns=blocks.dns,
    )


def check_usable(ips: Sequence[IpConfig] = (), routes: Sequence[RouteConfig] = ()) -> None:
    """Refuse an address at which nobody reaches a pod, and a gateway of another family, which no plugin can set up."""
    for ip in ips:
        check_reachable(ip.address.ip, ip.address)
    pairs = [(f"address {ip.address}", ip.address, "gateway", ip.gateway) for ip in ips]
    pairs += [(f"route to {route.dst}", route.dst, "gw", route.gw) for route in routes]
    for what, cidr, key, gateway in pairs:
        if gateway is not None and gateway.version != cidr.version:
            raise failure(f'{what}: "{key}" {gateway} is IPv{gateway.version}, and must be IPv{cidr.version}')


def check_reachable(ip: Ip, of: Cidr) -> None:
    """Refuse an address at which nobody reaches a pod; `of` is what the configuration or the result says."""
    if not is_reachable(ip):
        raise failure(f"no pod is reached at {of}: it is multicast, loopback, unspecified or IPv4-mapped")


def render(result: Result, version: str) -> bytes:
    return cni.encode(to_json(result, version))


def to_json(result: Result, version: str) -> Object:
    """Raises `CniError` if the shape of `version` cannot hold it."""
    version = version or _BLOCKS[1]
    if version in _BLOCKS:
        return _write_blocks(result, version)
    if version in _VERSIONED or version in _PLAIN:
        return _write_lists(result, version)
    raise failure(f"no converter for CNI result version {_PLAIN[-1]} to {version}")


def _write_lists(result: Result, version: str) -> Object:
    plain = version in _PLAIN
    if not plain:
        old = (replace(one, mtu=0, socket_path="", pci_id="") for one in result.interfaces)
        result = replace(result, interfaces=tuple(old))
    obj: Object = {"cniVersion": version, **encode(result)}
    if not plain:
        if result.ips:
            families = (str(ip.address.version) for ip in result.ips)
            obj["ips"] = [{"version": family, **ip} for family, ip in zip(families, obj["ips"], strict=True)]
        obj.setdefault("dns", {})
    return obj


def _write_blocks(result: Result, version: str) -> Object:
    obj: Object = {"cniVersion": version}
    for family, key in ((4, "ip4"), (6, "ip6")):
        first = next((ip for ip in result.ips if ip.address.version == family), None)
        if first is None:
            continue
        routes = tuple(RouteConfig(dst=each.dst, gw=each.gw) for each in result.routes if each.dst.version == family)
        obj[key] = encode(_Block(ip=first.address, gateway=first.gateway, routes=routes))
    if "ip4" not in obj and "ip6" not in obj:
        raise failure("cannot convert: no valid IP addresses")
    obj["dns"] = encode(result.dns)
    return obj
