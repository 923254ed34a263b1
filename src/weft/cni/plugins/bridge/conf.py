"""bridge's configuration (cni.md §3.1): its keys as values, and upstream's words for those that are wrong."""

from typing import Final

from weft.model.attachment import DEFAULT_BRIDGE, BridgeConf
from weft.model.value import replace
from weft.wire import cnijson, confkey
from weft.wire.cni import check_ifname, failure, parse_args
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns

MASQ_KINDS: Final = ("iptables", "nftables")

# Of ptp too.
IP_MASQ: Final = confkey.flag("ipMasq", "Masquerade what the container sends out of its network.")
IP_MASQ_BACKEND: Final = confkey.text(
    "ipMasqBackend", "With which rules: `iptables` or `nftables`.", meaning="`iptables`, unless only nft works"
)
MTU: Final = confkey.integer("mtu", "The MTU of the pair of interfaces.", default="the kernel's")
IPAM_TYPE: Final = confkey.text(
    "type", "The plugin that gives addresses.", place="`ipam`", meaning="none: no addresses"
)
DNS: Final = confkey.member(
    "dns",
    "Resolver settings for the result, instead of the IPAM plugin's: `nameservers`, `domain`, `search`, `options`.",
)

_BRIDGE: Final = confkey.text("bridge", "The bridge; it is made if it is missing.", default=DEFAULT_BRIDGE)
_IS_GATEWAY: Final = confkey.flag("isGateway", "Give the bridge the gateway's address, and let the node forward.")
_IS_DEFAULT_GATEWAY: Final = confkey.flag("isDefaultGateway", "The same, and make it the container's default route.")
_FORCE_ADDRESS: Final = confkey.flag(
    "forceAddress", "Replace another address of the bridge in the gateway's family instead of failing."
)
_HAIRPIN: Final = confkey.flag("hairpinMode", "Let a container reach itself through a Service or a published port.")
_PROMISC: Final = confkey.flag("promiscMode", "Make the bridge promiscuous; not together with `hairpinMode`.")
_VLAN: Final = confkey.integer("vlan", "The port's VLAN, 1 to 4094, untagged for the container.", default="none")
_TRUNK: Final = confkey.items(
    "vlanTrunk",
    "Tagged VLANs of the port, each an object.",
    cnijson.as_object,
    kind="list of objects",
)
_KEEP_DEFAULT_VLAN: Final = confkey.flag("preserveDefaultVlan", "Leave the port in VLAN 1 as well.")
_SPOOF_CHECK: Final = confkey.flag("macspoofchk", "Drop what the container sends with another MAC than its own.")
_DETECT_DUPLICATES: Final = confkey.flag(
    "enabledad", "Wait until it is known that no other host has the container's IPv6 addresses."
)
_CONTAINER_DOWN: Final = confkey.flag(
    "disableContainerInterface", "Leave the container's interface down; not together with `ipam`."
)
_ISOLATED: Final = confkey.flag("portIsolation", "Let the port reach the bridge, and no other isolated port.")
_RUNTIME_MAC: Final = confkey.text(
    "mac",
    "The interface's MAC (capability `mac`).",
    place="`runtimeConfig`",
    meaning="made of `host-local`'s IPv4 address on a gateway, without `macspoofchk`; else the kernel's choice",
)
_ARGS_MAC: Final = confkey.text("mac", "The same, where the runtime says nothing.", place="`args.cni`")
_ITEM: Final = "`vlanTrunk[]`"
_ID: Final = confkey.maybe_integer("id", "A single VLAN, 1 to 4094.", place=_ITEM)
_MIN_ID: Final = confkey.maybe_integer("minID", "The first of several.", place=_ITEM)
_MAX_ID: Final = confkey.maybe_integer("maxID", "The last of them.", place=_ITEM)
KEYS: Final = (
    _BRIDGE,
    _IS_GATEWAY,
    _IS_DEFAULT_GATEWAY,
    _FORCE_ADDRESS,
    IP_MASQ,
    IP_MASQ_BACKEND,
    MTU,
    _HAIRPIN,
    _PROMISC,
    _VLAN,
    _TRUNK,
    _KEEP_DEFAULT_VLAN,
    _SPOOF_CHECK,
    _DETECT_DUPLICATES,
    _CONTAINER_DOWN,
    _ISOLATED,
    DNS,
    _ID,
    _MIN_ID,
    _MAX_ID,
    IPAM_TYPE,
    _RUNTIME_MAC,
    _ARGS_MAC,
)
ARGS: Final = {"MAC": "The same, where neither of them says anything."}

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
    is_default_gateway = _IS_DEFAULT_GATEWAY(config)
    vlan = _VLAN(config)
    return BridgeConf(
        bridge=_BRIDGE(config),
        is_gateway=_IS_GATEWAY(config) or is_default_gateway,
        is_default_gateway=is_default_gateway,
        force_address=_FORCE_ADDRESS(config),
        ip_masq=IP_MASQ(config),
        masq_kind=IP_MASQ_BACKEND(config),
        mtu=MTU(config),
        hairpin=_HAIRPIN(config),
        promisc=_PROMISC(config),
        vlan=vlan,
        vlan_filtering=bool(vlan) or _TRUNK.given(config),
        keep_default_vlan=_KEEP_DEFAULT_VLAN(config),
        spoof_check=_SPOOF_CHECK(config),
        detect_duplicates=_DETECT_DUPLICATES(config),
        container_down=_CONTAINER_DOWN(config),
        isolated=_ISOLATED(config),
        ipam_type=IPAM_TYPE(cnijson.member(config, "ipam")),
        mac=_mac(config, args),
        dns=read_dns(DNS(config)),
    )


def _trunk(config: Object) -> tuple[int, ...]:
    """Return the ids of all items of `vlanTrunk`, sorted, each once."""
    ids: set[int] = set()
    for item in _TRUNK(config):
        ids.update(_ids(item))
    return tuple(sorted(ids))


def _ids(item: Object) -> set[int]:
    """Return the ids of one item: `{"id": 7}`, `{"minID": 3, "maxID": 5}`, or both in one."""
    first, last, single = (key(item) for key in (_MIN_ID, _MAX_ID, _ID))
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
    """Return the MAC that was asked for: the runtime's word counts most, CNI_ARGS' least (cni.md §1.13)."""
    of_cni = cnijson.member(cnijson.member(config, "args"), "cni")
    return (
        _RUNTIME_MAC(cnijson.member(config, "runtimeConfig"))
        or _ARGS_MAC(of_cni)
        or parse_args(args, ARGS).get("MAC", "")
    )
