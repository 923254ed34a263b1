"""What the kernel says of packets that it drops, in the virtual machine, whose kernel has drop_monitor.

The kernel tells it to its first network namespace alone, so the machine itself is node1.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from tests.campaign.obstacles.world import World, pod_address
from tests.support import namespaces
from tests.support.netns import Netns
from weft.diag.drops.packets import found_in
from weft.kernel import dropmonitor, genetlink
from weft.kernel.dropmonitor import Monitor
from weft.kernel.ending import spawn
from weft.kernel.namespaces import processes
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket
from weft.model.kernel.dropped import Drop

RULE = f"""nft 'add table ip x; add chain ip x c {{ type filter hook forward priority 0; }};
add rule ip x c ip daddr {pod_address("pod2-1", 4)} drop'"""
CONFIG, START, STOP = 2, 3, 4
SECONDS: Final = 120
HOLD: Final = """import time
from weft.kernel.dropmonitor import Monitor
held = Monitor()
print(flush=True)
time.sleep(1e6)"""


def is_echo(drop: Drop) -> bool:
    """A request of ping by IPv4: its data are bytes that count up."""
    return drop.protocol == 0x0800 and bytes(range(0x10, 0x30)) in drop.frame


def told(command: int) -> bool:
    """What another program tells drop_monitor; False if that refuses because of its state."""
    with closing(NetlinkSocket.open(genetlink.NETLINK_GENERIC)) as asking:
        family = genetlink.family(asking, "NET_DM")
        assert family is not None
        try:
            asking.request(Message(family, 0, genetlink.HEADER.pack(command, 2)))
        except NetlinkError:
            return False
        return True


def runs() -> bool:
    """It is configured only while it does not run."""
    return not told(CONFIG)


def guards() -> set[int]:
    lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in processes(Path("/proc"))}
    return {pid for pid, path in lines.items() if path.exists() and b"weft.kernel.dropmonitor\0" in path.read_bytes()}


def awaited(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def check_the_kernel_says_why_and_where_it_drops_a_packet() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        world = World(Path(folder), "vxlan", stack, home=lambda: Netns(namespaces.open_own()))
        world.run("node1", RULE)
        with closing(Monitor()) as monitor:
            assert not world.reaches("pod1-1", "pod2-1", 4)
            heard = list(monitor.take())
        world.run("node1", "nft delete table ip x")
        found = {(each.reason, each.function) for each in heard if is_echo(each)}
        assert {reason for reason, _ in found} == {"NETFILTER_DROP"}, heard
        assert {function for _, function in found} <= {"nf_hook_slow", "nft_do_chain"}, found  # by the kernel's version
        assert world.reaches("pod1-1", "pod2-1", 4, seconds=5)
        with closing(Monitor()) as monitor:
            assert world.reaches("pod1-1", "pod2-1", 4, seconds=5)
            heard = [each for each in monitor.take() if is_echo(each) and found_in(each, [])]
        assert not heard, heard


def check_a_trace_says_what_the_kernel_says_where_nothing_else_shows_the_cause() -> None:
    """Packets whose last hop is the node end there, and weft reads no setting that says so."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        world = World(Path(folder), "vxlan", stack, home=lambda: Netns(namespaces.open_own()))
        world.run("pod1-1", "sysctl -qw net.ipv4.ip_default_ttl=1")
        verdict = world.trace("pod1-1", "pod2-1", 4).verdict
        assert verdict.startswith("LOST-001 "), verdict
        assert verdict.endswith("; dropped: IP_INHDR in ip_forward, as the kernel tells"), verdict
        assert not runs()


def check_the_monitor_ends_with_the_program_also_when_that_is_killed() -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            assert program.stdout.readline()
            assert runs()
            program.send_signal(ending)
        awaited(f"the monitor goes on after {ending.name}", lambda: not runs())
    awaited("a guard goes on", lambda: not guards())


def check_a_guard_that_is_killed_is_replaced() -> None:
    with closing(Monitor()) as monitor:
        [first] = guards()
        os.kill(first, signal.SIGKILL)
        awaited("the guard goes on", lambda: b"dropmonitor" not in Path(f"/proc/{first}/cmdline").read_bytes())
        monitor.renew()
        [second] = guards()
        assert second != first
        assert runs()
        os.kill(second, signal.SIGKILL)
        awaited("the guard goes on", lambda: b"dropmonitor" not in Path(f"/proc/{second}/cmdline").read_bytes())
    assert not runs()


def check_a_monitor_of_another_program_is_left_alone() -> None:
    assert told(START)
    with mock.patch.object(dropmonitor, "_PACKETS", 0), closing(Monitor()):  # the mode that it has
        assert not guards()
    assert runs()
    with pytest.raises(OSError, match="has drop_monitor count packets"):
        Monitor()
    assert told(STOP)

    def late(command: list[str], inherited: Sequence[int]) -> int:
        assert told(START)  # between our CONFIG and our START
        return spawn(command, inherited)

    with mock.patch.object(dropmonitor, "spawn", late), closing(Monitor()):
        assert not guards()
    assert runs()
    assert told(STOP)


def check_a_monitor_that_another_program_stops_is_started_again() -> None:
    with closing(Monitor()) as monitor:
        assert told(STOP)
        assert not runs()
        monitor.renew()
        assert runs()
        assert len(guards()) == 1
    assert not runs()
