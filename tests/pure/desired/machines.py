"""Machines with links, addresses and routes, and which uplink is chosen there."""

from ipaddress import ip_address, ip_network

from weft.config.flags import parse_flags
from weft.desired.facts import select
from weft.desired.inputs import Facts
from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import AddressInfo, LinkInfo, RouteInfo


def link(index: int, name: str, **more) -> LinkInfo:
    return LinkInfo(**{"index": index, "name": name, "mtu": 1500, "up": True, **more})


def address(index: int, text: str, **more) -> AddressInfo:
    ip, _, length = text.partition("/")
    parsed = ip_address(ip)
    return AddressInfo(index=index, ip=parsed, prefixlen=int(length or parsed.max_prefixlen), **more)


def route(dst: str, **more) -> RouteInfo:
    return RouteInfo(dst=ip_network({"default": "0.0.0.0/0", "default6": "::/0"}.get(dst, dst)), **more)


def gateway(text: str) -> dict:
    return {"via": ip_address(text)}


# A node as people have them: a NAT interface with the default route, the one that nodes share, docker's, a VPN.
NODE = Snapshot(
    links=(
        link(1, "lo", loopback=True, mtu=65536),
        link(2, "eth0"),
        link(3, "eth1", mtu=9000),
        link(4, "docker0", kind="bridge"),
        link(5, "flannel.1", kind="vxlan", alias="weft:vtep"),
    ),
    addresses=(
        address(1, "127.0.0.1/8"),
        address(2, "10.0.2.15/24"),
        address(2, "fd00:2::15/64"),
        address(3, "192.168.56.11/24"),
        address(3, "fd00:3::11/64"),
        address(4, "172.17.0.1/16"),
        address(5, "10.244.1.0/32"),
    ),
    routes=(
        route("default", index=2, **gateway("10.0.2.2")),
        route("10.0.2.0/24", index=2, scope=253),
        route("192.168.56.0/24", index=3, scope=253),
        route("172.17.0.0/16", index=4, scope=253),
        route("default6", index=2, priority=1024, **gateway("fe80::1")),
        route("fd00:3::/64", index=3, priority=256),
    ),
)


def chosen(*flags: str, snapshot: Snapshot = NODE, v4=True, v6=False, reach=None) -> Facts:
    return select(parse_flags(flags, {}), snapshot, v4=v4, v6=v6, reach=reach)[0]
