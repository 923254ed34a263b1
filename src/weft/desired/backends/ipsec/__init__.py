"""ipsec: packets between nodes in ESP, whose keys strongSwan's charon agrees on (flannel.md §6.7).

Where the kernel has ESP there is no device and no route: policies say which packets are encrypted, on whatever route
they leave. Where it has none, charon carries packets itself, through a TUN device of its own with routes of its own.
"""

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Final

from weft.config.jsonfields import Fields, shown
from weft.desired.backends.ipsec.objects import DEVICE, Charon, CharonLink, Connection, End, Policy, SharedKey
from weft.desired.claims import addresses
from weft.desired.inputs import Device, Inputs, check_room, check_type, options_of, refuse_ipv6
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import KernelState, Route
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import Secret, Value, replace

LEAST_PSK: Final = 96  # characters
PROPOSAL: Final = "aes128gcm16-sha256-prfsha256-ecp256"
OVERHEAD: Final = 77  # outer IPv4 20, SPI 4, sequence 4, IV 16, padding 15, its length 1, next header 1, check value 16
UDP_OVERHEAD: Final = 8
CHARON_MTU: Final = 1400  # charon reads no longer packets from its device, whatever MTU that is given later
_PROPOSAL: Final = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*!?")
_BEHIND: Final = 1 << 30  # the metric of a route that is used when charon's are gone


class IpsecOptions(Value):
    """flannel.md §6.7."""

    udp_encap: Annotated[
        bool, Key("UDPEncap", "Carry ESP in UDP (port 4500) although no NAT is on the way; pods get 8 bytes less.")
    ] = False
    proposal: str = PROPOSAL
    psk: Secret


class Esp(Value):
    """Whether the kernel has ESP; else charon carries packets itself."""

    in_kernel: bool


LINKS = ()
claims = addresses


def options(fields: Fields, families: Collection[int]) -> IpsecOptions:
    """The key is shown nowhere."""
    refuse_ipv6(fields, families, "ipsec")
    found = fields.boolean("UDPEncap", default=False)
    psk, proposal = fields.text("PSK") or "", fields.text("ESPProposal") or PROPOSAL
    if len(psk) < LEAST_PSK:
        seen = f"a value (not shown) of {len(psk)} characters" if psk else "no value"
        hint = "`openssl rand -hex 48` makes one; it is the same on all nodes"
        fields.problem("PSK", seen, expected=f"at least {LEAST_PSK} characters", hint=hint)
    if not _PROPOSAL.fullmatch(proposal):
        fields.problem(
            "ESPProposal", shown(proposal), expected="algorithms as strongSwan names them, as in " + PROPOSAL
        )
    return IpsecOptions(udp_encap=found, proposal=proposal, psk=Secret(psk))


def check(inputs: Inputs) -> None:
    facts = inputs.facts
    if facts.public_v4 != facts.uplink.v4:
        raise ConfigError(
            Problem(
                code="IFACE-001",
                where="--public-ip",
                seen=f"{facts.public_v4}, while {facts.uplink.name} has {facts.uplink.v4 or 'no such address'}",
                expected="the address of the interface itself, which policies and keys are bound to",
                hint="Leave the public address out, or use the wireguard backend",
            )
        )
    check_room(inputs, _overhead(inputs), "the tunnel")


def devices(inputs: Inputs) -> Sequence[Device]:
    """The name that charon's device would have, for the daemon to claim: a machine has one charon."""
    return (Device(DEVICE, CharonLink, frozenset({4})),)


def mtu(inputs: Inputs) -> int:
    """What the longest headers leave; where charon carries packets, no more than it reads."""
    left = inputs.facts.uplink.mtu - _overhead(inputs)
    return left if _in_kernel(inputs) else min(left, CHARON_MTU)


def advertise(inputs: Inputs) -> LeaseAttrs:
    return LeaseAttrs(public_ip=inputs.facts.public_v4, backend="ipsec")


def shared(inputs: Inputs) -> KernelState:
    """One charon with our own key; where it carries packets, a route that drops them while it does not run."""
    pool, own = inputs.netconf.v4, _own(inputs)
    if own is None or pool is None:
        return frozenset()
    key = SharedKey(owner=own.public, secret=_options(inputs).psk)
    if _in_kernel(inputs):
        return frozenset({Charon(), key})
    charon = Charon(in_process=True, address=own.subnet.network_address, mtu=mtu(inputs))
    return frozenset({charon, key, Route(dst=pool.network, blackhole=True, priority=_BEHIND)})


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    check_type(lease, "ipsec")
    own, attrs, chosen = _own(inputs), lease.attrs, _options(inputs)
    if own is None or lease.v4 is None or attrs.public_ip is None:
        return frozenset()
    far = End(attrs.public_ip, lease.v4)
    in_process = not _in_kernel(inputs)
    connection = Connection(
        local=own, remote=far, proposal=chosen.proposal, udp_encap=chosen.udp_encap or in_process, in_process=in_process
    )
    state: KernelState = frozenset({SharedKey(owner=far.public, secret=chosen.psk), connection})
    return state if in_process else state | _policies(own, far)


def _policies(own: End, far: End) -> KernelState:
    out = Policy(direction="out", src=own.subnet, dst=far.subnet, tunnel_src=own.public, tunnel_dst=far.public)
    come = Policy(direction="in", src=far.subnet, dst=own.subnet, tunnel_src=far.public, tunnel_dst=own.public)
    return frozenset({out, come, replace(come, direction="fwd")})


def _own(inputs: Inputs) -> End | None:
    public = inputs.facts.public_v4
    return None if inputs.v4 is None or public is None else End(public, inputs.v4)


def _overhead(inputs: Inputs) -> int:
    in_udp = _options(inputs).udp_encap or not _in_kernel(inputs)
    return OVERHEAD + (UDP_OVERHEAD if in_udp else 0)


def _in_kernel(inputs: Inputs) -> bool:
    """As upstream's, unless it was tried in vain."""
    return not isinstance(inputs.prepared, Esp) or inputs.prepared.in_kernel


def _options(inputs: Inputs) -> IpsecOptions:
    return options_of(inputs, IpsecOptions)
