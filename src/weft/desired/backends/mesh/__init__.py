"""mesh: the back end of a mesh, whose store says in each lease by which way its node is reached.

All ways end at the same addresses, and pods get the same MTU whichever is taken. A way is of one of two kinds, vxlan as
flannel has it or WireGuard (`sealed`), and may lead via another node: then only the routes of the peer's pods are that
node's. What leads to the peer itself by each kind stays, so that it can be tried: each node has an address for that, to
which and from which nothing else goes. What the node itself sends to pods comes from the base of its own block, by
every way: that address travels as the block does.

With a password a node takes vxlan only if it is inside `Trusted`, and one that does not has no vxlan device. On either
whatever is for pods and has no way is dropped: in clear it would leave by the default route.
"""

from collections.abc import Collection, Iterator, Sequence
from ipaddress import ip_network
from typing import Any, Final

from weft.config.blocks import asked_at
from weft.config.flagvalues import MESH_PORT
from weft.config.jsonfields import Fields, shown
from weft.desired.backends.mesh import sealed
from weft.desired.backends.mesh.sealed import prepared
from weft.desired.inputs import Device, DirectRouting, Inputs, check_type, options_of
from weft.desired.tunnels import vxlan
from weft.desired.tunnels.vxlan import Tunnel, VxlanLink
from weft.desired.tunnels.wireguard import WireguardLink, WireguardTun
from weft.model.kernel.marks import FORWARDING
from weft.model.kernel.objects import Address, KernelState, Object, Route, Sysctl
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net, with_port
from weft.model.value import replace

_OVERHEAD: Final = {4: sealed.OVERHEAD, 6: sealed.OVERHEAD}  # the largest of a mesh

LINKS = (VxlanLink, WireguardLink, WireguardTun)
claims = vxlan.claims


class MeshOptions(Tunnel):
    """`Backend` of type mesh. `trusted` are prefixes of the underlay."""

    direct_routing: DirectRouting = False
    trusted: tuple[Net, ...] = ()


def options(fields: Fields, families: Collection[int]) -> MeshOptions:
    found = vxlan.read(fields, MeshOptions, families, _OVERHEAD)
    words = fields.words("Trusted") or ()
    trusted: list[Net] = []
    for text in (words,) if isinstance(words, str) else words:
        try:
            trusted.append(ip_network(text))
        except ValueError:
            fields.problem("Trusted", shown(text), expected="prefixes of the underlay, as 192.168.7.0/24")
    return replace(found, trusted=tuple(trusted))


def takes_vxlan(inputs: Inputs) -> bool:
    """Whether this node may send and take pods' packets in clear."""
    facts = inputs.facts
    v4, v6 = (facts.uplink.v4, facts.public_v4), (facts.uplink.v6, facts.public_v6)  # to the latter others would send
    return all(_trusts(inputs, ip) for family in inputs.netconf.families for ip in (v4 if family == 4 else v6))


def _trusts(inputs: Inputs, ip: Ip | None) -> bool:
    """Whether pods' packets may go to and from an address of the underlay in clear."""
    return not prepared(inputs).password or (ip is not None and any(ip in net for net in _options(inputs).trusted))


def check(inputs: Inputs) -> None:
    vxlan.check(inputs, _options(inputs), _OVERHEAD)


def devices(inputs: Inputs) -> Sequence[Device]:
    clear = takes_vxlan(inputs)
    return [*(vxlan.devices(inputs, _options(inputs)) if clear else ()), *sealed.devices(inputs, vital=not clear)]


def mtu(inputs: Inputs) -> int:
    return vxlan.mtu(inputs, _options(inputs), _OVERHEAD)


def advertise(inputs: Inputs) -> LeaseAttrs:
    """Without `VtepMAC` the node takes no vxlan; `Port` is its WireGuard's, if it has one."""
    attrs = vxlan.advertise(inputs, _options(inputs), "mesh")
    port = {} if prepared(inputs).keys is None else {"Port": MESH_PORT}
    clear = takes_vxlan(inputs)

    def said(data: Any) -> Any:
        return None if data is None else {**(data if clear else {}), **port}

    return replace(attrs, data=said(attrs.data), data_v6=said(attrs.data_v6))


def tunnels(attrs: LeaseAttrs) -> tuple[str, ...]:
    """Where the WireGuard of a node that has published this may be reached; nowhere if it has none."""
    has_one = any(isinstance(data, dict) and "Port" in data for data in (attrs.data, attrs.data_v6))
    return tuple(with_port(public, MESH_PORT) for public in attrs.publics) if has_one else ()


def is_clear(attrs: LeaseAttrs) -> bool:
    """Whether a node that has published this takes vxlan."""
    return any(isinstance(data, dict) and "VtepMAC" in data for data in (attrs.data, attrs.data_v6))


def shared(inputs: Inputs) -> KernelState:
    """The devices, and what lets this node relay: packets of pods come and go by devices of the mesh.

    IPv6 is forwarded once the first pod is here: its plugin sees to routes that router advertisements have made, which
    the kernel would take away.
    """
    state = set[Object](sealed.shared(inputs, mtu(inputs)))
    clear = takes_vxlan(inputs)
    state |= vxlan.shared(inputs, _options(inputs), _OVERHEAD) if clear else set(sealed.bases(inputs))
    if prepared(inputs).password:
        state |= {Route(dst=network, blackhole=True) for network in inputs.netconf.networks}
    names = [thing.name for thing in state if isinstance(thing, VxlanLink | WireguardLink | WireguardTun)]
    if inputs.v4 is not None and names:
        state.add(Sysctl(name=FORWARDING[4], value="1"))
    for subnet in (inputs.v4, inputs.v6):
        if subnet is not None and (dev := _options(inputs).device(subnet.version)) in names:
            asked = asked_at(inputs.netconf, subnet, "vxlan")
            state.add(Address(dev=dev, ip=asked, prefixlen=subnet.max_prefixlen))
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
    """What leads to the peer itself, whichever way pods' packets take, and the routes of these."""
    check_type(lease, "mesh")
    state = set[Object]((*sealed.peer(inputs, lease), *sealed.blocks(inputs, lease)))
    facts = inputs.facts
    ours = {facts.uplink.v4, facts.uplink.v6, facts.public_v4, facts.public_v6}  # of a peer at another site, too
    remotes = {ip.version: ip for ip in lease.remotes if ip not in ours and _trusts(inputs, ip)}
    clear = takes_vxlan(inputs)
    for own, subnet, data in ((inputs.v4, lease.v4, lease.attrs.data), (inputs.v6, lease.v6, lease.attrs.data_v6)):
        if own is None or subnet is None:
            continue
        remote = remotes.get(subnet.version)
        if clear and remote is not None and (lease.way is None or is_clear(lease.attrs)):
            state |= set(_to_vtep(inputs, lease, subnet, own, data, remote=remote))
        route = _route(inputs, lease, subnet, own.network_address, remote)
        if route is not None:
            state.add(route)
    return frozenset(state)


def _to_vtep(inputs: Inputs, lease: Lease, subnet: Net, own: Net, data: Any, *, remote: Ip) -> Iterator[Object]:
    base = subnet.network_address
    yield from vxlan.entries(lease, data, dev=_options(inputs).device(subnet.version), base=base, remote=remote)
    asked, source = (asked_at(inputs.netconf, each, "vxlan") for each in (subnet, own))
    yield _straight(inputs, ip_network(asked), remote, base, source)


def _route(inputs: Inputs, lease: Lease, subnet: Net, source: Ip, remote: Ip | None) -> Route | None:
    """None to a peer that no way leads to."""
    way = lease.way
    if way is not None and way.kind == "direct":
        return sealed.route(inputs, way, subnet, source)
    if not takes_vxlan(inputs):
        return None
    if way is not None and way.via:
        bases = [base for base in way.bases if base.version == subnet.version]
        dev = _options(inputs).device(subnet.version)
        return Route(dst=subnet, via=bases[0], dev=dev, onlink=True, source=source, mtu=way.mtu) if bases else None
    if remote is None:
        return None
    straight = _straight(inputs, subnet, remote, subnet.network_address, source)
    return straight if way is None else replace(straight, mtu=way.mtu)


def _straight(inputs: Inputs, subnet: Net, remote: Ip, base: Ip, source: Ip) -> Route:
    """To a peer itself; what asks the path goes as pods' packets do."""
    chosen = _options(inputs)
    if chosen.direct_routing and inputs.facts.is_on_link(remote):
        return Route(dst=subnet, via=remote, dev=inputs.facts.uplink.name, source=source)
    return Route(dst=subnet, via=base, dev=chosen.device(subnet.version), onlink=True, source=source)


def _options(inputs: Inputs) -> MeshOptions:
    return options_of(inputs, MeshOptions)
