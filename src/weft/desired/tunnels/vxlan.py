"""VXLAN between nodes, as flannel has it: a device per family, and three objects per peer (flannel.md §6.2).

Each node's VTEP answers for the base address of its subnet. A packet for a peer's pod is routed to that
address, the permanent neighbour entry gives the peer's VTEP MAC, and the FDB entry the underlay address to
send the frame to.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from weft.config.jsonfields import Fields
from weft.desired.claims import Claim
from weft.desired.inputs import Inputs, unusable
from weft.model.kernel.links import Attribute, Link
from weft.model.kernel.objects import Address, FdbEntry, KernelState, Neighbour, Object, Route, Sysctl
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Mac, Net
from weft.model.value import Value

_PORT: Final = 8472  # Linux had VXLAN before IANA gave it 4789 (drivers/net/vxlan: vxlan_port)
_VNI_MAX: Final = 2**24 - 1
_PORT_MAX: Final = 65535
_DEVICE_NAME_MAX: Final = 15  # IFNAMSIZ is 16 and counts the zero at the end (linux/if.h)


class Tunnel(Value):
    """Options of back ends that have one. `port` 0 is the kernel's own (8472)."""

    vni: Annotated[int, Key("VNI", "The network's number in each packet.", least=0, most=_VNI_MAX)] = 1
    port: Annotated[
        int, Key("Port", "The UDP port that nodes send to.", default=str(_PORT), least=0, most=_PORT_MAX)
    ] = 0

    def device(self, family: int) -> str:
        """`flannel.1`, `flannel-v6.1`."""
        return f"flannel{'-v6' if family == 6 else ''}.{self.vni}"

    def refuse_long_names(self, fields: Fields, families: Iterable[int]) -> None:
        """Note a problem for a device whose name the kernel does not take."""
        for name in map(self.device, families):
            if len(name) > _DEVICE_NAME_MAX:
                most = "9" * (_DEVICE_NAME_MAX - len(name.rstrip("0123456789")))
                fields.problem("VNI", str(self.vni), expected=f"at most {most}", hint=f"The name {name} is too long.")


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


def vteps(
    inputs: Inputs, options: Tunnel, mtus: Mapping[int, int], *, learning: bool = False, gbp: bool = False
) -> KernelState:
    """This node's, with an MTU for each family. Each has the base of our subnet as its only address."""
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
            mtu=mtus[subnet.version],
            learning=learning,
            gbp=gbp,
        )
        address = Address(dev=name, ip=subnet.network_address, prefixlen=subnet.max_prefixlen)
        state |= {link, address, Sysctl(name=f"net/ipv6/conf/{name}/accept_ra", value="0")}
    return frozenset(state)


def told(inputs: Inputs, options: Tunnel, family: int) -> dict[str, Any] | None:
    """What a lease says of this node's VTEP."""
    if family not in inputs.netconf.families:
        return None
    return {"VNI": options.vni, "VtepMAC": str(inputs.mac_v4 if family == 4 else inputs.mac_v6)}


def claims_of_macs(attrs: LeaseAttrs) -> tuple[Claim, ...]:
    """By a MAC that two nodes have, one would get the other's packets."""
    macs = (vtep_mac(attrs.data), vtep_mac(attrs.data_v6))
    return tuple(dict.fromkeys(VtepMac(mac) for mac in macs if mac is not None))


def to_peer(name: str, lease: Lease, subnet: Net, remote: Ip, data: Any) -> KernelState:
    """Neighbour, FDB entry and route on the device `name`. Raises `PeerError`."""
    mac = vtep_mac(data)
    if mac is None:
        text = data.get("VtepMAC") if isinstance(data, dict) else None
        raise unusable(lease, f"VtepMAC {text!r:.60}", "a unicast MAC address")
    base = subnet.network_address
    return frozenset(
        {
            Neighbour(dev=name, ip=base, mac=mac),
            FdbEntry(dev=name, mac=mac, remote=remote),
            Route(dst=subnet, via=base, dev=name, onlink=True),
        }
    )


def vtep_mac(data: Any) -> Mac | None:
    """None if there is none that a device can have."""
    text = data.get("VtepMAC") if isinstance(data, dict) else None
    try:
        mac = Mac.parse(text) if isinstance(text, str) else Mac()
    except ValueError:
        return None
    return mac if mac.is_unicast else None
