"""Kill -9 at named points: the next start finds or makes everything as it should be, and no packet is lost.

The seed is printed and another one each time; set WEFT_SEED to repeat a run.
"""

import json
import os
import random
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.campaign.kills import FLAGS, Killer, Kind
from tests.support import etcd
from tests.support.traffic import nothing_lost, reaches
from tests.support.waiting import looks
from tests.support.weftd import Cluster, Daemon, Pod, Underlay, clusters, peer_mac

PEERS = range(50, 60)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    underlay = Underlay(tmp_path / "etcd", etcd.wheel())
    try:
        yield from clusters(underlay, tmp_path)
    finally:
        underlay.close()


# Written ten seconds after an event: on a slow machine a daemon lives so long, and may be killed in the middle.
HISTORY = {"history.jsonl", ".history.jsonl.new"}


def sound(cluster: Cluster, node: Daemon, two: Daemon, kind: Kind, *, seconds: float = 20) -> None:
    """All of a node is, or soon is, as it should be, wherever one looks: store, kernel, files."""
    fault: Exception | None = None
    for _ in looks(seconds):
        try:
            _sound(cluster, node, two, kind)
        except (AssertionError, ValueError) as error:
            fault = error
        else:
            return
    assert fault is not None
    raise fault


def _sound(cluster: Cluster, node: Daemon, two: Daemon, kind: Kind) -> None:
    leases = cluster.leases()
    assert len(leases) == len(PEERS) + 2, list(leases)
    assert cluster.lease_of(node).key.split("/")[-1].startswith(f"{node.v4[0]}-24")
    for device, subnet, mac in zip(kind.devices, node.subnets, node.macs.values(), strict=False):
        assert mac in cluster.lease_of(node).value
        assert f"link/ether {mac}" in node.ip(f"link show {device}")
        assert f"inet{'6' if subnet.version == 6 else ''} {subnet[0]}/" in node.ip(f"address show {device}")
    assert present(node) == expected(two, kind)
    rules = "nft list table ip flannel-ipv4" if kind.nft else "iptables-save -t nat"
    assert re.search(r"masquerade( fully-random)? ?$|-j MASQUERADE", node.netns.run(rules), re.MULTILINE)
    [instance] = [path for path in node.state_dir.iterdir() if path.name != "cni"]
    kept = {path.name for path in instance.iterdir()} - HISTORY
    assert sorted(kept) == ["cluster.jsonl", "identity.json", "lock"]
    for line in (instance / "cluster.jsonl").read_text().splitlines():
        json.loads(line)
    assert sorted(path.name for path in node.subnet_file.parent.iterdir()) == ["subnet.env"]


def expected(two: Daemon, kind: Kind) -> dict[str, set[str]]:
    """What the kernel is to hold: the peers of the store, which have IPv4 alone, and the second node."""
    routes = {f"10.5.{number}.0/24" for number in PEERS} | {str(subnet) for subnet in two.subnets}
    if not kind.devices:
        return {"routes": routes}
    macs = {peer_mac(number) for number in PEERS} | {two.macs["mac_v4"]}
    last = {two.macs["mac_v6"]} if kind.dual else set()
    return {"routes": routes, "neighbours": macs | last, "fdb": macs | last}


def present(node: Daemon) -> dict[str, set[str]]:
    """What the kernel holds of that."""
    routes = [*node.netns.json("ip -j route show proto 165"), *node.netns.json("ip -j -6 route show proto 165")]
    found = {"routes": {route["dst"] for route in routes}}
    devices = [link["ifname"] for link in node.netns.json("ip -j link show type vxlan")]
    if devices:
        found |= {"neighbours": set(), "fdb": set()}
    for device in devices:
        neighbours = node.netns.json(f"ip -j neigh show dev {device} nud permanent")
        found["neighbours"] |= {each["lladdr"] for each in neighbours}
        found["fdb"] |= {each["mac"] for each in node.netns.json(f"bridge -j fdb show dev {device}")}
    return found


def torture(cluster: Cluster, rounds: int) -> None:
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    chance = random.Random(seed)
    kind = Kind(
        backend=chance.choice(("vxlan", "host-gw")), dual=chance.choice((True, False)), nft=chance.choice((True, False))
    )
    print(f"WEFT_SEED={seed}: {kind}")
    one, two, here, there = ready_nodes(cluster, kind)
    one.kill()
    with closing(Killer(cluster, one, chance, kind=kind)) as killer:
        _torture(killer, two, rounds)
    never = [name for name in (*killer.warm, *killer.cold) if not killer.hits[name]]
    assert not never, f"never hit: {never}"
    one.start(*FLAGS)
    for ip in there.ips:
        assert reaches(here, ip)


def ready_nodes(cluster: Cluster, kind: Kind) -> tuple[Daemon, Daemon, Pod, Pod]:
    """Two nodes with a daemon and a pod each, which reach each other."""
    cluster.configure(kind.net_conf)
    cluster.peers(PEERS, data="vxlan" if kind.devices else None, BackendType=kind.backend)
    one, two = (cluster.node(number).start(*FLAGS) for number in (1, 2))
    here, there = one.pod(), two.pod()
    for ip in there.ips:
        assert reaches(here, ip)
    return one, two, here, there


def _torture(killer: Killer, two: Daemon, rounds: int) -> None:
    cluster, one, chance = killer.cluster, killer.node, killer.chance
    subnet, here, there = one.v4, one.pods[0], two.pods[0]
    warm = _some(chance, list(killer.warm), rounds * 2 // 5)
    with nothing_lost(here, there, there.ips[0]):
        for name in warm:
            killer.kill_at(name)
        one.start(*FLAGS)
        sound(cluster, one, two, killer.kind)
    one.kill()
    for name in _some(chance, list(killer.cold), rounds - len(warm)):
        killer.kill_at(name)
        if chance.random() < 0.3:
            killer.kill_at(chance.choice(["any time", "any time, nothing there"]))
        one.start(*FLAGS)
        assert one.v4 == subnet, name
        sound(cluster, one, two, killer.kind)
        one.kill()
    print("".join(f"{count:5} {name}\n" for name, count in sorted(killer.hits.items())))


def _some(chance: random.Random, names: list[str], count: int) -> list[str]:
    """Each name once at least, in a random order."""
    rest = chance.choices(names, k=max(count - len(names), 0))
    return chance.sample(names + rest, len(names) + len(rest))


PLANTED = {
    "a route": "ip route del 10.5.50.0/24",
    "a route of the other family": "ip -6 route flush proto 165",
    "a route too many": "ip route add 10.5.77.0/24 dev eth0 proto 165",
    "a neighbour": "ip neigh del 10.5.50.0 dev flannel.1",
    "an FDB entry": f"bridge fdb del {peer_mac(50)} dev flannel.1",
    "a device": "ip link del flannel-v6.1",
    "masquerade": "nft flush ruleset",
    "a torn file": "for file in {state}/*/cluster.jsonl; do echo '{' >>$file; done",
    "a file left over": "touch {state}/../run/subnet.env.tmp",
}


@pytest.mark.parametrize("nft", [True, False], ids=["nft", "iptables"])
def test_what_the_campaign_looks_at_is_seen_when_it_is_wrong(cluster: Cluster, nft):
    """Each violation is planted while the daemon is stopped; all is as it should be in between."""
    kind = Kind(backend="vxlan", dual=True, nft=nft)
    one, two, *_ = ready_nodes(cluster, kind)
    for damage in PLANTED.values():
        sound(cluster, one, two, kind)
        kept = {path: path.read_bytes() for path in one.state_dir.glob("*/cluster.jsonl")}
        one.signal(signal.SIGSTOP)
        one.netns.run(damage.replace("{state}", str(one.state_dir)))
        with pytest.raises((AssertionError, ValueError)):
            sound(cluster, one, two, kind, seconds=0.02)
        (one.subnet_file.parent / "subnet.env.tmp").unlink(missing_ok=True)
        for path, content in kept.items():
            path.write_bytes(content)
        one.signal(signal.SIGCONT)


def test_a_daemon_killed_at_any_point_goes_on_where_it_was(cluster: Cluster):
    torture(cluster, 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_daemon_killed_two_hundred_times(cluster: Cluster):
    torture(cluster, 240)
