"""static's configuration: the addresses that it is told, from four places, checked. It behaves as upstream's binary.

The specification has no section for it; texts and precedence were read off Debian's `static` (1.1.1), to which the
tests compare each case. What the runtime says counts most: `runtimeConfig.ips`, then `args.cni.ips`; either replaces
the configuration's addresses, to which those of CNI_ARGS are added.
"""

from collections import Counter
from typing import Final

from weft.model.attachment import Dns, IpConfig, RouteConfig
from weft.model.net import Ip
from weft.model.value import Value, replace
from weft.wire import cnijson, confkey
from weft.wire.cni import at_least, failure, parse_args
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns, read_route

_IPAM: Final = "`ipam`"
_ITEM: Final = "`ipam.addresses[]`"
_ADDRESSES: Final = confkey.items(
    "addresses", "The addresses, each an object.", cnijson.as_object, place=_IPAM, kind="list of objects"
)
_ROUTES: Final = confkey.items(
    "routes", 'Routes for the container, as `{"dst": …, "gw": …}`.', read_route, place=_IPAM, kind="list of routes"
)
_DNS: Final = confkey.member("dns", "The container's resolver settings.", place=_IPAM)
_ADDRESS: Final = confkey.text("address", "The address with its prefix length, as `10.1.0.2/24`.", place=_ITEM)
_GATEWAY: Final = confkey.text("gateway", "Its gateway.", place=_ITEM, meaning="none")
_RUNTIME_IPS: Final = confkey.items(
    "ips", "Addresses instead of all others (capability `ips`).", cnijson.as_text, place="`runtimeConfig`"
)
_ARGS_IPS: Final = confkey.items(
    "ips", "Addresses instead of those of `ipam` and CNI_ARGS.", cnijson.as_text, place="`args.cni`"
)
KEYS: Final = (_ADDRESSES, _ROUTES, _DNS, _ADDRESS, _GATEWAY, _RUNTIME_IPS, _ARGS_IPS)
ARGS: Final = {
    "IP": "More addresses, with commas between them.",
    "GATEWAY": "Gateways with commas between them, each for the addresses of `IP` in whose network it lies.",
}

_LISTS_SINCE: Final = "0.3.0"


class StaticConf(Value):
    """What every container of the network gets."""

    addresses: tuple[IpConfig, ...]
    routes: tuple[RouteConfig, ...]
    dns: Dns


def parse(config: Object, version: str, args: str) -> StaticConf:
    """Read a request; `version` is its dialect, `args` CNI_ARGS. Raises `CniError` or `JsonError`."""
    if cnijson.value_of(config, "ipam") is None:
        raise failure("IPAM config missing 'ipam' key")
    ipam = cnijson.member(config, "ipam")
    items = _ADDRESSES(ipam)
    from_args = _of_environment(args)
    of_cni = _requested(_ARGS_IPS(cnijson.member(cnijson.member(config, "args"), "cni")))
    of_runtime = _requested(_RUNTIME_IPS(cnijson.member(config, "runtimeConfig")))
    addresses = of_runtime or of_cni or (*map(_configured, items), *from_args)
    families = Counter(one.address.version for one in addresses)
    if not at_least(version, _LISTS_SINCE) and any(count > 1 for count in families.values()):
        raise failure(f"CNI version {version} does not support more than 1 address per family")
    return StaticConf(
        addresses=addresses,
        routes=_ROUTES(ipam),
        dns=read_dns(_DNS(ipam)),
    )


def _configured(obj: Object) -> IpConfig:
    gateway = _GATEWAY(obj)
    return _address(
        _ADDRESS(obj),
        "the 'address' field is expected to be in CIDR notation",
        gateway=cnijson.parse_ip(gateway) if gateway else None,
    )


def _requested(ips: tuple[str, ...]) -> tuple[IpConfig, ...]:
    wrong = "an entry in the 'ips' field is NOT in CIDR notation"
    return tuple(_address(text, wrong) for text in ips)


def _of_environment(args: str) -> tuple[IpConfig, ...]:
    """Read `IP` and `GATEWAY` of CNI_ARGS: a gateway is that of every address in whose network it lies."""
    known = parse_args(args, ARGS)
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
