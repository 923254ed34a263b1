"""vxlan: a VXLAN device per family, and three objects per peer (flannel.md §6.2), as `desired.tunnels.vxlan` has them.

With DirectRouting, a peer on the uplink's own segment gets a plain route instead.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

from weft.config.jsonfields import Fields
from weft.desired.inputs import Device, DirectRouting, Inputs, check_type, options_of
from weft.desired.tunnels import vxlan
from weft.desired.tunnels.vxlan import Tunnel, VxlanLink
from weft.model.kernel.objects import KernelState, Route
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net

_OVERHEAD: Final = {4: 50, 6: 70}  # outer IP header, UDP 8, VXLAN 8 and inner Ethernet 14 bytes

LINKS = (VxlanLink,)
claims = vxlan.claims


class VxlanOptions(Tunnel):
    """`Backend` of type vxlan (flannel.md §6.2)."""

    gbp: Annotated[bool, Key("GBP", "Let a packet's mark travel with it (group policy).")] = False
    learning: Annotated[bool, Key("Learning", "Let the kernel learn MAC addresses from packets.")] = False
    direct_routing: DirectRouting = False


def options(fields: Fields, families: Collection[int]) -> VxlanOptions:
    parsed = vxlan.read(fields, VxlanOptions, families, _OVERHEAD)
    for key in ("MacPrefix", "Name"):
        fields.ignored(key, "has a meaning on Windows only")
    return parsed


def check(inputs: Inputs) -> None:
    vxlan.check(inputs, _options(inputs), _OVERHEAD)


def devices(inputs: Inputs) -> Sequence[Device]:
    return vxlan.devices(inputs, _options(inputs))


def mtu(inputs: Inputs) -> int:
    return vxlan.mtu(inputs, _options(inputs), _OVERHEAD)


def advertise(inputs: Inputs) -> LeaseAttrs:
    return vxlan.advertise(inputs, _options(inputs), "vxlan")


def shared(inputs: Inputs) -> KernelState:
    chosen = _options(inputs)
    return vxlan.shared(inputs, chosen, _OVERHEAD, learning=chosen.learning, gbp=chosen.gbp)


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


def _way(inputs: Inputs, lease: Lease, subnet: Net, remote: Ip, data: Any) -> KernelState:
    chosen = _options(inputs)
    if chosen.direct_routing and inputs.facts.is_on_link(remote):
        return frozenset({Route(dst=subnet, via=remote, dev=inputs.facts.uplink.name)})
    dev, base = chosen.device(subnet.version), subnet.network_address
    state = vxlan.entries(lease, data, dev=dev, base=base, remote=remote)
    return frozenset({*state, Route(dst=subnet, via=base, dev=dev, onlink=True)})


def _options(inputs: Inputs) -> VxlanOptions:
    return options_of(inputs, VxlanOptions)
