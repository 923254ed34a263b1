"""What weft puts into the kernel, as values.

An object has a `key`, which says which one it is, and fields, which say what it should look like. Two
objects with one key are two states of the same thing: `plan.diff` needs no more. Devices are named, not
numbered, because a device that is recreated keeps its name and gets another index.

The key is made once and kept: thousands of objects are looked up by it, and what is wanted and what is there
share it.
"""

from collections.abc import Mapping

from weft.model.marks import MAIN_TABLE
from weft.model.net import Ip, Mac, Net
from weft.model.value import Value, field

# A key starts with the kind of object; the rest is what the kernel compares.
Key = tuple[str | int | bytes, ...]


class VxlanLink(Value):
    """A VXLAN tunnel endpoint (VTEP), up and with our alias. `port` is the UDP destination port.

    `parent` is the index of the uplink: a new name of it changes nothing of ours. Its name is for people.
    """

    name: str
    vni: int
    port: int
    local: Ip
    parent: int
    mac: Mac
    mtu: int
    learning: bool = False
    gbp: bool = False
    parent_name: str = field(default="", compare=False)
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("link", self.name))

    def changes_in_place(self, have: "VxlanLink") -> bool:
        """Tell whether `have` can become this without being deleted (drivers/net/vxlan: changelink)."""
        return (have.vni, have.port, have.gbp, have.local, have.parent) == (
            self.vni,
            self.port,
            self.gbp,
            self.local,
            self.parent,
        )


class Address(Value):
    """An address of a link: scope global, no label, no broadcast."""

    dev: str
    ip: Ip
    prefixlen: int
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("address", self.dev, self.ip.packed, self.prefixlen))


class Route(Value):
    """A route of ours. `via` is None for a link-scope route; `blackhole` has neither `via` nor `dev`.

    `priority` is the metric: 0 stands for the kernel's own default (0 for IPv4, 1024 for IPv6). `scope` is that of an
    IPv4 route with a gateway: 0 is global, and what is narrower than site (200) means the same to the kernel.
    """

    dst: Net
    via: Ip | None = None
    dev: str = ""
    onlink: bool = False
    blackhole: bool = False
    table: int = MAIN_TABLE
    priority: int = 0
    scope: int = 0
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dst = self.dst
        key = ("route", self.table, dst.network_address.packed, dst.prefixlen, self.priority)
        object.__setattr__(self, "key", key)


class Neighbour(Value):
    """A permanent neighbour entry: which MAC answers for `ip` on `dev`."""

    dev: str
    ip: Ip
    mac: Mac
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("neighbour", self.dev, self.ip.packed))


class FdbEntry(Value):
    """A permanent forwarding entry of a VTEP: behind which underlay address `mac` lives."""

    dev: str
    mac: Mac
    remote: Ip
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("fdb", self.dev, self.mac))


class Sysctl(Value):
    """A setting below /proc/sys: `name` in slashes (`net/ipv6/conf/flannel.1/accept_ra`)."""

    name: str
    value: str
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("sysctl", self.name))


class NodeLink(Value):
    """A link that the pods of this node share, made by our plugins: a bridge, or a VLAN's gateway. It is to be up."""

    name: str
    up: bool = True
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("nodelink", self.name))


class Chain(Value):
    """One chain of a rule set: its rules in the tool's own words, one per entry.

    `hook` is for nft: the text behind `chain NAME {` (`type nat hook postrouting priority srcnat; …`).
    For iptables `table` is `nat` or `filter`, and `jump_from` the built-in chain that leads here.
    """

    name: str
    rules: tuple[str, ...]
    table: str = ""
    hook: str = ""
    comment: str = ""
    jump_from: str = ""
    jump: str = ""


class RuleSet(Value):
    """All rules of ours of one kind (`nft` or `iptables`) and one family (4 or 6), replaced as a whole."""

    kind: str
    family: int
    chains: tuple[Chain, ...] = ()
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("ruleset", self.kind, self.family))


Object = VxlanLink | Address | Route | Neighbour | FdbEntry | Sysctl | NodeLink | RuleSet
KernelState = frozenset[Object]
Objects = Mapping[Key, Object]


def link_of(thing: Object) -> str | None:
    """Name the link that takes `thing` along when it goes; None for what stays or is a link itself."""
    match thing:
        case Address() | Neighbour() | FdbEntry():
            return thing.dev
        case Route():
            return thing.dev or None
        case Sysctl(name=name):
            return name.split("/")[3] if name.startswith(("net/ipv4/conf/", "net/ipv6/conf/")) else None
        case _:
            return None
