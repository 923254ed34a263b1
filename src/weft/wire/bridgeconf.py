"""bridge's configuration (cni.md §3.1): the keys of this build as values, and a refusal of those it lacks."""

from typing import Final

from weft.model.attachment import DEFAULT_BRIDGE, BridgeConf
from weft.wire import cnijson
from weft.wire.cni import check_ifname, failure, not_in_this_build, parse_args
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns

MASQ_KINDS: Final = ("iptables", "nftables")

_MAX_MTU: Final = 65535

# Keys that upstream's bridge knows and this build does not serve. Their defaults are all false, 0 or empty.
_NOT_BUILT: Final = (
    "vlan",
    "vlanTrunk",
    "preserveDefaultVlan",
    "macspoofchk",
    "enabledad",
    "disableContainerInterface",
    "portIsolation",
)


def parse(config: Object, args: str) -> BridgeConf:
    """Read a request for ADD; `args` is CNI_ARGS. Raises `CniError`."""
    try:
        conf = _parse(config, args)
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error
    if conf.ip_masq and conf.masq_kind and conf.masq_kind not in MASQ_KINDS:
        raise failure(f'unknown ipmasq backend "{conf.masq_kind}"')
    if conf.hairpin and conf.promisc:
        raise failure("cannot set hairpin mode and promiscuous mode at the same time")
    if not 0 <= conf.mtu <= _MAX_MTU:
        raise failure(f"invalid MTU {conf.mtu} (must be between 0 and {_MAX_MTU})")
    for key in _NOT_BUILT:
        value = cnijson.value_of(config, key)
        if value:
            raise not_in_this_build(f'bridge: key "{key}" with value {value!r}')
    check_ifname(conf.bridge)
    return conf


def parse_for_delete(config: Object) -> BridgeConf:
    """Read a request for DEL, which must work whatever else the configuration says."""
    try:
        return _parse(config, "")
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error


def _parse(config: Object, args: str) -> BridgeConf:
    is_default_gateway = cnijson.flag(config, "isDefaultGateway")
    return BridgeConf(
        bridge=cnijson.text(config, "bridge") or DEFAULT_BRIDGE,
        is_gateway=cnijson.flag(config, "isGateway") or is_default_gateway,
        is_default_gateway=is_default_gateway,
        force_address=cnijson.flag(config, "forceAddress"),
        ip_masq=cnijson.flag(config, "ipMasq"),
        masq_kind=cnijson.text(config, "ipMasqBackend"),
        mtu=cnijson.integer(config, "mtu"),
        hairpin=cnijson.flag(config, "hairpinMode"),
        promisc=cnijson.flag(config, "promiscMode"),
        ipam_type=cnijson.text(cnijson.member(config, "ipam"), "type"),
        mac=_mac(config, args),
        dns=read_dns(cnijson.member(config, "dns")),
    )


def _mac(config: Object, args: str) -> str:
    """Return the MAC that was asked for: the runtime's word counts most, CNI_ARGS' least (§1.13)."""
    of_cni = cnijson.member(cnijson.member(config, "args"), "cni")
    return (
        cnijson.text(cnijson.member(config, "runtimeConfig"), "mac")
        or cnijson.text(of_cni, "mac")
        or parse_args(args, {"MAC"}).get("MAC", "")
    )
