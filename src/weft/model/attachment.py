"""One pod's attachment to a network: what was asked for and what came of it, whatever JSON says it (cni.md §1.14).

Values alone. JSON of every version is read and written in `wire`, what to make of them is decided in `desired`.
"""

from ipaddress import IPv4Interface, IPv6Interface
from typing import Final

from weft.model.net import Ip, Net
from weft.model.value import Value, field

# An address with the length of its network's prefix; the host bits stay.
Cidr = IPv4Interface | IPv6Interface

DEFAULT_BRIDGE: Final = "cni0"


class Attachment(Value):
    """A container's interface in a network: what all requests about it have in common (cni.md §1.1)."""

    network: str
    container_id: str
    ifname: str


class Interface(Value):
    """An interface that the attachment consists of; `sandbox` is CNI_NETNS, empty on the host's side."""

    name: str
    mac: str = ""
    mtu: int = 0
    sandbox: str = ""
    socket_path: str = ""
    pci_id: str = ""


class IpConfig(Value):
    """An address; `interface` is an index into the result's interfaces and may be missing or wrong."""

    address: Cidr
    gateway: Ip | None = None
    interface: int | None = None


class RouteConfig(Value):
    """A route in the container. `table` and `scope` have a meaning as 0, `mtu`, `advmss` and `priority` have not."""

    dst: Cidr
    gw: Ip | None = None
    mtu: int = 0
    advmss: int = 0
    priority: int = 0
    table: int | None = None
    scope: int | None = None


class Dns(Value):
    """The container's resolver settings."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def is_set(self) -> bool:
        return bool(self.nameservers or self.domain or self.search or self.options)


class Result(Value):
    """What an ADD has made."""

    interfaces: tuple[Interface, ...] = ()
    ips: tuple[IpConfig, ...] = ()
    routes: tuple[RouteConfig, ...] = ()
    dns: Dns = field(default_factory=Dns)


class Range(Value):
    """Addresses `first` to `last`, both included, of one subnet. `gateway` is never given to a container."""

    subnet: Net
    first: Ip
    last: Ip
    gateway: Ip

    def __contains__(self, ip: Ip) -> bool:
        return ip.version == self.first.version and int(self.first) <= int(ip) <= int(self.last)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def overlaps(self, other: "Range") -> bool:
        """Tell whether the two share an address; families never do."""
        return other.first in self or self.first in other


RangeSet = tuple[Range, ...]


class IpamConf(Value):
    """What host-local is asked: one address from each of `sets`, `requested` ones if given."""

    sets: tuple[RangeSet, ...]
    routes: tuple[RouteConfig, ...]
    data_dir: str
    resolv_conf: str
    requested: tuple[Ip, ...]


class BridgeConf(Value):
    """What bridge is asked. `mtu` 0 is the kernel's default; `mac` and `ipam_type` may be empty.

    `masq_kind` is `iptables`, `nftables` or empty: whichever works. `vlan` is the port's own VLAN (0: none), `trunk`
    those that it carries tagged; `vlan_filtering` is set when either was asked for. `container_down` leaves the
    container's end down.
    """

    bridge: str = DEFAULT_BRIDGE
    is_gateway: bool = False
    is_default_gateway: bool = False
    force_address: bool = False
    ip_masq: bool = False
    masq_kind: str = ""
    mtu: int = 0
    hairpin: bool = False
    promisc: bool = False
    vlan: int = 0
    trunk: tuple[int, ...] = ()
    vlan_filtering: bool = False
    keep_default_vlan: bool = False
    spoof_check: bool = False
    detect_duplicates: bool = False
    container_down: bool = False
    isolated: bool = False
    ipam_type: str = ""
    mac: str = ""
    dns: Dns = field(default_factory=Dns)


class PtpConf(Value):
    """What ptp is asked: a subset of bridge's keys, with the same meaning."""

    ip_masq: bool = False
    masq_kind: str = ""
    mtu: int = 0
    ipam_type: str = ""
    dns: Dns = field(default_factory=Dns)
