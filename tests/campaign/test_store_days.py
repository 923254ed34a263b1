"""Bad days of an etcd of three members, under daemons with traffic: no packet is lost, kernels agree with the store.

The seed is printed and another one each time; set WEFT_SEED to repeat a run.
"""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support import etcd
from tests.support.etcdtrio import PASSWORD, USER, Trio
from tests.support.traffic import nothing_lost, reaches
from tests.support.waiting import looks
from tests.support.weftd import Cluster, Daemon, Underlay, clusters

PEERS: Final = range(50, 90)
RENEWED_SECONDS: Final = 30

Known = set[tuple[str, str, str]]  # of each peer: its subnet, its VTEP's MAC, its address


@pytest.fixture
def underlay(tmp_path: Path) -> Iterator[Underlay]:
    made = Underlay(tmp_path / "etcd", etcd.wheel())
    yield made
    made.switch.close()


@pytest.fixture
def trio(underlay: Underlay, tmp_path: Path) -> Iterator[Trio]:
    """In the place of the underlay's store."""
    underlay.etcd.kill()
    made = Trio(tmp_path / "trio", underlay.switch)
    underlay.etcd = made.client
    yield made
    made.close()


@pytest.fixture
def cluster(underlay: Underlay, trio: Trio, tmp_path: Path) -> Iterator[Cluster]:
    yield from clusters(underlay, tmp_path)


class Days:
    """What can befall the store, by name; after each, peers come, go and change, and every kernel follows."""

    def __init__(self, cluster: Cluster, trio: Trio, nodes: list[Daemon], chance: random.Random) -> None:
        self.cluster, self.trio, self.nodes, self.chance = cluster, trio, nodes, chance
        self.alive: dict[int, int] = {}  # a peer's number and that of its MAC
        self.had: Counter[str] = Counter()
        self._snapshot = cluster.daemons[0].folder / "snapshot"

    @property
    def events(self) -> dict[str, Callable[[], None]]:
        return {
            "the leader is killed": lambda: self._lose(self.trio.leader()),
            "a member is killed": lambda: self._lose(self.chance.choice(self.trio.members)),
            "two members are killed": self.lose_two,
            "the leader hangs": self.hang,
            "the quota is reached": self.quota,
            "history is compacted": self.compact,
            "members are defragmented": self.defragment,
            "an old snapshot is restored": self.restore,
            "certificates are rotated": self.trio.rotate,
            "users change": self.users,
            "own leases run out soon": self.short_leases,
        }

    def have(self, name: str) -> None:
        self.events[name]()
        self.had[name] += 1
        self.change()
        self.agree()

    def change(self) -> None:
        """Let a peer come or go, and another come back with another MAC."""
        number, other = self.chance.sample(PEERS, 2)
        if self.alive.pop(number, None) is None:
            self.put(number)
        else:
            self.cluster.etcd.delete(self.cluster.key(f"10.5.{number}.0-24"))
        self.put(other)

    def agree(self, seconds: float = 30) -> None:
        """Wait until each node's kernel has what the store has, and no more."""
        for node in self.nodes:
            for _ in looks(seconds):
                if (wanted := self.stored(node)) == (found := kernel(node)):
                    break
            else:
                raise AssertionError(f"node {node.number} lacks {wanted - found}, has {found - wanted} too much")

    def stored(self, node: Daemon) -> Known:
        """What other nodes' leases say."""
        found: Known = set()
        for name, kv in self.cluster.leases().items():
            value = json.loads(kv.value)
            if value["PublicIP"] != str(node.public_v4):
                found.add((name.replace("-", "/"), value["BackendData"]["VtepMAC"], value["PublicIP"]))
        return found

    def lose_two(self) -> None:
        """No majority is left: nothing can be written until one is back."""
        lost = self.chance.sample(self.trio.members, 2)
        for member in lost:
            member.kill()
        self._a_while()
        for member in lost:
            member.spawn()
        for member in lost:
            member.wait()

    def hang(self) -> None:
        leader = self.trio.leader()
        leader.pause()
        self._a_while()
        leader.resume()

    def quota(self) -> None:
        self.trio.fill()
        self._a_while()
        self.trio.clear()

    def compact(self) -> None:
        """While a member is down, so that who watches there must read all anew."""
        member = self.chance.choice(self.trio.members)
        member.kill()
        self.change()
        self.cluster.etcd.compact()
        member.start()

    def defragment(self) -> None:
        for member in self.chance.sample(self.trio.members, 3):
            member.ctl("defrag")

    def restore(self) -> None:
        """What changed since the snapshot is as it was; peers that live say again what they are, as daemons do."""
        self.trio.leader().snapshot(self._snapshot)
        self.change()
        self.agree()
        self._a_while()
        self.trio.restore(self._snapshot)
        self._snapshot.unlink()
        for number, mac in self.alive.items():
            self.put(number, mac)

    def users(self) -> None:
        """Any change of users makes all tokens old."""
        name = f"user{self.chance.randrange(1 << 30)}"
        self.cluster.etcd.ctl("user", "add", f"{name}:{name}")

    def short_leases(self) -> None:
        """Have each daemon renew its lease every few seconds from now on."""
        for node in self.nodes:
            kv = self.cluster.lease_of(node)
            self.cluster.etcd.put_leased(kv.key, kv.value, ttl=RENEWED_SECONDS)

    def put(self, number: int, mac: int | None = None) -> None:
        self.alive[number] = self.chance.randrange(256) if mac is None else mac
        data = {"VNI": 1, "VtepMAC": f"02:cc:00:00:{self.alive[number]:02x}:{number:02x}"}
        self.cluster.peer(number, data=data)

    def _lose(self, member: "etcd.Etcd") -> None:
        member.kill()
        self._a_while()
        member.start()

    def _a_while(self) -> None:
        """Let daemons notice: until each has been asked for its health a few times."""
        for _ in range(self.chance.randrange(5, 40)):
            assert all(node.get("/livez")[0] == 200 for node in self.nodes)


def kernel(node: Daemon) -> Known:
    """What a node sends to its peers by: only what is whole, from the route to the FDB entry."""
    routes = {each["dst"]: each["gateway"] for each in node.netns.json("ip -j route show proto 165")}
    macs = {each["dst"]: each["lladdr"] for each in node.netns.json("ip -j neigh show dev flannel.1 nud permanent")}
    ends = {each["mac"]: each["dst"] for each in node.netns.json("bridge -j fdb show dev flannel.1") if "dst" in each}
    return {(subnet, macs.get(gateway, ""), ends.get(macs.get(gateway, ""), "")) for subnet, gateway in routes.items()}


def flags(trio: Trio, password: Path) -> list[str]:
    password.write_text(PASSWORD)
    password.chmod(0o600)
    files = {"cafile": trio.files.ca, "certfile": trio.files.client, "keyfile": trio.files.client_key}
    tls = [f"--etcd-{name}={path}" for name, path in files.items()]
    return [*tls, f"--etcd-username={USER}", f"--etcd-password-file={password}"]


def days(cluster: Cluster, trio: Trio, folder: Path) -> Days:
    """Two nodes with a pod each, and peers."""
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    cluster.configure()
    nodes = [cluster.node(number).spawn(*flags(trio, folder / "password")) for number in (1, 2)]
    for node in nodes:
        node.wait_ready().pod()
    made = Days(cluster, trio, nodes, random.Random(seed))
    made.change()
    made.agree()
    return made


def campaign(days: Days, names: list[str]) -> None:
    one, two = days.nodes
    here, there = one.pods[0], two.pods[0]
    assert reaches(here, there.ips[0])
    with nothing_lost(here, there, there.ips[0], every=0.005), nothing_lost(there, here, here.ips[0], every=0.005):
        for name in names:
            print(name, flush=True)
            days.have(name)
    for node in days.nodes:
        assert node.ready
        assert not node.lines("Traceback|INST-002")
    print("".join(f"{count:5} {name}\n" for name, count in sorted(days.had.items())))


def test_each_bad_day_loses_no_packet_and_leaves_no_difference(cluster: Cluster, trio: Trio, tmp_path: Path):
    made = days(cluster, trio, tmp_path)
    campaign(made, made.chance.sample(sorted(made.events), len(made.events)))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_three_hundred_bad_days(cluster: Cluster, trio: Trio, tmp_path: Path):
    made = days(cluster, trio, tmp_path)
    names = sorted(made.events)
    campaign(made, made.chance.sample(names, len(names)) + made.chance.choices(names, k=300 - len(names)))


@pytest.mark.parametrize(
    "damage",
    [
        "ip route del 10.5.50.0/24",
        "ip route add 10.5.99.0/24 dev eth0 via 172.31.0.254 proto 165",
        "ip neigh del 10.5.50.0 dev flannel.1",
        "bridge fdb replace 02:cc:00:00:01:32 dev flannel.1 dst 172.31.0.99 self permanent",
    ],
)
def test_a_difference_would_be_noticed(cluster: Cluster, trio: Trio, tmp_path: Path, damage: str):
    made = days(cluster, trio, tmp_path)
    made.put(50, 1)
    made.agree()
    node = made.nodes[0]
    node.signal(signal.SIGSTOP)
    node.netns.run(damage)
    with pytest.raises(AssertionError, match="node 1 lacks"):
        made.agree(0.1)
