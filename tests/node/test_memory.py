"""What a store holds that no network needs costs a node no memory, neither while it is there nor afterwards."""

import signal
from pathlib import Path

from tests.support.weftd import Cluster, Daemon, eventually

VALUES = 100
LONG = "x" * 1_000_000


def resident(node: Daemon, what: str) -> int:
    """Bytes of memory: `VmRSS` now, `VmHWM` at most since the last `begin`."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) << 10


def begin(node: Daemon) -> None:
    """Forget how much memory there was at most."""
    Path(f"/proc/{node.pid}/clear_refs").write_text("5")


def fill(cluster: Cluster) -> None:
    """Put values of 1 MB behind a page's worth of small ones, one at a time."""
    for number in range(VALUES):
        cluster.etcd.fill([(cluster.key(f"10.5.{number}.{number // 2 * 2}-31"), LONG)])


def test_a_hundred_values_of_a_megabyte_cost_no_memory_before_during_or_after(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    cluster.etcd.fill((cluster.key(f"10.{4 - number // 200}.{number % 200}.0-24"), "{") for number in range(600))
    cluster.peer(250)
    node.sees("ip route", "10.5.250.0/24", seconds=60)
    normal = resident(node, "VmRSS")

    begin(node)
    node.signal(signal.SIGSTOP)  # what it does not take in time, etcd sends in large answers afterwards
    fill(cluster)
    cluster.peer(251)
    node.signal(signal.SIGCONT)
    node.sees("ip route", "10.5.251.0/24", seconds=60)
    watched = resident(node, "VmHWM")

    node.stop()
    node.start()
    listed = resident(node, "VmHWM")

    cluster.etcd.delete(cluster.key("10.5."), "--prefix")
    cluster.peer(252)
    node.sees("ip route", "10.5.252.0/24", seconds=60)
    eventually(lambda: resident(node, "VmRSS") < 1.3 * normal)
    after = resident(node, "VmRSS")

    megabytes = {"normal": normal, "watched": watched, "listed": listed, "after": after}
    print({name: size >> 20 for name, size in megabytes.items()})
    assert max(watched, listed) < 2 * normal
