"""vxlan: a VXLAN device per family, and three objects per peer (flannel.md §6.2), as `desired.tunnels.vxlan` has them.

With DirectRouting, a peer on the uplink's own segment gets a plain route instead.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

from weft.config.jsonfields import Fields
from weft.desired.claims import Claim, addresses
from weft.desired.inputs import LEAST_MTU, Device, DirectRouting, Inputs, check_type, options_of
from weft.desired.tunnels.vxlan import Tunnel, VxlanLink, claims_of_macs, to_peer, told, vteps
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import KernelState, Route
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net

# Outer IP header, UDP 8, VXLAN 8 and inner Ethernet 14 bytes.
OVERHEAD: Final = {4: 50, 6: 70}
_MTU_MAX: Final = 65535


class VxlanOptions(Tunnel):
    """`Backend` of type vxlan (flannel.md §6.2). `mtu` 0 is the uplink's."""

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


LINKS = (VxlanLink,)


def options(fields: Fields, families: Collection[int]) -> VxlanOptions:
    parsed = fields.read(VxlanOptions)
    parsed.refuse_long_names(fields, families)
    least = max((LEAST_MTU[family] + OVERHEAD[family] for family in families), default=0)
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
    for family, left in _device_mtus(inputs).items():
        if left < LEAST_MTU[family]:
            raise ConfigError(
                Problem(
                    code="MTU-001",
                    where="Backend.MTU" if _options(inputs).mtu else f"MTU of {inputs.facts.uplink.name}",
                    seen=f"{_base_mtu(inputs)} leaves {left} bytes for IPv{family} in the tunnel",
                    expected=f"at least {LEAST_MTU[family]}",
                    hint="Raise the MTU of the uplink, or turn the family off",
                )
            )


def devices(inputs: Inputs) -> Sequence[Device]:
    chosen = _options(inputs)
    return [Device(chosen.device(family), VxlanLink, frozenset({family})) for family in inputs.netconf.families]


def mtu(inputs: Inputs) -> int:
    """The smaller one, so that no pod packet is too large for either."""
    return min(_device_mtus(inputs).values())


def advertise(inputs: Inputs) -> LeaseAttrs:
    chosen = _options(inputs)
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4,
        public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None,
        backend="vxlan",
        data=told(inputs, chosen, 4),
        data_v6=told(inputs, chosen, 6),
    )


def shared(inputs: Inputs) -> KernelState:
    chosen = _options(inputs)
    return vteps(inputs, chosen, _device_mtus(inputs), learning=chosen.learning, gbp=chosen.gbp)


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
    return (*claims_of_macs(attrs), *addresses(attrs))


def _way(inputs: Inputs, lease: Lease, subnet: Net, remote: Ip, data: Any) -> KernelState:
    chosen = _options(inputs)
    if chosen.direct_routing and inputs.facts.is_on_link(remote):
        return frozenset({Route(dst=subnet, via=remote, dev=inputs.facts.uplink.name)})
    return to_peer(chosen.device(subnet.version), lease, subnet, remote, data)


def _options(inputs: Inputs) -> VxlanOptions:
    return options_of(inputs, VxlanOptions)


def _base_mtu(inputs: Inputs) -> int:
    return _options(inputs).mtu or inputs.facts.uplink.mtu


def _device_mtus(inputs: Inputs) -> dict[int, int]:
    """The MTU that each family's tunnel has."""
    return {family: _base_mtu(inputs) - OVERHEAD[family] for family in inputs.netconf.families}
