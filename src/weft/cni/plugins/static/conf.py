"""static's configuration: the addresses to give, from four places, checked. It behaves as upstream's binary.

The specification has no section for it; texts and precedence were read off Debian's `static` (1.1.1), to which the
tests compare each case. What the runtime says counts most: `runtimeConfig.ips`, then `args.cni.ips`; either replaces
the configuration's addresses, to which those of CNI_ARGS are added.
"""

from collections import Counter
from typing import Annotated, Final

from weft.model.attachment import Dns, IpConfig, RouteConfig
from weft.model.keyed import Arg, Key
from weft.model.net import Ip
from weft.model.value import Value, field, replace
from weft.wire import cnijson
from weft.wire.cni import at_least, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode

_LISTS_SINCE: Final = "0.3.0"


class Address(Value):
    """An address as it is written."""

    address: Annotated[str, Key("address", "The address with its prefix length, as `10.1.0.2/24`.")] = ""
    gateway: Annotated[Ip | None, Key("gateway", "Its gateway.", default="none")] = None


class StaticKeys(Value):
    """What the configuration says; `from_args` and `gateways` are lists with commas."""

    addresses: Annotated[tuple[Address, ...], Key("addresses", "The addresses.", at="ipam")] = ()
    routes: Annotated[tuple[RouteConfig, ...], Key("routes", "Routes for the container.", at="ipam")] = ()
    dns: Annotated[Dns, Key("dns", "The container's resolver settings.", at="ipam")] = field(default_factory=Dns)
    runtime_ips: Annotated[
        tuple[str, ...], Key("ips", "Addresses instead of all others (capability `ips`).", at="runtimeConfig")
    ] = ()
    args_ips: Annotated[
        tuple[str, ...], Key("ips", "Addresses instead of those of `ipam` and CNI_ARGS.", at="args.cni")
    ] = ()
    from_args: Annotated[str, Arg("IP", "More addresses, with commas between them.")] = ""
    gateways: Annotated[
        str,
        Arg(
            "GATEWAY",
            "Gateways with commas between them, each for the addresses of `IP` in whose network it lies.",
        ),
    ] = ""


class StaticConf(Value):
    """What every container of the network gets."""

    addresses: tuple[IpConfig, ...]
    routes: tuple[RouteConfig, ...]
    dns: Dns


def parse(config: Object, version: str, args: str) -> StaticConf:
    """Read a request; `version` is its dialect, `args` CNI_ARGS. Raises `CniError` or `JsonError`."""
    if cnijson.value_of(config, "ipam") is None:
        raise failure("IPAM config missing 'ipam' key")
    keys = decode(StaticKeys, config, args)
    from_args = _of_environment(keys)
    of_cni = _requested(keys.args_ips)
    addresses = _requested(keys.runtime_ips) or of_cni or (*map(_configured, keys.addresses), *from_args)
    families = Counter(one.address.version for one in addresses)
    if not at_least(version, _LISTS_SINCE) and any(count > 1 for count in families.values()):
        raise failure(f"CNI version {version} does not support more than 1 address per family")
    return StaticConf(addresses=addresses, routes=keys.routes, dns=keys.dns)


def _configured(one: Address) -> IpConfig:
    return _address(one.address, "the 'address' field is expected to be in CIDR notation", gateway=one.gateway)


def _requested(ips: tuple[str, ...]) -> tuple[IpConfig, ...]:
    wrong = "an entry in the 'ips' field is NOT in CIDR notation"
    return tuple(_address(text, wrong) for text in ips)


def _of_environment(keys: StaticKeys) -> tuple[IpConfig, ...]:
    """Read `IP` and `GATEWAY` of CNI_ARGS: a gateway is that of every address in whose network it lies."""
    wrong = "the 'ip' field is expected to be in CIDR notation"
    found = [_address(text, wrong) for text in _listed(keys.from_args)]
    for text in _listed(keys.gateways):
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
