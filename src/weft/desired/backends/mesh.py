"""mesh: the back end of a mesh, whose store says in each lease by which way its node is reached.

All ways end at the same addresses, and pods get the same MTU whichever is taken. So far these are vxlan, as flannel has
it, and via another node that vxlan leads to: then only the route of the peer's pods is that node's, and what leads to
the peer itself stays, so that it can be tried: each node has an address for that, to which and from which nothing else
goes. What the node itself sends to pods comes from the base of its own block, by every way: that address travels as the
block does.
"""

from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Final

from weft.config.blocks import asked_at
from weft.config.jsonfields import Fields
from weft.desired.inputs import Device, DirectRouting, Inputs, check_type, options_of
from weft.desired.tunnels import vxlan
from weft.desired.tunnels.vxlan import Tunnel, VxlanLink
from weft.model.kernel.marks import FORWARDING
from weft.model.kernel.objects import Address, KernelState, Object, Route, Sysctl
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net

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
    """The devices, and what lets this node relay: packets of pods come and go by the same device.

    IPv6 is forwarded once the first pod is here: its plugin sees to routes that router advertisements have made, which
    the kernel would take away.
    """
    state = set[Object](vxlan.shared(inputs, _options(inputs), _OVERHEAD))
    names = [thing.name for thing in state if isinstance(thing, VxlanLink)]
    if inputs.v4 is not None and names:
        state.add(Sysctl(name=FORWARDING[4], value="1"))
    for subnet in (inputs.v4, inputs.v6):
        if subnet is not None and (dev := _options(inputs).device(subnet.version)) in names:
            state.add(Address(dev=dev, ip=asked_at(inputs.netconf, subnet), prefixlen=subnet.max_prefixlen))
    # Packets of a peer may come by another node than they go (2 is loose), and the way by us is meant. Redirects are
    # sent if the setting of all devices or that of this one says so (IN_DEV_TX_REDIRECTS in linux/inetdevice.h).
    settings = {
        f"{name}/{key}": value for name in names for key, value in (("rp_filter", "2"), ("send_redirects", "0"))
    }
    if names:
        settings["all/send_redirects"] = "0"
    state |= {Sysctl(name=f"net/ipv4/conf/{name}", value=value) for name, value in settings.items()}
    return frozenset(state)


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    """What leads to the peer's own VTEP, whichever way pods' packets take, and the route of these."""
    check_type(lease, "mesh")
    chosen, state = _options(inputs), set[Object]()
    remotes = {ip.version: ip for ip in lease.remotes}
    for own, subnet, data in ((inputs.v4, lease.v4, lease.attrs.data), (inputs.v6, lease.v6, lease.attrs.data_v6)):
        if own is None or subnet is None:
            continue
        dev, remote, base = chosen.device(subnet.version), remotes.get(subnet.version), subnet.network_address
        if remote is not None:
            state |= set(vxlan.entries(lease, data, dev=dev, base=base, remote=remote))
            asked, source = (asked_at(inputs.netconf, each) for each in (subnet, own))
            state.add(_straight(inputs, _alone(asked), remote, base, source))
        route = _route(inputs, lease, subnet, own.network_address, remote)
        if route is not None:
            state.add(route)
    return frozenset(state)


def _alone(ip: Ip) -> Net:
    return IPv4Network(ip) if isinstance(ip, IPv4Address) else IPv6Network(ip)


def _route(inputs: Inputs, lease: Lease, subnet: Net, source: Ip, remote: Ip | None) -> Route | None:
    """None to a peer that no way leads to."""
    way = lease.way
    if way is not None and way.via:
        bases = [base for base in way.bases if base.version == subnet.version]
        dev = _options(inputs).device(subnet.version)
        return Route(dst=subnet, via=bases[0], dev=dev, onlink=True, source=source) if bases else None
    if remote is None:
        return None
    return _straight(inputs, subnet, remote, subnet.network_address, source)


def _straight(inputs: Inputs, subnet: Net, remote: Ip, base: Ip, source: Ip) -> Route:
    """To a peer itself; what asks the path goes as pods' packets do."""
    chosen = _options(inputs)
    if chosen.direct_routing and inputs.facts.is_on_link(remote):
        return Route(dst=subnet, via=remote, dev=inputs.facts.uplink.name, source=source)
    return Route(dst=subnet, via=base, dev=chosen.device(subnet.version), onlink=True, source=source)


def _options(inputs: Inputs) -> MeshOptions:
    return options_of(inputs, MeshOptions)
