"""Leases are data from strangers: whatever they say costs their own peer and nobody else (settled.md §7)."""

import json
import random
from contextlib import suppress
from ipaddress import ip_network
from typing import Any

import pytest

from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, eventually, peer_mac, peer_value

NETWORK = ip_network("10.5.0.0/16")
NETWORK_V6 = ip_network("fd05::/48")


def vtep(mac: Any) -> dict[str, Any]:
    return {"data": {"VNI": 1, "VtepMAC": mac}}


# What is wrong: the lease's id, what its value says, and how it is named.
HOSTILE: dict[str, tuple[str, dict[str, Any] | str, str]] = {
    "default route": ("0.0.0.0-0", {}, "names no subnet"),
    "half of all": ("0.0.0.0-1", {}, "outside"),
    "outside": ("10.6.1.0-24", {}, "outside"),
    "whole network": ("10.5.0.0-16", {}, "whole network"),
    "wider than it": ("10.4.0.0-15", {}, "outside"),
    "the underlay": ("172.31.0.0-24", {}, "outside|prefix"),
    "host bits": ("10.5.140.7-24", {}, "host bits|no subnet"),
    "no length": ("10.5.141.0", {}, "no subnet"),
    "a word": ("nonsense", {}, "no subnet"),
    "v6 outside": ("10.5.142.0-24&fd06::-64", {}, "outside"),
    "v6 default": ("10.5.143.0-24&8000::-1", {}, "outside"),
    "our address": ("10.5.144.0-24", {"public": "172.31.0.1"}, "address of this node"),
    "our VTEP's": ("10.5.145.0-24", {"public": "{v4}"}, "address of this node|inside our subnet"),
    "loopback": ("10.5.146.0-24", {"public": "127.0.0.9"}, "cannot be a node's"),
    "multicast": ("10.5.147.0-24", {"public": "224.0.0.1"}, "cannot be a node's"),
    "inside itself": ("10.5.148.0-24", {"public": "10.5.148.9"}, "inside the lease's own subnet"),
    "no MAC": ("10.5.149.0-24", vtep(""), "VtepMAC ''"),
    "zero MAC": ("10.5.150.0-24", vtep("00:00:00:00:00:00"), "unicast"),
    "multicast MAC": ("10.5.151.0-24", vtep("01:00:5e:00:00:01"), "unicast"),
    "broadcast MAC": ("10.5.152.0-24", vtep("ff:ff:ff:ff:ff:ff"), "unicast"),
    "our MAC": ("10.5.153.0-24", vtep("{mac}"), "this node's own"),
    "number for MAC": ("10.5.154.0-24", vtep(7), "VtepMAC 7"),
    "twin's MAC": (
        "10.5.155.0-24",
        vtep(peer_mac(50)),
        "claims VTEP MAC 02:aa.* like lease 10.5.50.0-24, which had it first",
    ),
    "twin's address": ("10.5.156.0-24", {"public": "172.31.0.50"}, "claims 172.31.0.50 like lease 10.5.50.0-24"),
    "twin's subnet": ("10.5.50.128-25", {}, "claims addresses like lease 10.5.50.0-24, which had it first"),
    "our subnet": ("{base}-25", {}, "overlaps our subnet"),
    "not JSON": ("10.5.157.0-24", "{", "not JSON"),
    "a list": ("10.5.158.0-24", "[]", "JSON list"),
    "empty": ("10.5.159.0-24", "", "not JSON"),
    "wrong types": ("10.5.160.0-24", '{"PublicIP": 7}', "PublicIP is 7"),
    "line breaks": ("10.5.161.0-24", {"BackendType": "x\n2026 FAKE LINE\x1b[31m"}, r"\\n2026 FAKE|\\x0a2026 FAKE"),
    "deep": ("10.5.162.0-24", '{"BackendData":' + "[" * 2000 + "]" * 2000 + "}", "nested too deeply"),
    "long": ("10.5.163.0-24", {"BackendType": "y" * 100_000}, "bytes; expected a lease, in 4096"),
}


def plant(cluster: Cluster, node: Daemon) -> None:
    """Put all hostile leases into the store, with what they know of the node."""
    pairs = {}
    for number, (lease, says, _) in enumerate(HOSTILE.values(), 140):
        text = says if isinstance(says, str) else peer_value(number, **says)
        text = text.replace("{v4}", str(node.v4[0])).replace("{mac}", node.macs["mac_v4"])
        pairs[cluster.key(lease.replace("{base}", str(node.v4[0])))] = text
    cluster.etcd.fill(pairs.items())


@pytest.mark.spec("flannel.md §4.7/malformed-costs-its-peer")
@pytest.mark.spec("flannel.md §4.2/recogniser", cases=("at-start", "while-running"))
@pytest.mark.parametrize("live", [False, True], ids=["at-start", "while-running"])
def test_each_hostile_lease_is_named_and_changes_nothing(cluster: Cluster, live):
    cluster.configure(VXLAN, DUAL)
    cluster.peer(50)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    look = (
        "ip route; ip -6 route show proto 165; ip neigh show nud permanent; bridge fdb show; ip address show flannel.1"
    )
    before = one.netns.run(look)
    if not live:
        one.stop()
    with nothing_lost(here, there, there.ips[0]):
        plant(cluster, one)
        if not live:
            one.start()
        for lease, _, reason in HOSTILE.values():
            one.says(rf"ADDR-002 lease .*{lease.replace('{base}', str(one.v4[0]))}.*({reason})")
        cluster.peer(51)
        one.sees("ip route", "10.5.51.0/24")
        cluster.etcd.delete(cluster.key("10.5.51.0-24"))
        eventually(lambda: one.netns.run(look) == before)
    assert one.ready
    assert not one.lines("^2026 FAKE|\x1b|Traceback")
    assert max(map(len, one.log.splitlines())) < 2000
    # A lease that is put right is served; one that was in another's way makes room for it.
    cluster.peer(146)
    one.sees("ip route", "10.5.146.0/24")
    cluster.etcd.delete(cluster.key("10.5.50.0-24"))
    one.sees("ip route", "10.5.(155|156|50.128)")


@pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_no_set_of_leases_yields_a_route_outside_the_network(cluster: Cluster, backend):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    cluster.configure(backend, DUAL)
    node = cluster.node(1).start()
    others = node.ip("route | grep -v proto.165; ip -6 route | grep -v proto.165")
    for _ in range(5):
        cluster.etcd.fill(dict(_random_lease(cluster, chance) for _ in range(100)).items())
        marker = f"10.5.{chance.randrange(256)}.0-24"
        cluster.etcd.delete(cluster.key("10.5.1"), "--prefix")
        cluster.etcd.fill(dict(_random_lease(cluster, chance) for _ in range(100)).items())
        eventually(lambda marker=marker: _is_named(cluster, node, marker), seconds=20)
        routes = [line.split()[0] for line in node.ip("route show proto 165").splitlines()]
        routes_v6 = [line.split()[0] for line in node.ip("-6 route show proto 165").splitlines()]
        assert all(_proper(route, NETWORK, node) for route in routes), routes
        assert all(_proper(route, NETWORK_V6, node) for route in routes_v6), routes_v6
    assert node.ip("route | grep -v proto.165; ip -6 route | grep -v proto.165") == others
    assert node.ready
    assert "Traceback" not in node.log


def _is_named(cluster: Cluster, node: Daemon, marker: str) -> bool:
    """Put a broken lease again until the log names it, which says "and 39 more like that" of many at once."""
    cluster.etcd.delete(cluster.key(marker))
    cluster.etcd.fill([(cluster.key(marker), "{")])
    with suppress(AssertionError):
        node.says(rf"ADDR-002 lease {marker}", seconds=0.2)
        return True
    return False


def _proper(text: str, network: Any, node: Daemon) -> bool:
    route = ip_network(text)
    return (
        route != network
        and route.subnet_of(network)
        and not any(route.overlaps(own) for own in node.subnets if own.version == route.version)
    )


def _random_lease(cluster: Cluster, chance: random.Random) -> tuple[str, str]:
    """A lease of which each part may be right, near the mark or far off it."""
    near = f"10.{chance.choice((4, 5, 5, 5, 5, 6))}.{chance.randrange(256)}.{chance.choice((0, 0, 0, 128, 7))}"
    far = ".".join(str(chance.choice((0, 10, 127, 172, 255, chance.randrange(256)))) for _ in range(4))
    name = (
        f"{chance.choice((near, near, near, far))}-{chance.choice((24, 24, 24, 24, 16, 15, 8, 1, 0, 25, 31, 32, 99))}"
    )
    if chance.random() < 0.4:
        high = chance.choice(("fd05:0:0", "fd05:0:0", "fd05:0:1", "fd06:0:0", "fe80:0:0"))
        name += f"&{high}:{chance.randrange(65536):x}::-{chance.choice((64, 64, 64, 48, 47, 3, 0))}"
    public = chance.choice((f"172.31.0.{chance.randrange(256)}", near, far, "0.0.0.0"))  # noqa: S104 data
    public_v6 = chance.choice((None, f"fd31::{chance.randrange(65536):x}", "fd05:0:0:1::1", "::1", "ff02::1"))
    mac = chance.choice((f"02:aa:00:00:00:{chance.randrange(256):02x}", chance.randbytes(6).hex(":"), "x", None))
    data = chance.choice(({"VNI": 1, "VtepMAC": mac}, {"VNI": 1, "VtepMAC": mac}, None, [], "x"))
    fields = {
        "PublicIP": public,
        "PublicIPv6": public_v6,
        "BackendType": chance.choice(("vxlan", "vxlan", "host-gw", "host-gw", "udp", "")),
        "BackendData": data,
        "BackendV6Data": data,
    }
    return cluster.key(name), json.dumps(fields)
