"""Troubles of links: the uplink, the device of the back end, the pods' bridge, and what is in their way."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from tests.campaign.brokenworld import Trouble, World
from tests.support.netns import Netns
from tests.support.weftd import mac, public_v4, public_v6

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


def _addressed(world: World, dev: str = "eth0") -> None:
    world.one.netns.run(_ADDRESSED.format(dev=dev))


def once(command: str, *, only: str = "") -> Callable[[World], AbstractContextManager[None]]:
    """A trouble that weftd mends by itself: a command on the node."""

    @contextmanager
    def lasts(world: World) -> Iterator[None]:
        if world.backend == (only or world.backend):
            world.one.netns.run(command)
        yield

    return lasts


@contextmanager
def renamed(world: World) -> Iterator[None]:
    world.one.netns.run("ip link set eth0 down; ip link set eth0 name lan7; ip link set lan7 up")
    _addressed(world, "lan7")
    try:
        yield
    finally:
        world.one.netns.run("ip link set lan7 down; ip link set lan7 name eth0; ip link set eth0 up")
        _addressed(world)


@contextmanager
def down(world: World) -> Iterator[None]:
    world.one.ip("link set eth0 down")
    try:
        yield
    finally:
        world.one.ip("link set eth0 up")
        _addressed(world)


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
            _addressed(world)


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
    """Another program's device takes the VNI and the port, or, without a VTEP, at least the name."""
    if world.backend != "vxlan":
        world.one.ip("link add flannel.1 type bridge")
        try:
            yield
        finally:
            world.one.ip("link del flannel.1")
        return
    world.one.signal(signal.SIGSTOP)
    world.one.ip("link del flannel.1")
    world.one.ip(f"link add other type vxlan id 1 dstport 8472 local {world.one.public_v4} dev eth0 nolearning")
    world.one.signal(signal.SIGCONT)
    try:
        yield
    finally:
        world.one.ip("link del other")


@contextmanager
def vtep_moved(world: World) -> Iterator[None]:
    with Netns() as away:
        if world.backend == "vxlan":
            world.one.ip(f"link set flannel.1 netns {away.path}")
        yield


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
    "foreign device with our VNI and port": Trouble(lasts=foreign_device, flows=False),
    "VTEP in another namespace": Trouble(lasts=vtep_moved, flows=False),
    "VTEPs deleted": Trouble(lasts=once("ip link del flannel.1; ip link del flannel-v6.1", only="vxlan")),
    "VTEP down": Trouble(lasts=once("ip link set flannel.1 down", only="vxlan")),
    "VTEP's MAC changed": Trouble(lasts=once("ip link set flannel.1 address 02:99:99:99:99:99", only="vxlan")),
    "routes flushed": Trouble(lasts=once("ip route flush proto 165; ip -6 route flush proto 165")),
    "neighbours and FDB flushed": Trouble(lasts=once(_NO_NEIGHBOURS, only="vxlan")),
    "bridge of the pods down": Trouble(lasts=once("ip link set cni0 down"), flows=False),
    "a link with hundreds of names": Trouble(lasts=many_names),
}
