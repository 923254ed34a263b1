"""static: an IPAM plugin that gives a container the addresses of its configuration, and keeps no state.

The specification has no section for it; texts and precedence were read off Debian's `static` (1.1.1), to which the
tests compare each case. What the runtime says counts most: `runtimeConfig.ips`, then `args.cni.ips`; either replaces
the configuration's addresses, to which those of CNI_ARGS are added.
"""

from collections import Counter
from typing import Annotated, Final

from weft.cni.sdk.startup import Call, Plugin, about
from weft.model.attachment import Dns, IpConfig, Result, RouteConfig
from weft.model.keyed import Arg, Key
from weft.model.net import Ip
from weft.model.value import Value, field, replace
from weft.wire import cnijson, cniresult
from weft.wire.cni import at_least, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode

NAME: Final = "static"

_LISTS_SINCE: Final = "0.3.0"


class Address(Value):
    address: Annotated[str, Key("address", "The address with its prefix length, as `10.1.0.2/24`.")] = ""
    gateway: Annotated[Ip | None, Key("gateway", "Its gateway.", default="none")] = None


class StaticKeys(Value):
    """`from_args` and `gateways` are lists with commas."""

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
        Arg("GATEWAY", "Gateways with commas between them, each for the addresses of `IP` in whose network it lies."),
    ] = ""


def parse(config: Object, version: str, args: str) -> Result:
    """`version` is the request's dialect, `args` CNI_ARGS. Raises `CniError` or `JsonError`."""
    if cnijson.value_of(config, "ipam") is None:
        raise failure("IPAM config missing 'ipam' key")
    keys = decode(StaticKeys, config, args)
    from_args = _of_environment(keys)
    of_cni = _requested(keys.args_ips)
    wrong = "the 'address' field is expected to be in CIDR notation"
    configured = (_address(one.address, wrong, gateway=one.gateway) for one in keys.addresses)
    addresses = _requested(keys.runtime_ips) or of_cni or (*configured, *from_args)
    families = Counter(one.address.version for one in addresses)
    if not at_least(version, _LISTS_SINCE) and any(count > 1 for count in families.values()):
        raise failure(f"CNI version {version} does not support more than 1 address per family")
    return Result(ips=addresses, routes=keys.routes, dns=keys.dns)


def _requested(ips: tuple[str, ...]) -> tuple[IpConfig, ...]:
    wrong = "an entry in the 'ips' field is NOT in CIDR notation"
    return tuple(_address(text, wrong) for text in ips)


def _of_environment(keys: StaticKeys) -> tuple[IpConfig, ...]:
    """A gateway is that of every address in whose network it lies."""
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


def _read(call: Call) -> None:
    """Refuse what no plugin of ours can set up. Called by others, we return it as upstream does."""
    result = parse(call.config, call.version, call.args)
    cniresult.check_usable(result.ips, result.routes)


def _add(call: Call) -> bytes:
    return cniresult.render(parse(call.config, call.version, call.args), call.version)


def _delete(_: Call) -> None:
    """Nothing was made."""


def _check(call: Call) -> None:
    asked = parse(call.config, call.version, call.args)
    previous = call.previous()
    for wanted in asked.ips:
        there = [ip for ip in previous.ips if ip.address.ip == wanted.address.ip]
        if not any(wanted.gateway in (None, ip.gateway) for ip in there):
            raise failure(
                f"static: Failed to match addr {wanted.address.ip} on interface {call.ifname}",
                f"expected {_show(wanted)}, there is {', '.join(map(_show, there)) or 'no such address'}",
            )


def _show(ip: IpConfig) -> str:
    return f"{ip.address.ip} with gateway {ip.gateway}" if ip.gateway else f"{ip.address.ip}"


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, check=_check, about=about(NAME), read=_read)
