"""static's configuration: the addresses that it is told, from four places, checked. It behaves as upstream's binary.

The specification has no section for it; texts and precedence were read off Debian's `static` (1.1.1), to which the
tests compare each case. What the runtime says counts most: `runtimeConfig.ips`, then `args.cni.ips`; either replaces
the configuration's addresses, to which those of CNI_ARGS are added.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from weft.model.attachment import Dns, IpConfig, RouteConfig
from weft.model.net import Ip
from weft.wire import cnijson
from weft.wire.cni import at_least, failure, parse_args
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns, read_route

_LISTS_SINCE: Final = "0.3.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticConf:
    """What every container of the network gets."""

    addresses: tuple[IpConfig, ...]
    routes: tuple[RouteConfig, ...]
    dns: Dns


def parse(config: Object, version: str, args: str) -> StaticConf:
    """Read a request; `version` is its dialect, `args` CNI_ARGS. Raises `CniError` or `JsonError`."""
    if cnijson.value_of(config, "ipam") is None:
        raise failure("IPAM config missing 'ipam' key")
    ipam = cnijson.member(config, "ipam")
    items = cnijson.items(ipam, "addresses", cnijson.as_object)
    from_args = _of_environment(args)
    of_cni = _requested(cnijson.member(cnijson.member(config, "args"), "cni"))
    of_runtime = _requested(cnijson.member(config, "runtimeConfig"))
    addresses = of_runtime or of_cni or (*map(_configured, items), *from_args)
    families = Counter(one.address.version for one in addresses)
    if not at_least(version, _LISTS_SINCE) and any(count > 1 for count in families.values()):
        raise failure(f"CNI version {version} does not support more than 1 address per family")
    return StaticConf(
        addresses=addresses,
        routes=cnijson.items(ipam, "routes", read_route),
        dns=read_dns(cnijson.member(ipam, "dns")),
    )


def _configured(obj: Object) -> IpConfig:
    gateway = cnijson.text(obj, "gateway")
    return _address(
        cnijson.text(obj, "address"),
        "the 'address' field is expected to be in CIDR notation",
        gateway=cnijson.parse_ip(gateway) if gateway else None,
    )


def _requested(source: Object) -> tuple[IpConfig, ...]:
    wrong = "an entry in the 'ips' field is NOT in CIDR notation"
    return tuple(_address(text, wrong) for text in cnijson.items(source, "ips", cnijson.as_text))


def _of_environment(args: str) -> tuple[IpConfig, ...]:
    """Read `IP` and `GATEWAY` of CNI_ARGS: a gateway is that of every address in whose network it lies."""
    known = parse_args(args, {"IP", "GATEWAY"})
    wrong = "the 'ip' field is expected to be in CIDR notation"
    found = [_address(text, wrong) for text in _listed(known.get("IP", ""))]
    for text in _listed(known.get("GATEWAY", "")):
        try:
            gateway = cnijson.parse_ip(text)
        except JsonError as error:
            raise failure(f"invalid gateway address: {text}") from error
        found = [replace(one, gateway=gateway) if gateway in one.address.network else one for one in found]
    return tuple(found)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _address(text: str, wrong: str, gateway: Ip | None = None) -> IpConfig:
    try:
        return IpConfig(address=cnijson.parse_cidr(text), gateway=gateway)
    except JsonError as error:
        raise failure(f"{wrong}, got: '{text}'") from error
