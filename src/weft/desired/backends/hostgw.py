"""host-gw: a plain route to each node's subnet, through that node (flannel.md §6.3).

All nodes must share a layer-2 segment; nothing is encapsulated, and there is no device.
"""

from collections.abc import Collection, Sequence

from weft.config.jsonfields import Fields
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs, check_type, unusable
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import KernelState, Route
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Ip, Net
from weft.model.value import Value

LINKS = ()
claims = addresses


def options(_fields: Fields, _families: Collection[int]) -> Value:
    return Value()


def check(inputs: Inputs) -> None:
    """Behind NAT a peer cannot route through an address that is not on its segment."""
    facts = inputs.facts
    for public, own in ((facts.public_v4, facts.uplink.v4), (facts.public_v6, facts.uplink.v6)):
        if public is not None and public != own:
            raise ConfigError(
                Problem(
                    code="IFACE-001",
                    where=f"--public-ip{'v6' if public.version == 6 else ''}",
                    seen=f"{public}, while {facts.uplink.name} has {own or 'no such address'}",
                    expected="the address of the interface itself, because host-gw cannot cross NAT",
                    hint="Leave the public address out, or use the vxlan backend",
                )
            )


def devices(inputs: Inputs) -> Sequence[Device]:
    return ()


def mtu(inputs: Inputs) -> int:
    return inputs.facts.uplink.mtu


def advertise(inputs: Inputs) -> LeaseAttrs:
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4,
        public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None,
        backend="host-gw",
    )


def shared(inputs: Inputs) -> KernelState:
    return frozenset()


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    attrs = lease.attrs
    check_type(lease, "host-gw")
    ways = []
    if inputs.v4 is not None and lease.v4 is not None and attrs.public_ip is not None:
        ways.append(_route(inputs, lease, lease.v4, attrs.public_ip))
    if inputs.v6 is not None and lease.v6 is not None and attrs.public_ipv6 is not None:
        ways.append(_route(inputs, lease, lease.v6, attrs.public_ipv6))
    return frozenset(ways)


def _route(inputs: Inputs, lease: Lease, subnet: Net, via: Ip) -> Route:
    """Raises `PeerError` when no prefix of the uplink holds the peer's address."""
    facts = inputs.facts
    if not facts.is_on_link(via):
        raise unusable(
            lease,
            f"{via} is not on a segment of {facts.uplink.name}",
            "a node that shares a layer-2 segment with this one",
            "host-gw cannot cross a router; use the vxlan backend with DirectRouting",
        )
    return Route(dst=subnet, via=via, dev=facts.uplink.name)
