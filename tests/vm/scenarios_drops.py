"""What the kernel says of packets that it drops, in the virtual machine, whose kernel has drop_monitor.

The kernel tells it to its first network namespace alone, so the machine itself is node1.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.campaign.obstacles.world import World, pod_address
from tests.support import namespaces
from tests.support.netns import Netns
from weft.diag.drops.packets import found_in
from weft.kernel.dropmonitor import Monitor
from weft.model.kernel.dropped import Drop

RULE = f"""nft 'add table ip x; add chain ip x c {{ type filter hook forward priority 0; }};
add rule ip x c ip daddr {pod_address("pod2-1", 4)} drop'"""


def is_echo(drop: Drop) -> bool:
    """A request of ping by IPv4: its data are bytes that count up."""
    return drop.protocol == 0x0800 and bytes(range(0x10, 0x30)) in drop.frame


def check_the_kernel_says_why_and_where_it_drops_a_packet() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        world = World(Path(folder), "vxlan", stack, home=lambda: Netns(namespaces.open_own()))
        world.run("node1", RULE)
        with Monitor() as monitor:
            assert not world.reaches("pod1-1", "pod2-1", 4)
            heard = list(monitor.take())
        world.run("node1", "nft delete table ip x")
        found = {(each.reason, each.function) for each in heard if is_echo(each)}
        assert {reason for reason, _ in found} == {"NETFILTER_DROP"}, heard
        assert {function for _, function in found} <= {"nf_hook_slow", "nft_do_chain"}, found  # by the kernel's version
        assert world.reaches("pod1-1", "pod2-1", 4, seconds=5)
        with Monitor() as monitor:
            assert world.reaches("pod1-1", "pod2-1", 4, seconds=5)
            heard = [each for each in monitor.take() if is_echo(each) and found_in(each, [])]
        assert not heard, heard
