"""VXLAN between nodes, as flannel has it: a device per family, and three objects per peer (flannel.md §6.2).

Each node's VTEP answers for the base address of its subnet. A packet for a peer's pod is routed to that
address, the permanent neighbour entry gives the peer's VTEP MAC, and the FDB entry the underlay address to
send the frame to.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from weft.config.jsonfields import Fields
from weft.desired.claims import Claim, addresses
from weft.desired.inputs import LEAST_MTU, Device, Inputs, unusable
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.links import Attribute, Link
from weft.model.kernel.objects import Address, FdbEntry, KernelState, Neighbour, Object, Sysctl
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Mac
from weft.model.value import Value

_PORT: Final = 8472  # Linux had VXLAN before IANA gave it 4789 (drivers/net/vxlan: vxlan_port)
_VNI_MAX: Final = 2**24 - 1
_PORT_MAX: Final = 65535
_MTU_MAX: Final = 65535
_DEVICE_NAME_MAX: Final = 15  # IFNAMSIZ is 16 and counts the zero at the end (linux/if.h)


class Tunnel(Value):
    """Options of back ends that have one. `port` 0 is the kernel's own (8472), `mtu` 0 the uplink's."""

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

    def device(self, family: int) -> str:
        """`flannel.1`, `flannel-v6.1`."""
        return f"flannel{'-v6' if family == 6 else ''}.{self.vni}"

    def outer_mtu(self, inputs: Inputs) -> int:
        return self.mtu or inputs.facts.uplink.mtu


_TunnelT = TypeVar("_TunnelT", bound=Tunnel)


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


def read(fields: Fields, kind: type[_TunnelT], families: Collection[int], overhead: Mapping[int, int]) -> _TunnelT:
    """Note a problem for a device whose name the kernel does not take, and for an MTU that leaves too little."""
    parsed = fields.read(kind)
    for name in map(parsed.device, families):
        if len(name) > _DEVICE_NAME_MAX:
            most = "9" * (_DEVICE_NAME_MAX - len(name.rstrip("0123456789")))
            fields.problem("VNI", str(parsed.vni), expected=f"at most {most}", hint=f"The name {name} is too long.")
    least = max((LEAST_MTU[family] + overhead[family] for family in families), default=0)
    if 0 < parsed.mtu < least:
        fields.problem("MTU", str(parsed.mtu), expected=f"0 (the uplink's) or {least} to {_MTU_MAX}")
    return parsed


def check(inputs: Inputs, options: Tunnel, overhead: Mapping[int, int]) -> None:
    """Raises `ConfigError`."""
    uplink, outer = inputs.facts.uplink, options.outer_mtu(inputs)
    if outer > uplink.mtu:  # the kernel refuses such a device (drivers/net/vxlan: __vxlan_change_mtu)
        raise ConfigError(
            Problem(
                code="MTU-001",
                where="Backend.MTU",
                seen=f"{outer}, while {uplink.name} carries {uplink.mtu} bytes",
                expected=f"0 (the uplink's) or at most {uplink.mtu}",
                hint=f"Correct Backend.MTU in the network configuration, or raise the MTU of {uplink.name}",
            )
        )
    for family in inputs.netconf.families:
        left = outer - overhead[family]
        if left < LEAST_MTU[family]:
            raise ConfigError(
                Problem(
                    code="MTU-001",
                    where="Backend.MTU" if options.mtu else f"MTU of {uplink.name}",
                    seen=f"{outer} leaves {left} bytes for IPv{family} in the tunnel",
                    expected=f"at least {LEAST_MTU[family]}",
                    hint="Raise the MTU of the uplink, or turn the family off",
                )
            )


def devices(inputs: Inputs, options: Tunnel) -> Sequence[Device]:
    return [Device(options.device(family), VxlanLink, frozenset({family})) for family in inputs.netconf.families]


def mtu(inputs: Inputs, options: Tunnel, overhead: Mapping[int, int]) -> int:
    """The smaller one, so that no pod packet is too large for either family's device."""
    return options.outer_mtu(inputs) - max(overhead[family] for family in inputs.netconf.families)


def advertise(inputs: Inputs, options: Tunnel, name: str) -> LeaseAttrs:
    """The address and the VTEP of each family, for back end `name`."""
    v4, v6 = inputs.netconf.v4 is not None, inputs.netconf.v6 is not None
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4,
        public_ipv6=inputs.facts.public_v6 if v6 else None,
        backend=name,
        data={"VNI": options.vni, "VtepMAC": str(inputs.mac_v4)} if v4 else None,
        data_v6={"VNI": options.vni, "VtepMAC": str(inputs.mac_v6)} if v6 else None,
    )


def shared(
    inputs: Inputs, options: Tunnel, overhead: Mapping[int, int], *, learning: bool = False, gbp: bool = False
) -> KernelState:
    """Each VTEP has the base of our subnet as its only address."""
    state: set[Object] = set()
    uplink = inputs.facts.uplink
    for subnet, local, mac in ((inputs.v4, uplink.v4, inputs.mac_v4), (inputs.v6, uplink.v6, inputs.mac_v6)):
        if subnet is None or local is None:
            continue
        name = options.device(subnet.version)
        link = VxlanLink(
            name=name,
            vni=options.vni,
            port=options.port or _PORT,
            # Not the public address: behind NAT that is no address of ours.
            local=local,
            parent=uplink.index,
            parent_name=uplink.name,
            mac=mac,
            mtu=options.outer_mtu(inputs) - overhead[subnet.version],
            learning=learning,
            gbp=gbp,
        )
        address = Address(dev=name, ip=subnet.network_address, prefixlen=subnet.max_prefixlen)
        state |= {link, address, Sysctl(name=f"net/ipv6/conf/{name}/accept_ra", value="0")}
    return frozenset(state)


def claims(attrs: LeaseAttrs) -> tuple[Claim, ...]:
    """By a MAC that two nodes have, one would get the other's packets."""
    macs = (vtep_mac(attrs.data), vtep_mac(attrs.data_v6))
    return (*dict.fromkeys(VtepMac(mac) for mac in macs if mac is not None), *addresses(attrs))


def entries(lease: Lease, data: Any, *, dev: str, base: Ip, remote: Ip) -> tuple[Neighbour, FdbEntry]:
    """What leads to a peer's VTEP, for `data` of the family. Raises `PeerError`."""
    mac = vtep_mac(data)
    if mac is None:
        text = data.get("VtepMAC") if isinstance(data, dict) else None
        raise unusable(lease, f"VtepMAC {text!r:.60}", "a unicast MAC address")
    return Neighbour(dev=dev, ip=base, mac=mac), FdbEntry(dev=dev, mac=mac, remote=remote)


def vtep_mac(data: Any) -> Mac | None:
    """None if there is none that a device can have."""
    text = data.get("VtepMAC") if isinstance(data, dict) else None
    try:
        mac = Mac.parse(text) if isinstance(text, str) else Mac()
    except ValueError:
        return None
    return mac if mac.is_unicast else None
