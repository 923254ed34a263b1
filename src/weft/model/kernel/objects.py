"""What weft puts into the kernel, as values.

An object has a `key`, which says which one it is, and fields, which say what it should look like. Two objects with one
key are two states of the same thing: `plan.diff` needs no more. Devices are named, not numbered, because a device that
is recreated keeps its name and gets another index. A class says all that the plan, the log and the codes of repairs
need to know of a kind.

The key is made once and kept: thousands of objects are looked up by it, and what is wanted and what is there share it.
"""

from collections.abc import Mapping

from weft.model.kernel.marks import FORWARDING, MAIN_TABLE
from weft.model.kernel.ownership import Ownership
from weft.model.net import Ip, Mac, Net, number_of
from weft.model.value import Value, put_in

# A key starts with the kind of object; the rest is what the kernel compares.
Key = tuple[str | int | bytes, ...]


class Object(Value, gc=False):
    """One thing in the kernel. `str` gives one line, whatever a peer sent.

    Kinds are put in order of `rank`, and removed in reverse. `unwanted` says why one may have to go, for people.
    """

    key: Key = ()

    rank = 0
    unwanted = "no setting asks for it"
    code_if_unwanted = "ROUTE-002"  # of removing it
    code_if_refused = "VTEP-002"
    advice = "See `ip -d link show`"  # to people, where it is refused
    vital = False  # without it no peer is reached
    port = 0  # the UDP port at which it listens
    patience = 60.0  # the longest pause, in seconds, between two tries to put what is refused

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def link(self) -> str | None:
        """The link that takes it along when it goes; None for what stays or is a link itself."""
        return None

    def took_others_along(self) -> bool:
        """Tell whether its last change may have removed others without a notice."""
        return False

    def is_within(self, ownership: Ownership) -> bool:
        """Tell whether this daemon keeps or removes it: it bears weft's mark."""
        raise NotImplementedError

    @property
    def code(self) -> str:
        """The code of a repair after a change."""
        raise NotImplementedError

    @property
    def code_if_gone(self) -> str:
        """The code of a repair after a removal."""
        return self.code

    def reason(self) -> str:
        """Which setting asks for it, for people; empty for what serves a peer."""
        return "the configuration's Backend, with our lease and uplink"


class Sysctl(Object):
    """A setting below /proc/sys: `name` in slashes (`net/ipv6/conf/flannel.1/accept_ra`)."""

    name: str
    value: str

    rank = 1

    def __post_init__(self) -> None:
        put_in(self, "key", ("sysctl", self.name))

    def __str__(self) -> str:
        return f"sysctl {self.name}={self.value}"

    @property
    def link(self) -> str | None:
        if not self.name.startswith(("net/ipv4/conf/", "net/ipv6/conf/")):
            return None
        name = self.name.split("/")[3]
        return None if name in ("all", "default") else name

    def is_within(self, ownership: Ownership) -> bool:
        return self.link is None or self.link in ownership.devices

    @property
    def code(self) -> str:
        return "KERN-002" if self.name in FORWARDING.values() else "VTEP-003"

    def reason(self) -> str:
        if self.name in FORWARDING.values():
            return "pods here need this machine to forward"
        return "a VTEP takes no addresses from router advertisements"


class OnLink(Object):
    """What sits on the link `dev` belongs to that link's daemon."""

    dev: str

    @property
    def link(self) -> str:
        return self.dev

    def is_within(self, ownership: Ownership) -> bool:
        return self.dev in ownership.devices


class Address(OnLink):
    """Scope global, no label, no broadcast."""

    ip: Ip
    prefixlen: int

    rank = 2
    vital = True
    unwanted = "the configuration's Backend and our lease do not ask for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("address", self.dev, number_of(self.ip), self.prefixlen))

    def __str__(self) -> str:
        return f"address {self.ip}/{self.prefixlen} dev {self.dev}"

    def is_within(self, ownership: Ownership) -> bool:
        """An IPv4 address outside our networks is somebody's, a link-local one the kernel's (flannel.md §6.1)."""
        if not super().is_within(ownership):
            return False
        if self.ip.version == 6:
            return not self.ip.is_link_local
        return any(self.ip in network for network in ownership.networks)

    @property
    def code(self) -> str:
        return "VTEP-001"


class Neighbour(OnLink):
    """Permanent: which MAC answers for `ip` on `dev`."""

    ip: Ip
    mac: Mac

    rank = 3
    unwanted = "no lease that is served asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("neighbour", self.dev, number_of(self.ip)))

    def __str__(self) -> str:
        return f"neighbour {self.ip} lladdr {self.mac!s} dev {self.dev}"

    @property
    def code(self) -> str:
        return "FDB-001"


class FdbEntry(OnLink):
    """A VTEP's permanent entry: behind which underlay address `mac` lives."""

    mac: Mac
    remote: Ip

    rank = 4
    unwanted = Neighbour.unwanted

    def __post_init__(self) -> None:
        put_in(self, "key", ("fdb", self.dev, self.mac))

    def __str__(self) -> str:
        return f"fdb {self.mac!s} dev {self.dev} dst {self.remote}"

    @property
    def code(self) -> str:
        return "FDB-001"


class Route(Object):
    """`via` is None for a link-scope route; `blackhole` has neither `via` nor `dev`.

    `priority` is the metric: 0 is the kernel's default (0 for IPv4, 1024 for IPv6). `scope` is that of an IPv4 route
    with a gateway: 0 is global, and what is narrower than site (200) means the same to the kernel.
    """

    dst: Net
    via: Ip | None = None
    dev: str = ""
    onlink: bool = False
    blackhole: bool = False
    table: int = MAIN_TABLE
    priority: int = 0
    scope: int = 0

    rank = 5
    unwanted = Neighbour.unwanted

    def __post_init__(self) -> None:
        dst = self.dst
        key = ("route", self.table, number_of(dst.network_address), dst.prefixlen, self.priority)
        put_in(self, "key", key)

    def __str__(self) -> str:
        rest = "".join(
            f" {name} {value}"
            for name, value, usual in (
                ("table", self.table, MAIN_TABLE),
                ("metric", self.priority, 0),
                ("scope", self.scope, 0),
            )
            if value != usual
        )
        if self.blackhole:
            return f"route blackhole {self.dst}{rest}"
        if not self.dev:
            return f"route {self.dst} without a way out{rest}"
        via = "" if self.via is None else f" via {self.via}"
        return f"route {self.dst}{via} dev {self.dev}{' onlink' if self.onlink else ''}{rest}"

    @property
    def link(self) -> str | None:
        return self.dev or None

    def is_within(self, ownership: Ownership) -> bool:
        """Ours are all in the main table: one in another is an administrator's, whatever its protocol."""
        return self.table == MAIN_TABLE and (self.dev in ownership.devices or ownership.leads_to(self.dst))

    @property
    def code(self) -> str:
        return "ROUTE-001"

    def reason(self) -> str:
        return "--ip-blackhole-route" if self.blackhole else super().reason()


KernelState = frozenset[Object]
Objects = Mapping[Key, Object]
