"""Kill -9 at named points: the next start finds or makes everything as it should be, and no packet is lost.

The seed is printed and another one each time; set WEFT_SEED to repeat a run.
"""

import json
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import etcd
from tests.support.kills import FLAGS, Killer
from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import Cluster, Daemon, Underlay, clusters, eventually, peer_mac

PEERS = range(50, 60)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    underlay = Underlay(tmp_path / "etcd", etcd.wheel())
    try:
        yield from clusters(underlay, tmp_path)
    finally:
        underlay.close()


def sound(cluster: Cluster, node: Daemon, two: Daemon) -> None:
    """All of a node is as it should be, wherever one looks: store, kernel, files."""
    mac = node.macs["mac_v4"]
    leases = cluster.leases()
    assert len(leases) == len(PEERS) + 2, list(leases)
    assert mac in cluster.lease_of(node).value
    assert cluster.lease_of(node).key.endswith(f"/{node.v4[0]}-24")
    assert f"link/ether {mac}" in node.ip("link show flannel.1")
    assert f"inet {node.v4[0]}/32" in node.ip("address show flannel.1")
    networks = {f"10.5.{number}.0/24" for number in PEERS} | {str(two.v4)}
    macs = {peer_mac(number) for number in PEERS} | {two.macs["mac_v4"]}

    def kernel() -> bool:
        routes = {route["dst"] for route in node.netns.json("ip -j route show proto 165")}
        neighbours = {each["lladdr"] for each in node.netns.json("ip -j neigh show dev flannel.1 nud permanent")}
        fdb = {each["mac"] for each in node.netns.json("bridge -j fdb show dev flannel.1")}
        return (routes, neighbours, fdb) == (networks, macs, macs)

    eventually(kernel)
    assert "FLANNEL-POSTRTG" in node.netns.run("iptables-save -t nat")
    [instance] = [path for path in node.state_dir.iterdir() if path.name != "cni"]
    assert sorted(path.name for path in instance.iterdir()) == ["cluster.jsonl", "identity.json", "lock"]
    for line in (instance / "cluster.jsonl").read_text().splitlines():
        json.loads(line)
    assert sorted(path.name for path in node.subnet_file.parent.iterdir()) == ["subnet.env"]


def torture(cluster: Cluster, rounds: int) -> None:
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    cluster.configure()
    cluster.peers(PEERS)
    one, two = (cluster.node(number).start(*FLAGS) for number in (1, 2))
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    one.kill()
    with closing(Killer(cluster, one, chance)) as killer:
        _torture(killer, two, rounds)
    never = [name for name in (*killer.warm, *killer.cold) if not killer.hits[name]]
    assert not never, f"never hit: {never}"
    one.start(*FLAGS)
    assert reaches(here, there.ips[0])


def _torture(killer: Killer, two: Daemon, rounds: int) -> None:
    cluster, one, chance = killer.cluster, killer.node, killer.chance
    subnet, here, there = one.v4, one.pods[0], two.pods[0]
    warm = _some(chance, list(killer.warm), rounds * 2 // 5)
    with nothing_lost(here, there, there.ips[0]):
        for name in warm:
            killer.kill_at(name)
        one.start(*FLAGS)
        sound(cluster, one, two)
    one.kill()
    for name in _some(chance, list(killer.cold), rounds - len(warm)):
        killer.kill_at(name)
        if chance.random() < 0.3:
            killer.kill_at(chance.choice(["any time", "any time, nothing there"]))
        one.start(*FLAGS)
        assert one.v4 == subnet, name
        sound(cluster, one, two)
        one.kill()
    print("".join(f"{count:5} {name}\n" for name, count in sorted(killer.hits.items())))


def _some(chance: random.Random, names: list[str], count: int) -> list[str]:
    """Each name once at least, in a random order."""
    rest = chance.choices(names, k=max(count - len(names), 0))
    return chance.sample(names + rest, len(names) + len(rest))


def test_a_daemon_killed_at_any_point_goes_on_where_it_was(cluster: Cluster):
    torture(cluster, 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_daemon_killed_two_hundred_times(cluster: Cluster):
    torture(cluster, 240)
