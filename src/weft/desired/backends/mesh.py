"""mesh: the back end of a mesh, whose store says in each lease by which way its node is reached.

All ways end at the same addresses, and pods get the same MTU whichever is taken. So far there is one way, vxlan as
flannel has it. What the node itself sends to pods comes from the base of its own block, by every way: that address
travels as the block does.
"""

from collections.abc import Collection, Sequence
from typing import Final

from weft.config.jsonfields import Fields
from weft.desired.inputs import Device, DirectRouting, Inputs, check_type, options_of, unusable
from weft.desired.tunnels import vxlan
from weft.desired.tunnels.vxlan import Tunnel, VxlanLink
from weft.model.kernel.objects import KernelState, Object, Route
from weft.model.lease import Lease, LeaseAttrs

_OVERHEAD: Final = {4: 80, 6: 80}  # the largest of a mesh: outer IPv6 40, UDP 8, WireGuard's header and tag 32

LINKS = (VxlanLink,)
claims = vxlan.claims


class MeshOptions(Tunnel):
    """`Backend` of type mesh."""

    direct_routing: DirectRouting = False


def options(fields: Fields, families: Collection[int]) -> MeshOptions:
    return vxlan.read(fields, MeshOptions, families, _OVERHEAD)


def check(inputs: Inputs) -> None:
    vxlan.check(inputs, _options(inputs), _OVERHEAD)


def devices(inputs: Inputs) -> Sequence[Device]:
    return vxlan.devices(inputs, _options(inputs))


def mtu(inputs: Inputs) -> int:
    return vxlan.mtu(inputs, _options(inputs), _OVERHEAD)


def advertise(inputs: Inputs) -> LeaseAttrs:
    return vxlan.advertise(inputs, _options(inputs), "mesh")


def shared(inputs: Inputs) -> KernelState:
    return vxlan.shared(inputs, _options(inputs), _OVERHEAD)


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    """For each family by which its node is reached: neighbour, FDB entry and route, or one direct route."""
    check_type(lease, "mesh")
    if lease.way is not None and lease.way.kind != "vxlan":
        raise unusable(lease, f"the way {lease.way}", "vxlan, the one way that this release has")
    chosen, state = _options(inputs), set[Object]()
    remotes = {ip.version: ip for ip in lease.remotes}
    mtu = 0 if lease.way is None else lease.way.mtu
    for own, subnet, data in ((inputs.v4, lease.v4, lease.attrs.data), (inputs.v6, lease.v6, lease.attrs.data_v6)):
        remote = None if subnet is None else remotes.get(subnet.version)
        if own is None or subnet is None or remote is None:
            continue
        source = own.network_address
        if chosen.direct_routing and inputs.facts.is_on_link(remote):
            state.add(Route(dst=subnet, via=remote, dev=inputs.facts.uplink.name, source=source, mtu=mtu))
        else:
            dev = chosen.device(subnet.version)
            state |= vxlan.to_peer(lease, data, dev=dev, subnet=subnet, remote=remote, source=source, mtu=mtu)
    return frozenset(state)


def _options(inputs: Inputs) -> MeshOptions:
    return options_of(inputs, MeshOptions)
