"""bridge's configuration (cni.md §3.1): its keys as values, and upstream's words for those that are wrong."""

from dataclasses import replace
from typing import Final

from weft.model.attachment import DEFAULT_BRIDGE, BridgeConf
from weft.wire import cnijson
from weft.wire.cni import check_ifname, failure, parse_args
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns

MASQ_KINDS: Final = ("iptables", "nftables")

_MAX_MTU: Final = 65535
# VLAN ids have 12 bits; 4095 is reserved (IEEE 802.1Q).
_MAX_VLAN: Final = 4094


def parse(config: Object, args: str) -> BridgeConf:
    """Read a request for ADD, CHECK or STATUS; `args` is CNI_ARGS. Raises `CniError`."""
    try:
        conf = replace(_parse(config, args), trunk=_trunk(config))
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error
    if not 0 <= conf.vlan <= _MAX_VLAN:
        raise failure(f"invalid VLAN ID {conf.vlan} (must be between 0 and {_MAX_VLAN})")
    if conf.container_down and conf.ipam_type:
        raise failure("cannot use IPAM when DisableContainerInterface flag is set")
    if conf.hairpin and conf.promisc:
        raise failure("cannot set hairpin mode and promiscuous mode at the same time")
    check_masq(ip_masq=conf.ip_masq, kind=conf.masq_kind)
    check_mtu(conf.mtu)
    check_ifname(conf.bridge)
    return conf


def parse_for_delete(config: Object) -> BridgeConf:
    """Read a request for DEL or GC, which must work whatever else the configuration says."""
    try:
        return _parse(config, "")
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error


def check_masq(*, ip_masq: bool, kind: str) -> None:
    """Refuse a kind of masquerade rules that does not exist; without masquerading it does not matter."""
    if ip_masq and kind and kind not in MASQ_KINDS:
        raise failure(f'unknown ipmasq backend "{kind}"')


def check_mtu(mtu: int) -> None:
    """Refuse an MTU that no Ethernet interface can have. 0 is the kernel's default."""
    if not 0 <= mtu <= _MAX_MTU:
        raise failure(f"invalid MTU {mtu} (must be between 0 and {_MAX_MTU})")


def _parse(config: Object, args: str) -> BridgeConf:
    is_default_gateway = cnijson.flag(config, "isDefaultGateway")
    vlan = cnijson.integer(config, "vlan")
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
        vlan=vlan,
        vlan_filtering=bool(vlan) or cnijson.value_of(config, "vlanTrunk") is not None,
        keep_default_vlan=cnijson.flag(config, "preserveDefaultVlan"),
        spoof_check=cnijson.flag(config, "macspoofchk"),
        detect_duplicates=cnijson.flag(config, "enabledad"),
        container_down=cnijson.flag(config, "disableContainerInterface"),
        isolated=cnijson.flag(config, "portIsolation"),
        ipam_type=cnijson.text(cnijson.member(config, "ipam"), "type"),
        mac=_mac(config, args),
        dns=read_dns(cnijson.member(config, "dns")),
    )


def _trunk(config: Object) -> tuple[int, ...]:
    """Return the ids of all items of `vlanTrunk`, sorted, each once."""
    ids: set[int] = set()
    for item in cnijson.items(config, "vlanTrunk", cnijson.as_object):
        ids.update(_ids(item))
    return tuple(sorted(ids))


def _ids(item: Object) -> set[int]:
    """Return the ids of one item: `{"id": 7}`, `{"minID": 3, "maxID": 5}`, or both in one."""
    first, last, single = (cnijson.maybe_integer(item, key) for key in ("minID", "maxID", "id"))
    if (first is None) != (last is None):
        missing = "minID" if first is None else "maxID"
        raise failure(f"minID and maxID should be configured simultaneously, {missing} is missing")
    for name, vlan in (("minID", first), ("maxID", last), ("id", single)):
        if vlan is not None and not 0 < vlan <= _MAX_VLAN:
            raise failure(f"incorrect trunk {name} parameter")
    ids = set() if single is None else {single}
    if first is not None and last is not None:
        if first > last:
            raise failure("minID is greater than maxID in trunk parameter")
        ids.update(range(first, last + 1))
    return ids


def _mac(config: Object, args: str) -> str:
    """Return the MAC that was asked for: the runtime's word counts most, CNI_ARGS' least (§1.13)."""
    of_cni = cnijson.member(cnijson.member(config, "args"), "cni")
    return (
        cnijson.text(cnijson.member(config, "runtimeConfig"), "mac")
        or cnijson.text(of_cni, "mac")
        or parse_args(args, {"MAC"}).get("MAC", "")
    )
