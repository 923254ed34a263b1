"""Devices as objects: those of back ends, and those of our plugins that pods share.

A kind of device is a class beside its back end: the kernel's name of the kind, its settings as fields, and a table of
how the kernel encodes them. `kernel.rtnetlink` makes, reads and repairs every kind by that table.
"""

from typing import Any, Final, Literal

from weft.model.kernel.objects import Object, Ownership
from weft.model.net import Mac
from weft.model.value import Value, fields_of, put_in

_LEAST_MTU_V6: Final = 1280  # RFC 8200 §5

Form = Literal["u8", "u16", "u32", "be16", "ip4", "ip6", "flag"]


class Attribute(Value, kw_only=False):
    """A field and its number below IFLA_INFO_DATA. A field with two forms has two entries."""

    name: str
    number: int
    form: Form  # a number, in network order (`be16`), an address, or a flag by presence
    live: bool = False  # it can change on an existing device


class Link(Object):
    """A device of this node's own, up and with our alias; of this class itself, one of a foreign kind."""

    name: str
    mtu: int
    mac: Mac | None = None  # None unless `has_mac`
    parent: int = 0  # the index of the link it sends through, 0 for none
    parent_name: str = ""

    kind = ""  # IFLA_INFO_KIND, the driver's name
    has_mac = False  # whether it has one, and we choose it
    several = False  # whether the kernel takes any number that differ in their names alone
    attributes = tuple[Attribute, ...]()
    foreign = frozenset[int]()  # attributes below IFLA_INFO_DATA that no device of ours has, or has with the value 0

    rank = 0
    code_if_changed = "VTEP-003"
    code_if_gone = "VTEP-004"
    unwanted = "the configuration's Backend and our lease do not ask for it"
    vital = True
    patience = 4.0  # peers wait for it

    def __post_init__(self) -> None:
        put_in(self, "key", ("link", self.name))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in self.attributes}
        words = (f" {name} {value}" for name, value in shown.items() if name != "parent")
        dev = f" dev {self.parent_name or self.parent}" if self.parent else ""
        mac = f" address {self.mac!s}" if self.mac is not None else ""
        return f"link {self.name} {self.kind or 'of another kind'}{''.join(words)}{dev}{mac} mtu {self.mtu}"

    def _compared(self) -> dict[str, Any]:
        return {**fields_of(self), "parent_name": ""}

    def identity(self) -> tuple[Any, ...]:
        """The settings that the kernel cannot change on an existing device."""
        return tuple(getattr(self, each.name) for each in self.attributes if not each.live)

    def changes_in_place(self, have: Object) -> bool:
        """Tell whether `have` can become this without being deleted."""
        return type(have) is type(self) and have.identity() == self.identity()

    def excludes(self, other: "Link") -> bool:
        """Tell whether the kernel refuses this device while `other`, of the same kind, exists."""
        return not self.several and other.identity() == self.identity()

    def took_others_along(self) -> bool:
        """Below this MTU IPv6 leaves the link and takes its settings with it."""
        return 0 < self.mtu < _LEAST_MTU_V6

    def is_within(self, ownership: Ownership) -> bool:
        return self.name in ownership.devices


class Tun(Link):
    """A device whose packets a process reads and writes; it outlives the process (linux/if_link.h, IFLA_TUN_*)."""

    layer: int = 1  # IFF_TUN: of IP packets, without Ethernet
    persists: int = 1
    queues: int = 0  # whether there may be several
    vnet_header: int = 0

    kind = "tun"
    several = True
    advice = "See `modprobe tun` and whether /dev/net/tun is there; a pod needs to be privileged for it"
    attributes = tuple[Attribute, ...](
        (Attribute("layer", 3, "u8"), Attribute("persists", 6, "u8"), Attribute("queues", 7, "u8"))
    )

    def __str__(self) -> str:
        return f"link {self.name} tun mtu {self.mtu}"


class NodeLink(Object):
    """A link of our plugins that the node's pods share: a bridge, or a VLAN's gateway."""

    name: str
    up: bool = True

    rank = 0
    code_if_changed = "BRIDGE-006"
    unwanted = Link.unwanted

    def __post_init__(self) -> None:
        put_in(self, "key", ("nodelink", self.name))

    def __str__(self) -> str:
        return f"link {self.name} {'up' if self.up else 'down'}"

    def is_within(self, ownership: Ownership) -> bool:
        return self.name in ownership.node_links

    def reason(self) -> str:
        return "pods here hang on it"
