"""A pod's attachment to a network: the request and its result (cni.md §1.14), without JSON (`wire.cniresult`)."""

from ipaddress import IPv4Interface, IPv6Interface
from typing import Annotated, Final

from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value, field

# An address with the length of its network's prefix; the host bits stay.
Cidr = IPv4Interface | IPv6Interface


class Attachment(Value):
    """A container's interface in a network (cni.md §1.1)."""

    network: str
    container_id: str
    ifname: str


class Interface(Value):
    """`sandbox` is CNI_NETNS, empty on the host's side."""

    name: Annotated[str, Key("name")]
    mac: Annotated[str, Key("mac")] = ""
    mtu: Annotated[int, Key("mtu")] = 0
    sandbox: Annotated[str, Key("sandbox")] = ""
    socket_path: Annotated[str, Key("socketPath")] = ""
    pci_id: Annotated[str, Key("pciID")] = ""


class IpConfig(Value):
    """`interface` is an index into the result's interfaces and may be missing or wrong."""

    interface: Annotated[int | None, Key("interface")] = None
    address: Annotated[Cidr, Key("address")]
    gateway: Annotated[Ip | None, Key("gateway")] = None


# What the kernel has room for: __u32, and rtm_scope, a byte (rtnetlink.h).
_MAX_NUMBER: Final = (1 << 32) - 1
_MAX_SCOPE: Final = 255


class RouteConfig(Value):
    """A route in the container. In `table` and `scope` 0 has a meaning, in the other numbers it means "unset"."""

    dst: Annotated[Cidr, Key("dst", "Where it leads to, as `0.0.0.0/0`.")]
    gw: Annotated[Ip | None, Key("gw", "Its gateway.", default="the address' gateway")] = None
    mtu: Annotated[int, Key("mtu", "The path's MTU.", default="the interface's", least=0, most=_MAX_NUMBER)] = 0
    advmss: Annotated[
        int, Key("advmss", "The MSS that is announced to TCP peers.", default="by the MTU", least=0, most=_MAX_NUMBER)
    ] = 0
    priority: Annotated[int, Key("priority", "Its metric.", default="the kernel's", least=0, most=_MAX_NUMBER)] = 0
    table: Annotated[int | None, Key("table", "Its table.", default="main", least=0, most=_MAX_NUMBER)] = None
    scope: Annotated[int | None, Key("scope", "Its scope.", default="the kernel's", least=0, most=_MAX_SCOPE)] = None


class Dns(Value):
    nameservers: Annotated[tuple[str, ...], Key("nameservers", "Addresses of name servers.")] = ()
    domain: Annotated[str, Key("domain", "The local domain.")] = ""
    search: Annotated[tuple[str, ...], Key("search", "Domains in which short names are looked up.")] = ()
    options: Annotated[tuple[str, ...], Key("options", "Options, as in resolv.conf.")] = ()


class Result(Value):
    interfaces: Annotated[tuple[Interface, ...], Key("interfaces")] = ()
    ips: Annotated[tuple[IpConfig, ...], Key("ips")] = ()
    routes: Annotated[tuple[RouteConfig, ...], Key("routes")] = ()
    dns: Annotated[Dns, Key("dns")] = field(default_factory=Dns)
