"""The cluster's network configuration, `net-conf.json` or the store's `config` key (flannel.md §2)."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Generic, TypeVar

NetT = TypeVar("NetT", IPv4Network, IPv6Network)
IpT = TypeVar("IpT", IPv4Address, IPv6Address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Generic[NetT, IpT]):
    """The cluster network of one family and how nodes' subnets are cut from it.

    `first` and `last` are the lowest and highest subnet base that may be allocated, both inclusive.
    """

    network: NetT
    subnet_len: int
    first: IpT
    last: IpT


@dataclass(frozen=True, slots=True, kw_only=True)
class VxlanOptions:
    """`Backend` of type vxlan (flannel.md §6.2). `port` 0 is the kernel's own (8472), `mtu` 0 the uplink's."""

    vni: int = 1
    port: int = 0
    mtu: int = 0
    gbp: bool = False
    learning: bool = False
    direct_routing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGwOptions:
    """`Backend` of type host-gw has no options (flannel.md §6.3)."""


BackendOptions = VxlanOptions | HostGwOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NetConf:
    """A checked network configuration. A family that is off is None."""

    v4: Pool[IPv4Network, IPv4Address] | None
    v6: Pool[IPv6Network, IPv6Address] | None
    nftables: bool
    backend: str
    options: BackendOptions
    warnings: tuple[str, ...] = ()
