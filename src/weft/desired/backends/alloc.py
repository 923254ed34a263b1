"""alloc: a subnet for this node, and nothing between nodes: somebody else carries packets (flannel.md §6.8).

As with a router, a cloud's route table or a tunnel of one's own.
"""

from collections.abc import Collection, Sequence

from weft.config.jsonfields import Fields
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs
from weft.model.kernel.objects import KernelState
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import Value

LINKS = ()
claims = addresses


def options(_fields: Fields, _families: Collection[int]) -> Value:
    return Value()


def check(_inputs: Inputs) -> None: ...


def devices(_inputs: Inputs) -> Sequence[Device]:
    return ()


def mtu(inputs: Inputs) -> int:
    return inputs.facts.uplink.mtu


def advertise(inputs: Inputs) -> LeaseAttrs:
    return LeaseAttrs(
        public_ip=inputs.facts.public_v4, public_ipv6=inputs.facts.public_v6 if inputs.netconf.v6 else None
    )


def shared(_inputs: Inputs) -> KernelState:
    return frozenset()


def peer(_inputs: Inputs, _lease: Lease) -> KernelState:
    """However a peer is reached, it is not by us."""
    return frozenset()
