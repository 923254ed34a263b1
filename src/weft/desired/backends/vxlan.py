"""vxlan: a VXLAN device per family, and three objects per peer (flannel.md §6.2).

Each node's VTEP answers for the base address of its subnet. A packet for a peer's pod is routed to that
address, the permanent neighbour entry gives the peer's VTEP MAC, and the FDB entry the underlay address to
send the frame to. With DirectRouting, a peer on the uplink's own segment gets a plain route instead.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

from weft.config.jsonfields import Fields
from weft.desired.claims import Claim, addresses
from weft.desired.inputs import LEAST_MTU, Device, DirectRouting, Inputs, check_type, options_of, unusable
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.links import Attribute, Link
from weft.model.kernel.objects import Address, FdbEntry, KernelState, Neighbour, Route, Sysctl
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Mac, Net
from weft.model.value import Value

# Outer IP header, UDP 8, VXLAN 8 and inner Ethernet 14 bytes.
OVERHEAD_V4: Final = 50
OVERHEAD_V6: Final = 70
_PORT: Final = 8472  # Linux had VXLAN before IANA gave it 4789 (drivers/net/vxlan: vxlan_port)
_VNI_MAX: Final = 2**24 - 1
_PORT_MAX: Final = 65535
_MTU_MAX: Final = 65535
_DEVICE_NAME_MAX: Final = 15  # IFNAMSIZ is 16 and counts the zero at the end (linux/if.h)


class VxlanOptions(Value):
    """`Backend` of type vxlan (flannel.md §6.2). `port` 0 is the kernel's own (8472), `mtu` 0 the uplink's."""

    vni: Annotated[int, Key("VNI", "The network's number in each packet.", least=0, most=_VNI_MAX)] = 1
    port: Annotated[
        int, Key("Port", "The UDP port that nodes send to.", default=str(_PORT), least=0, most=_PORT_MAX)
    ] = 0
    mtu: Annotated[
        int,
        Key(
            "MTU",
            "The longest packet between nodes; pods get it less the headers.",
            default="M",
            least=0,
            most=_MTU_MAX,
        ),
    ] = 0
    gbp: Annotated[bool, Key("GBP", "Let a packet's mark travel with it (group policy).")] = False
    learning: Annotated[bool, Key("Learning", "Let the kernel learn MAC addresses from packets.")] = False
    direct_routing: DirectRouting = False


class VtepMac(Mac):
    __slots__ = ()

    def __str__(self) -> str:
        return f"VTEP MAC {super().__str__()}"


class VxlanLink(Link):
    """A VXLAN tunnel endpoint (VTEP). `port` is the UDP destination port; only `learning` can be changed later."""

    vni: int
    port: int
    local: Ip
    learning: bool = False
    gbp: bool = False

    kind = "vxlan"
    has_mac = True
    advice = (
        "Another VXLAN device may have its VNI or port: see `ip -d link show type vxlan`, and remove it,"
        " or choose another Port or VNI for all nodes"
    )
    attributes = (
        Attribute("vni", 1, "u32"),  # IFLA_VXLAN_ID
        Attribute("parent", 3, "u32"),  # IFLA_VXLAN_LINK
        Attribute("local", 4, "ip4"),  # IFLA_VXLAN_LOCAL
        Attribute("local", 17, "ip6"),  # IFLA_VXLAN_LOCAL6
        Attribute("learning", 7, "u8", live=True),  # IFLA_VXLAN_LEARNING
        Attribute("port", 15, "be16"),  # IFLA_VXLAN_PORT
        Attribute("gbp", 23, "flag"),  # IFLA_VXLAN_GBP
    )
    foreign = frozenset((2, 16, 25))  # IFLA_VXLAN_GROUP, _GROUP6, _COLLECT_METADATA

    def __str__(self) -> str:
        flags = f"{' learning' if self.learning else ''}{' gbp' if self.gbp else ''}"
        return (
            f"link {self.name} vxlan id {self.vni} local {self.local} dev {self.parent_name or self.parent}"
            f" dstport {self.port} address {self.mac!s} mtu {self.mtu}{flags}"
        )

    def excludes(self, other: Link) -> bool:
        """Of the devices with one VNI and port, the kernel takes one a family."""
        return isinstance(other, VxlanLink) and (other.vni, other.port) == (self.vni, self.port)


LINKS = (VxlanLink,)


def options(fields: Fields, families: Collection[int]) -> VxlanOptions:
    parsed = fields.read(VxlanOptions)
    for family in families:
        device = _device(parsed, family)
        if len(device) > _DEVICE_NAME_MAX:
            most = "9" * (_DEVICE_NAME_MAX - len(device.rstrip("0123456789")))
            fields.problem("VNI", str(parsed.vni), expected=f"at most {most}", hint=f"The name {device} is too long.")
    least = LEAST_MTU[6] + OVERHEAD_V6 if 6 in families else LEAST_MTU[4] + OVERHEAD_V4
    if 0 < parsed.mtu < least:
        fields.problem("MTU", str(parsed.mtu), expected=f"0 (the uplink's) or {least} to {_MTU_MAX}")
    for key in ("MacPrefix", "Name"):
        fields.ignored(key, "has a meaning on Windows only")
    return parsed


def check(inputs: Inputs) -> None:
    uplink = inputs.facts.uplink
    if _base_mtu(inputs) > uplink.mtu:  # the kernel refuses such a device (drivers/net/vxlan: __vxlan_change_mtu)
        raise ConfigError(
            Problem(
                code="MTU-001",
                where="Backend.MTU",
                seen=f"{_base_mtu(inputs)}, while {uplink.name} carries {uplink.mtu} bytes",
                expected=f"0 (the uplink's) or at most {uplink.mtu}",
                hint=f"Correct Backend.MTU in the network configuration, or raise the MTU of {uplink.name}",
            )
        )
    for family, least, left in _device_mtus(inputs):
        if left < least:
            raise ConfigError(
                Problem(
                    code="MTU-001",
                    where="Backend.MTU" if _options(inputs).mtu else f"MTU of {inputs.facts.uplink.name}",
                    seen=f"{_base_mtu(inputs)} leaves {left} bytes for IPv{family} in the tunnel",
                    expected=f"at least {least}",
                    hint="Raise the MTU of the uplink, or turn the family off",
                )
            )


def devices(inputs: Inputs) -> Sequence[Device]:
    """`flannel.1`, `flannel-v6.1`."""
    families = inputs.netconf.families
    return [Device(_device(_options(inputs), family), VxlanLink, frozenset({family})) for family in families]


def mtu(inputs: Inputs) -> int:
    """The smaller one, so that no pod packet is too large for either."""
    return min(left for _, _, left in _device_mtus(inputs))


def advertise(inputs: Inputs) -> LeaseAttrs:
    vni = _options(inputs).vni
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4,
        public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None,
        backend="vxlan",
        data={"VNI": vni, "VtepMAC": str(inputs.mac_v4)} if inputs.netconf.v4 else None,
        data_v6={"VNI": vni, "VtepMAC": str(inputs.mac_v6)} if inputs.netconf.v6 else None,
    )


def shared(inputs: Inputs) -> KernelState:
    """Each VTEP has the base of our subnet as its only address."""
    state: KernelState = frozenset()
    uplink = inputs.facts.uplink
    if inputs.v4 is not None and uplink.v4 is not None:
        state |= _vtep(inputs, inputs.v4, uplink.v4, inputs.mac_v4, OVERHEAD_V4)
    if inputs.v6 is not None and uplink.v6 is not None:
        state |= _vtep(inputs, inputs.v6, uplink.v6, inputs.mac_v6, OVERHEAD_V6)
    return state


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    """Neighbour, FDB entry and route per family, or one direct route."""
    check_type(lease, "vxlan")
    state: KernelState = frozenset()
    attrs = lease.attrs
    if inputs.v4 is not None and lease.v4 is not None and attrs.public_ip is not None:
        state |= _way(inputs, lease, lease.v4, attrs.public_ip, attrs.data)
    if inputs.v6 is not None and lease.v6 is not None and attrs.public_ipv6 is not None:
        state |= _way(inputs, lease, lease.v6, attrs.public_ipv6, attrs.data_v6)
    return state


def claims(attrs: LeaseAttrs) -> tuple[Claim, ...]:
    """By a MAC that two nodes have, one would get the other's packets."""
    macs = (vtep_mac(attrs.data), vtep_mac(attrs.data_v6))
    return (*dict.fromkeys(VtepMac(mac) for mac in macs if mac is not None), *addresses(attrs))


def vtep_mac(data: Any) -> Mac | None:
    """None if there is none that a device can have."""
    text = data.get("VtepMAC") if isinstance(data, dict) else None
    try:
        mac = Mac.parse(text) if isinstance(text, str) else Mac()
    except ValueError:
        return None
    return mac if mac.is_unicast else None


def _vtep(inputs: Inputs, subnet: Net, local: Ip, mac: Mac, overhead: int) -> KernelState:
    options = _options(inputs)
    name = _device(_options(inputs), subnet.version)
    link = VxlanLink(
        name=name,
        vni=options.vni,
        port=options.port or _PORT,
        # Not the public address: behind NAT that is no address of ours.
        local=local,
        parent=inputs.facts.uplink.index,
        parent_name=inputs.facts.uplink.name,
        mac=mac,
        mtu=_base_mtu(inputs) - overhead,
        learning=options.learning,
        gbp=options.gbp,
    )
    address = Address(dev=name, ip=subnet.network_address, prefixlen=subnet.max_prefixlen)
    return frozenset({link, address, Sysctl(name=f"net/ipv6/conf/{name}/accept_ra", value="0")})


def _way(inputs: Inputs, lease: Lease, subnet: Net, remote: Ip, data: Any) -> KernelState:
    if _options(inputs).direct_routing and inputs.facts.is_on_link(remote):
        return frozenset({Route(dst=subnet, via=remote, dev=inputs.facts.uplink.name)})
    mac = vtep_mac(data)
    if mac is None:
        text = data.get("VtepMAC") if isinstance(data, dict) else None
        raise unusable(lease, f"VtepMAC {text!r:.60}", "a unicast MAC address")
    name = _device(_options(inputs), subnet.version)
    base = subnet.network_address
    return frozenset(
        {
            Neighbour(dev=name, ip=base, mac=mac),
            FdbEntry(dev=name, mac=mac, remote=remote),
            Route(dst=subnet, via=base, dev=name, onlink=True),
        }
    )


def _device(options: VxlanOptions, family: int) -> str:
    return f"flannel{'-v6' if family == 6 else ''}.{options.vni}"


def _options(inputs: Inputs) -> VxlanOptions:
    return options_of(inputs, VxlanOptions)


def _base_mtu(inputs: Inputs) -> int:
    return _options(inputs).mtu or inputs.facts.uplink.mtu


def _device_mtus(inputs: Inputs) -> list[tuple[int, int, int]]:
    """The families that are on, each with the least MTU it can live with and the MTU its tunnel has."""
    base = _base_mtu(inputs)
    families = []
    if inputs.netconf.v4 is not None:
        families.append((4, LEAST_MTU[4], base - OVERHEAD_V4))
    if inputs.netconf.v6 is not None:
        families.append((6, LEAST_MTU[6], base - OVERHEAD_V6))
    return families
