"""Five thousand peers that come and go all the time: nothing grows, nothing is lost.

Ten seconds in the ordinary run, an hour under `make soak`.
"""

import random
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from statistics import quantiles
from typing import Final

import pytest

from tests.support.weftd import Cluster, Daemon, eventually, peer_value

PEERS: Final = 5000
RATE: Final = 50  # puts and deletes a second
COMPACT_SECONDS: Final = 300  # as often as Kubernetes does
NETWORK: Final = {"Network": "10.0.0.0/8", "SubnetMin": "10.200.0.0", "SubnetMax": "10.200.255.0"}


def subnet(number: int) -> str:
    return f"10.{number // 256}.{number % 256}.0"


def says(number: int) -> str:
    mac = f"02:bb:00:00:{number >> 8:02x}:{number & 255:02x}"
    return peer_value(0, data={"VNI": 1, "VtepMAC": mac}, public=str(IPv4Address("192.168.0.0") + number))


class Churn:
    """The peers of a node, each of which is in the store or not; `times` are seconds from a put to its route."""

    def __init__(self, cluster: Cluster, node: Daemon, seed: int) -> None:
        self.cluster, self.node = cluster, node
        self.here = set(range(PEERS))
        self.times: list[float] = []
        self._chance = random.Random(seed)
        self._vtep = node.netns.rtnl.link("flannel.1")

    def run(self, seconds: float) -> None:
        """Put and delete at the rate, and measure a put in fifty."""
        start = time.monotonic()
        compacted = start
        for step, due in enumerate(self._ticks(start, seconds)):
            time.sleep(max(0.0, due - time.monotonic()))
            if due - compacted > COMPACT_SECONDS:
                compacted = due
                self.cluster.etcd.compact()
            number = self._chance.randrange(PEERS)
            if number in self.here:
                self.here.remove(number)
                self.cluster.etcd.drop([self._key(number)])
            else:
                self._put(number)
            if step % RATE == 0 and (gone := sorted(set(range(PEERS)) - self.here)):
                number = self._chance.choice(gone)
                asked = time.monotonic()
                self._put(number)
                eventually(lambda number=number: self._served(number), seconds=30)
                self.times.append(time.monotonic() - asked)

    def settled(self) -> None:
        """Wait until the kernel has the routes of those that are in the store, and no others."""
        wanted = {f"{subnet(number)}/24" for number in self.here}
        eventually(lambda: self._routes() == wanted, seconds=30)

    def _ticks(self, start: float, seconds: float) -> Iterator[float]:
        return (start + step / RATE for step in range(int(seconds * RATE)))

    def _put(self, number: int) -> None:
        self.here.add(number)
        self.cluster.etcd.fill([(self._key(number), says(number))])

    def _key(self, number: int) -> str:
        return self.cluster.key(f"{subnet(number)}-24")

    def _served(self, number: int) -> bool:
        return self.node.netns.rtnl.route_to(IPv4Address(subnet(number)) + 9).index == self._vtep.index

    def _routes(self) -> set[str]:
        return {line.split()[0] for line in self.node.ip("route show proto 165 dev flannel.1").splitlines()}


def churn(cluster: Cluster, rounds: int, seconds: float) -> list[tuple[float, int]]:
    """Have peers come and go for some rounds; for each the 95th percentile of the times, and bytes of memory."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    cluster.configure(NETWORK, Backend={"Type": "vxlan"})
    cluster.etcd.fill((cluster.key(f"{subnet(number)}-24"), says(number)) for number in range(PEERS))
    node = cluster.node(1).start()
    peers = Churn(cluster, node, seed)
    peers.settled()
    found = []
    for _ in range(rounds):
        peers.times.clear()
        peers.run(seconds)
        peers.settled()
        assert node.ready
        resident = Path(f"/proc/{node.pid}/status").read_text().partition("VmRSS:")[2].split()[0]
        found.append((quantiles(peers.times, n=20)[-1], int(resident) << 10))
        print(f"95th percentile from put to route {found[-1][0] * 1000:.1f} ms, {found[-1][1] >> 20} MB", flush=True)
    assert not node.lines("ERROR|Traceback|INST-002")
    return found


def test_peers_that_come_and_go_are_served_and_no_others(own_cluster: Cluster):
    churn(own_cluster, 2, 5.0)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_an_hour_of_peers_that_come_and_go_costs_no_memory_and_no_speed(own_cluster: Cluster):
    first, *later = churn(own_cluster, 12, 300.0)
    # Twice, because the machine may have other work; what grows with each event would have grown by much more.
    assert max(memory for _, memory in later) < 1.2 * first[1]
    assert min(time for time, _ in later[-3:]) < 2 * first[0] + 0.01
