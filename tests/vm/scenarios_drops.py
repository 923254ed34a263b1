"""What the kernel says of packets that it drops, in the virtual machine, whose kernel has drop_monitor.

The kernel tells it to its first network namespace alone, so the machine itself is node1.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.campaign.obstacles.world import World, pod_address
from tests.support import namespaces
from tests.support.netns import Netns
from tests.support.weftd import eventually
from weft.kernel.dropmonitor import Monitor
from weft.model.kernel.dropped import Drop

SECONDS = 60.0  # all is emulated
POD = pod_address("pod2-1", 4)
TO_POD = f"ip daddr {POD} drop"
# What has node1 drop echo requests of pod1-1 to pod2-1, what takes it back, and the kernel's words.
DROPS = {
    "a rule": (
        f"nft 'add table ip x; add chain ip x c {{ type filter hook forward priority 0; }}; add rule ip x c {TO_POD}'",
        "nft delete table ip x",
        ("NETFILTER_DROP", "nf_hook_slow"),
    ),
    "a route": (
        f"ip route add blackhole {POD}",
        f"ip route delete blackhole {POD}",
        ("IP_INNOROUTES", "ip_route_input_slow"),
    ),
}


@contextmanager
def here() -> Iterator[World]:
    """A world whose node1 is this machine."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield World(Path(folder), "vxlan", stack, home=lambda: Netns(namespaces.open_own()))


def heard(monitor: Monitor, wanted: Callable[[Drop], bool]) -> list[Drop]:
    found = list[Drop]()

    def some() -> bool:
        found.extend(filter(wanted, monitor.take()))
        return bool(found)

    eventually(some, seconds=SECONDS)
    return found


def of_echo(drop: Drop) -> bool:
    """An echo request of ping, by IPv4."""
    return drop.protocol == 0x0800 and bytes(range(0x10, 0x30)) in drop.frame


def check_the_kernel_says_why_and_where_it_drops_a_packet() -> None:
    with here() as world:
        for name, (command, undo, said) in DROPS.items():
            with Monitor() as monitor:
                world.run("node1", command)
                assert not world.reaches("pod1-1", "pod2-1", 4)
                found = list(monitor.take())
                print(name, said, found, file=sys.stderr)
                world.run("node1", undo)
                assert world.reaches("pod1-1", "pod2-1", 4, seconds=5)
            print("healthy", list(Monitor().take()))
