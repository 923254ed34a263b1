"""bridge's configuration (cni.md §3.1): its keys as values, and upstream's words for wrong ones."""

from typing import Annotated, Final

from weft.cni.attachment.conf import FAILED, DeleteConf, IpamType, IpMasq, MasqKind, Mtu, OwnDns, check_masq, check_mtu
from weft.model.attachment import Dns
from weft.model.keyed import Arg, Key
from weft.model.value import Value, field, replace
from weft.wire.cni import check_ifname, failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

SpoofCheck = Annotated[bool, Key("macspoofchk", "Drop what the container sends with another MAC than its own.")]

# VLAN ids have 12 bits; 4095 is reserved (IEEE 802.1Q).
_MAX_VLAN: Final = 4094


class Trunk(Value):
    """Tagged VLANs: `{"id": 7}`, `{"minID": 3, "maxID": 5}`, or both in one."""

    single: Annotated[int | None, Key("id", "A single VLAN, 1 to 4094.")] = None
    first: Annotated[int | None, Key("minID", "The first of several.")] = None
    last: Annotated[int | None, Key("maxID", "The last of them.")] = None

    @property
    def ids(self) -> set[int]:
        single = set() if self.single is None else {self.single}
        return single if self.first is None or self.last is None else {*single, *range(self.first, self.last + 1)}


class BridgeDeleteConf(DeleteConf):
    spoof_check: SpoofCheck = False


class BridgeConf(Value):
    """`mtu` 0 is the kernel's default, `vlan` 0 none; `mac` and `ipam_type` may be empty.

    `masq_kind` is empty for whichever works. `container_down` leaves the container's end down.
    """

    bridge: Annotated[str, Key("bridge", "The bridge; it is made if it is missing.")] = "cni0"
    is_gateway: Annotated[
        bool, Key("isGateway", "Give the bridge the gateway's address, and let the node forward.")
    ] = False
    is_default_gateway: Annotated[
        bool, Key("isDefaultGateway", "The same, and make it the container's default route.")
    ] = False
    force_address: Annotated[
        bool, Key("forceAddress", "Replace another address of the bridge in the gateway's family instead of failing.")
    ] = False
    ip_masq: IpMasq = False
    masq_kind: MasqKind = ""
    mtu: Mtu = 0
    hairpin: Annotated[
        bool, Key("hairpinMode", "Let a container reach itself through a Service or a published port.")
    ] = False
    promisc: Annotated[bool, Key("promiscMode", "Make the bridge promiscuous; not together with `hairpinMode`.")] = (
        False
    )
    vlan: Annotated[int, Key("vlan", "The port's VLAN, 1 to 4094, untagged for the container.", default="none")] = 0
    trunks: Annotated[tuple[Trunk, ...] | None, Key("vlanTrunk", "Tagged VLANs of the port.")] = None
    keep_default_vlan: Annotated[bool, Key("preserveDefaultVlan", "Leave the port in VLAN 1 as well.")] = False
    spoof_check: SpoofCheck = False
    detect_duplicates: Annotated[
        bool, Key("enabledad", "Wait until it is known that no other host has the container's IPv6 addresses.")
    ] = False
    container_down: Annotated[
        bool, Key("disableContainerInterface", "Leave the container's interface down; not together with `ipam`.")
    ] = False
    isolated: Annotated[bool, Key("portIsolation", "Let the port reach the bridge, and no other isolated port.")] = (
        False
    )
    ipam_type: IpamType = ""
    mac: Annotated[
        str,
        Key(
            "mac",
            "The interface's MAC (capability `mac`).",
            at="runtimeConfig",
            default="made of `host-local`'s IPv4 address on a gateway, without `macspoofchk`; else the kernel's choice",
        ),
        Key("mac", "The same, where the runtime says nothing.", at="args.cni"),
        Arg("MAC", "The same, where neither of them says anything."),
    ] = ""
    dns: OwnDns = field(default_factory=Dns)

    @property
    def trunk(self) -> tuple[int, ...]:
        return tuple(sorted(set[int]().union(*(trunk.ids for trunk in self.trunks or ()))))

    @property
    def vlan_filtering(self) -> bool:
        """Tell whether a VLAN or a trunk was asked for, be it an empty one."""
        return bool(self.vlan) or self.trunks is not None


def parse(config: Object, args: str) -> BridgeConf:
    conf = decode_or_fail(BridgeConf, config, args, failed=FAILED)
    for trunk in conf.trunks or ():
        _check_trunk(trunk)
    if not 0 <= conf.vlan <= _MAX_VLAN:
        raise failure(f"invalid VLAN ID {conf.vlan} (must be between 0 and {_MAX_VLAN})")
    if conf.container_down and conf.ipam_type:
        raise failure("cannot use IPAM when DisableContainerInterface flag is set")
    if conf.hairpin and conf.promisc:
        raise failure("cannot set hairpin mode and promiscuous mode at the same time")
    check_masq(ip_masq=conf.ip_masq, kind=conf.masq_kind)
    check_mtu(conf.mtu)
    check_ifname(conf.bridge)
    return replace(conf, is_gateway=conf.is_gateway or conf.is_default_gateway)


def parse_for_delete(config: Object) -> BridgeDeleteConf:
    return decode_or_fail(BridgeDeleteConf, config, failed=FAILED)


def _check_trunk(trunk: Trunk) -> None:
    first, last = trunk.first, trunk.last
    if (first is None) != (last is None):
        missing = "minID" if first is None else "maxID"
        raise failure(f"minID and maxID should be configured simultaneously, {missing} is missing")
    for name, vlan in (("minID", first), ("maxID", last), ("id", trunk.single)):
        if vlan is not None and not 0 < vlan <= _MAX_VLAN:
            raise failure(f"incorrect trunk {name} parameter")
    if first is not None and last is not None and first > last:
        raise failure("minID is greater than maxID in trunk parameter")
