"""Troubles of links: the uplink, the device of the back end, the pods' bridge, and what is in their way."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final

import pytest

from tests.campaign.brokenworld import Trouble, World
from tests.support.netns import Netns
from tests.support.squatter import taking
from tests.support.weftd import mac, public_v4, public_v6

# The kinds of worlds by their back ends.
VXLAN: Final = frozenset(("etcd", "kubernetes", "vxlan"))
HOST_GW: Final = frozenset(("etcd", "kubernetes", "host-gw"))
UDP: Final = frozenset(("etcd", "udp"))
# What the kernel takes with the link or its addresses, and an operator gives back. `{dev}` is the uplink's name.
_ADDRESSED: Final = (
    f"ip address replace {public_v4(1)}/24 dev {{dev}} && ip address replace {public_v6(1)}/64 dev {{dev}} nodad"
    f" && ip route replace default via {public_v4(254)} && ip -6 route replace default via {public_v6(254)}"
    f" && ip neighbour replace {public_v4(254)} lladdr {mac(254)} dev {{dev}} nud permanent"
)


_NO_NEIGHBOURS: Final = (
    "ip neigh flush nud permanent dev flannel.1;"
    " bridge fdb show dev flannel.1 | while read mac rest; do bridge fdb del $mac dev flannel.1; done"
)


def addressed(world: World, dev: str = "eth0") -> None:
    world.one.netns.run(_ADDRESSED.format(dev=dev))


def once(command: str) -> Callable[[World], AbstractContextManager[None]]:
    """A trouble that weftd mends by itself: a command on the node."""

    @contextmanager
    def lasts(world: World) -> Iterator[None]:
        world.one.netns.run(command)
        yield

    return lasts


@contextmanager
def renamed(world: World) -> Iterator[None]:
    world.one.netns.run("ip link set eth0 down; ip link set eth0 name lan7; ip link set lan7 up")
    addressed(world, "lan7")
    try:
        yield
    finally:
        world.one.netns.run("ip link set lan7 down; ip link set lan7 name eth0; ip link set eth0 up")
        addressed(world)


@contextmanager
def down(world: World) -> Iterator[None]:
    world.one.ip("link set eth0 down")
    try:
        yield
    finally:
        world.one.ip("link set eth0 up")
        addressed(world)


@contextmanager
def moved(world: World) -> Iterator[None]:
    """Into another namespace and back: the kernel takes its addresses and routes."""
    with Netns() as away:
        world.one.ip(f"link set eth0 netns {away.path}")
        try:
            yield
        finally:
            away.run(f"ip link set eth0 netns {world.one.netns.path}")
            world.one.ip("link set eth0 up")
            addressed(world)


@contextmanager
def replaced(world: World) -> Iterator[None]:
    """The uplink goes, and another one of the same name comes."""
    world.one.unplug()
    try:
        yield
    finally:
        world.one.replug()


@contextmanager
def foreign_device(world: World) -> Iterator[None]:
    """Another program's device takes the VNI and the port."""
    world.one.signal(signal.SIGSTOP)
    world.one.ip("link del flannel.1")
    world.one.ip(f"link add other type vxlan id 1 dstport 8472 local {world.one.public_v4} dev eth0 nolearning")
    world.one.signal(signal.SIGCONT)
    try:
        yield
    finally:
        world.one.ip("link del other")


@contextmanager
def foreign_name(world: World) -> Iterator[None]:
    """Another program's device has a name of ours that this back end does not use."""
    world.one.ip("link add flannel.1 type bridge")
    try:
        yield
    finally:
        world.one.ip("link del flannel.1")


@contextmanager
def vtep_moved(world: World) -> Iterator[None]:
    with Netns() as away:
        world.one.ip(f"link set flannel.1 netns {away.path}")
        yield


@contextmanager
def stolen_port(world: World) -> Iterator[None]:
    """While weftd is away its device goes, and a container's root without any right takes the port with all to come."""
    device, port = {"vxlan": ("flannel.1", 8472), "udp": ("flannel0", 8285)}[world.kind.backend]
    world.one.stop()
    world.one.ip(f"link del {device}")
    with taking(world.one.netns, port):
        world.spawn()
        yield


@contextmanager
def thieves(world: World) -> Iterator[None]:
    """All ports of ours are asked for while we have them, in the ways in which sockets share one."""
    ports = {"vxlan": 8472, "udp": 8285}
    for option in (socket.SO_REUSEPORT, socket.SO_REUSEADDR):
        for port in filter(None, (ports.get(world.kind.backend),)):
            with pytest.raises(OSError, match="Address already in use"):
                world.one.netns.call(partial(_bound, socket.SOCK_DGRAM, port, option))
        with pytest.raises(OSError, match="Address already in use"):
            world.one.netns.call(partial(_bound, socket.SOCK_STREAM, world.one.health_port, option))
    yield


def _bound(kind: socket.SocketKind, port: int, option: int) -> None:
    with socket.socket(socket.AF_INET, kind) as thief:
        thief.setsockopt(socket.SOL_SOCKET, option, 1)
        thief.bind(("0.0.0.0", port))  # noqa: S104 - as thieves do
        if kind == socket.SOCK_STREAM:
            thief.listen()


@contextmanager
def many_names(world: World) -> Iterator[None]:
    """A link whose description is far larger than a page."""
    world.one.ip("link add crowd type bridge")
    words = [f"property add dev crowd altname {'n' * 100}{number}" for number in range(400)]
    for start in range(0, len(words), 50):
        world.one.netns.run(
            ["ip", "-batch", "-"], input="\n".join(f"link {word}" for word in words[start : start + 50])
        )
    try:
        yield
    finally:
        world.one.ip("link del crowd")


TROUBLES: Final = {
    "uplink renamed": Trouble(lasts=renamed),
    "uplink down": Trouble(lasts=down, says="IFACE-00", flows=False),
    "uplink in another namespace": Trouble(lasts=moved, says="IFACE-00", flows=False),
    "uplink deleted, and made anew": Trouble(lasts=replaced, says="IFACE-00", flows=False),
    "uplink's addresses flushed and given again": Trouble(
        lasts=once("ip address flush dev eth0; " + _ADDRESSED.format(dev="eth0"))
    ),
    "foreign device with our VNI and port": Trouble(lasts=foreign_device, flows=False, on=VXLAN),
    "foreign device with a VTEP's name": Trouble(lasts=foreign_name, on=HOST_GW),
    "VTEP in another namespace": Trouble(lasts=vtep_moved, flows=False, on=VXLAN),
    "VTEPs deleted": Trouble(lasts=once("ip link del flannel.1; ip link del flannel-v6.1"), on=VXLAN),
    "VTEP down": Trouble(lasts=once("ip link set flannel.1 down"), on=VXLAN),
    "VTEP's MAC changed": Trouble(lasts=once("ip link set flannel.1 address 02:99:99:99:99:99"), on=VXLAN),
    "relay's device deleted": Trouble(lasts=once("ip link del flannel0"), on=UDP),
    "port taken by a stranger": Trouble(
        lasts=stolen_port, says=r"VTEP-00.*UDP port \d+ is held by process \d+", flows=False, on=VXLAN | UDP
    ),
    "ports asked for by strangers": Trouble(lasts=thieves),
    "routes flushed": Trouble(lasts=once("ip route flush proto 165; ip -6 route flush proto 165")),
    "neighbours and FDB flushed": Trouble(lasts=once(_NO_NEIGHBOURS), on=VXLAN),
    "bridge of the pods down": Trouble(lasts=once("ip link set cni0 down"), flows=False),
    "a link with hundreds of names": Trouble(lasts=many_names),
}
