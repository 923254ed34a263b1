"""What back end ipsec keeps, as objects: charon, its keys and connections, and the kernel's policies."""

from ipaddress import IPv4Address, IPv4Network
from typing import Final, Literal

from weft.model.kernel.links import Link
from weft.model.kernel.objects import Neighbour, Object, Ownership
from weft.model.net import number_of
from weft.model.value import Secret, Value, put_in

DEVICE: Final = "ipsec0"  # charon's, where it carries packets itself; in the kernel's mode its name alone is claimed
REQID: Final = 11  # which policies and states belong together, as upstream's

Direction = Literal["out", "in", "fwd"]


class CharonLink(Link):
    """The name of charon's device, which weft claims; charon makes the device, and removes it when it ends."""

    kind = "charon"


class End(Value, kw_only=False):
    """One end of a tunnel."""

    public: IPv4Address
    subnet: IPv4Network


class _Kept(Object):
    """It belongs to the daemon that has claimed charon's device."""

    code_if_changed = "FDB-001"
    unwanted = Neighbour.unwanted

    def is_within(self, ownership: Ownership) -> bool:
        return DEVICE in ownership.devices


class Charon(_Kept):
    """The process that agrees on keys.

    With `in_process` it also carries packets, through `DEVICE`, whose address and MTU are given.
    """

    in_process: bool = False
    address: IPv4Address | None = None
    mtu: int = 0

    rank = 1
    code_if_changed = "VTEP-004"
    vital = True
    patience = 4.0
    unwanted = Link.unwanted
    code_if_refused = "VTEP-004"
    advice = "See charon.log in the instance's directory below --state-dir"

    def __post_init__(self) -> None:
        put_in(self, "key", ("charon",))

    def __str__(self) -> str:
        if not self.in_process:
            return "charon, with ESP in the kernel"
        return f"charon, with ESP in itself, through {DEVICE} address {self.address} mtu {self.mtu}"


class SharedKey(_Kept):
    """The key that proves that a node is ours, for one node's address."""

    owner: IPv4Address
    secret: Secret

    rank = 2

    def __post_init__(self) -> None:
        put_in(self, "key", ("ipseckey", number_of(self.owner)))

    def __str__(self) -> str:
        return f"shared key for {self.owner}"


class Connection(_Kept):
    """What charon knows of a peer. `proposal` is empty if unknown: an earlier daemon's."""

    local: End
    remote: End
    proposal: str
    udp_encap: bool = False
    in_process: bool = False

    rank = 4

    def __post_init__(self) -> None:
        put_in(self, "key", ("ipsecconn", self.name))

    def __str__(self) -> str:
        return f"IPsec connection {self.name}"

    @property
    def name(self) -> str:
        """As upstream's: both outer addresses, both inner subnets."""
        return f"{self.local.public}-{self.child}-{self.remote.public}"

    @property
    def child(self) -> str:
        return f"{self.local.subnet}-{self.remote.subnet}"


class Policy(Object):
    """Packets from `src` to `dst` go by ESP between `tunnel_src` and `tunnel_dst`."""

    direction: Direction
    src: IPv4Network
    dst: IPv4Network
    tunnel_src: IPv4Address
    tunnel_dst: IPv4Address

    rank = 3
    code_if_changed = "FDB-001"
    unwanted = Neighbour.unwanted

    def __post_init__(self) -> None:
        ends = (each for net in (self.src, self.dst) for each in (number_of(net.network_address), net.prefixlen))
        put_in(self, "key", ("policy", self.direction, *ends))

    def __str__(self) -> str:
        return f"IPsec policy {self.direction} {self.src} to {self.dst} by {self.tunnel_src} to {self.tunnel_dst}"

    def is_within(self, ownership: Ownership) -> bool:
        """Policies of the daemon's networks are its own: upstream and we mark them by their number alone."""
        return DEVICE in ownership.devices and ownership.leads_to(self.src) and ownership.leads_to(self.dst)


def connection_of(name: str) -> Connection | None:
    """Read a connection's name; None for a name of others."""
    try:
        public, subnet, far_subnet, far_public = name.split("-")
        local = End(IPv4Address(public), IPv4Network(subnet))
        remote = End(IPv4Address(far_public), IPv4Network(far_subnet))
    except ValueError:
        return None
    return Connection(local=local, remote=remote, proposal="")
