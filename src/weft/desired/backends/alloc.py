"""alloc: a subnet for this node, and nothing between nodes: somebody else carries packets (flannel.md §6.8).

As with a router, a cloud's route table or a tunnel of one's own.
"""

from collections.abc import Collection, Mapping

from weft.config.jsonfields import Fields
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs
from weft.model.kernel.objects import KernelState
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import Value

LINKS = ()
claims = addresses


def options(_fields: Fields, _families: Collection[int]) -> Value:
    """There are none."""
    return Value()


def check(_inputs: Inputs) -> None:
    """It runs anywhere."""


def devices(_inputs: Inputs) -> Mapping[int, Device]:
    """None."""
    return {}


def mtu(inputs: Inputs) -> int:
    """The uplink's own."""
    return inputs.facts.uplink.mtu


def advertise(inputs: Inputs) -> LeaseAttrs:
    """Publish our addresses, and no type."""
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4, public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None
    )


def shared(_inputs: Inputs) -> KernelState:
    """Nothing."""
    return frozenset()


def peer(_inputs: Inputs, _lease: Lease) -> KernelState:
    """Nothing: however a peer is reached, it is not by us."""
    return frozenset()
