"""The store goes, comes back, forgets or lies: the network stays, and the node says what it knows (settled.md §6)."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.traffic import nothing_lost, reaches
from tests.support.wallclock import WallClock
from tests.support.weftd import HOST_GW, VXLAN, Cluster, Daemon, eventually


def kernel(node: Daemon) -> str:
    """All of the node's network that packets need."""
    return node.netns.run(
        "{ ip route; ip neigh show nud permanent; bridge fdb show; iptables-save; } | grep -vE '^[#:]|33:33' | sort"
    )


def change_memory(node: Daemon, **own: Any) -> None:
    """Change what the node has written down about its own lease."""
    [path] = node.state_dir.glob("*/cluster.jsonl")
    head, *leases = path.read_text().splitlines()
    memory = json.loads(head)
    memory["own"] |= own
    path.write_text("\n".join([json.dumps(memory), *leases]))


def remembers(node: Daemon, text: str) -> bool:
    """Tell whether a text is in what the node has written down about the cluster."""
    return any(text in path.read_text() for path in node.state_dir.glob("*/cluster.jsonl"))


@pytest.mark.spec("flannel.md §4.6/store-down-data-plane")
def test_without_the_store_a_node_starts_with_what_it_knows(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.peers((50, 51))
    node = own_cluster.node(1).start("--ip-masq")
    subnet = node.v4
    node.stop()
    assert remembers(node, "10.5.51.0-24")
    own_cluster.etcd.stop()
    # As after a reboot: nothing in the kernel, no subnet file.
    node.netns.run(f"ip link del flannel.1; nft flush ruleset; rm {node.subnet_file}")
    node.ip("route add 10.5.60.0/24 via 172.31.0.9 proto 165")
    node.start("--ip-masq")
    node.says("STORE-001 .*starting with what was known before")
    assert node.v4 == subnet
    assert {"10.5.50.0/24", "10.5.51.0/24"} <= set(node.ip("route").split())
    assert "10.5.60.0/24" in node.ip("route"), "nothing is removed on old knowledge"
    assert "FLANNEL-POSTRTG" in node.netns.run("iptables-save")
    # The store returns with another picture, and the node follows.
    own_cluster.etcd.start()
    own_cluster.etcd.delete(own_cluster.key("10.5.50.0-24"))
    own_cluster.peer(52)
    node.sees("ip route", "10.5.52.0/24", seconds=10)
    eventually(lambda: "10.5.50.0" not in node.ip("route"))
    assert not node.lines("the lease is ignored"), "its own lease is no stranger's"
    eventually(lambda: "10.5.60.0" not in node.ip("route"))
    assert node.ready
    assert list(own_cluster.leases()) == sorted(["10.5.51.0-24", "10.5.52.0-24", f"{subnet[0]}-24"])
    node.says("the store answers again")


def test_without_store_and_memory_it_waits_and_says_why(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.etcd.stop()
    node = own_cluster.node(1).spawn()
    node.says("waiting for the network configuration: STORE-001 .*Start etcd, or correct --etcd-endpoints")
    assert eventually(lambda: node.get("/readyz")[0]) == 503
    assert not node.subnet_file.exists()
    assert "flannel.1" not in node.ip("link")
    own_cluster.etcd.start()
    node.wait_ready()


@pytest.mark.parametrize("left", [-5.0, 6.0], ids=["expired", "expiring"])
def test_a_node_is_ready_without_the_store_only_until_its_lease_expires(own_cluster: Cluster, left):
    own_cluster.configure()
    own_cluster.peer(50)
    node = own_cluster.node(1).start()
    node.stop()
    before = kernel(node)
    own_cluster.etcd.stop()
    node.subnet_file.unlink()
    change_memory(node, expires=time.time() + left)
    node.spawn()
    if left > 0:
        node.wait_ready()
        assert node.subnet_file.exists()
    else:
        node.says("STORE-001")
        time.sleep(0.5)
        assert not node.subnet_file.exists()
    eventually(lambda: node.get("/readyz")[0] == 503, seconds=30)
    assert kernel(node) == before, "the kernel is left as it is"
    own_cluster.etcd.start()
    eventually(lambda: node.ready, seconds=12)
    assert kernel(node) == before


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    folder = tmp_path / "clock"
    folder.mkdir()
    return WallClock(folder)


@pytest.mark.parametrize("hours", [25, -25])
def test_a_wall_clock_that_jumps_ends_no_lease(own_cluster: Cluster, wall_clock: WallClock, hours):
    own_cluster.configure()
    node = own_cluster.node(1).start(env=wall_clock.env)
    wall_clock.set(hours)
    until = time.monotonic() + 6.0  # longer than from one look at the lease's end to the next
    while time.monotonic() < until:
        assert node.ready
        time.sleep(0.1)
    assert not node.lines("expired|LEASE-004")
    node.stop()
    own_cluster.etcd.stop()
    node.start(env=wall_clock.env)
    assert node.lines("using the earlier lease"), "it is the same boot, whose clock nobody has set"


@pytest.mark.parametrize("hours", [25, -25])
def test_after_another_boot_a_lease_counts_only_if_the_wall_clock_can_be_right(
    own_cluster: Cluster, wall_clock: WallClock, hours
):
    own_cluster.configure()
    node = own_cluster.node(1).start(env=wall_clock.env)
    node.stop()
    [path] = node.state_dir.glob("*/cluster.jsonl")
    head, *leases = path.read_text().splitlines()
    memory = json.loads(head)
    memory["written"]["boot"] = "another"
    path.write_text("\n".join([json.dumps(memory), *leases]))
    own_cluster.etcd.stop()
    wall_clock.set(hours)
    node.spawn(env=wall_clock.env)
    node.says("waiting for a lease: STORE-001")
    assert not node.ready
    wall_clock.set(0)
    node.kill()
    node.start(env=wall_clock.env)
    assert node.lines("using the earlier lease")


def test_a_subnet_that_was_given_away_meanwhile_is_replaced_and_that_is_said(own_cluster: Cluster):
    own_cluster.configure()
    node = own_cluster.node(1).start()
    old = node.v4
    node.stop()
    own_cluster.etcd.stop()
    node.start()
    assert node.v4 == old
    # The store comes back with data in which our key expired and somebody else took the subnet.
    own_cluster.etcd.start()
    own_cluster.etcd.delete(own_cluster.key(f"{old[0]}-24"))
    own_cluster.peer(77, lease=f"{old[0]}-24")
    node.says(rf"LEASE-004 our subnet is now .*, it was {old}", seconds=12)
    eventually(lambda: node.v4 != old)
    assert f"inet {node.v4[0]}/32" in node.sees("ip address show flannel.1", f"inet {node.v4[0]}/32")
    assert own_cluster.lease_of(node).key.endswith(f"{node.v4[0]}-24")


@pytest.mark.spec("flannel.md §4.6/store-down-data-plane")
@pytest.mark.spec("flannel.md §4.7/4-back-off", cases=("vxlan", "host-gw"))
@pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_pods_do_not_notice_that_the_store_is_away(own_cluster: Cluster, backend):
    own_cluster.configure(backend)
    one, two = own_cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    before = kernel(one)
    with nothing_lost(here, there, there.ips[0]):
        own_cluster.etcd.kill()
        one.says("STORE-001: the store does not answer", seconds=10)
        assert one.ready
        own_cluster.etcd.start()
        one.says("the store answers again", seconds=15)
    own_cluster.peer(50, BackendType=backend["Backend"]["Type"])
    one.sees("ip route", "10.5.50.0/24")
    own_cluster.etcd.delete(own_cluster.key("10.5.50.0-24"))
    eventually(lambda: kernel(one) == before)
    assert len(one.lines("STORE-001")) == 1, "said once"
    assert not one.lines("LEASE-004")


def test_repairs_need_no_store(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.peer(50)
    node = own_cluster.node(1).start("--ip-masq")
    before = kernel(node)
    own_cluster.etcd.pause()
    for change in ("ip link del flannel.1", "ip route del 10.5.50.0/24", "nft flush ruleset"):
        node.netns.run(change)
        eventually(lambda: kernel(node) == before)
    own_cluster.etcd.resume()


@pytest.mark.spec("flannel.md §4.7/5-compaction", "flannel.md 11.5/compaction-restart")
def test_changes_that_were_compacted_away_are_learnt_from_a_new_list(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.peers((50, 51))
    node = own_cluster.node(1).start()
    own_cluster.etcd.restart()
    own_cluster.etcd.delete(own_cluster.key("10.5.50.0-24"))
    own_cluster.peer(52)
    own_cluster.etcd.compact()
    node.sees("ip route", "10.5.52.0/24", seconds=10)
    eventually(lambda: "10.5.50.0/24" not in node.ip("route"))
    assert "10.5.51.0/24" in node.ip("route")


def test_a_restored_snapshot_is_noticed(own_cluster: Cluster, tmp_path):
    """It answers with revisions that were there already, which a watch alone never shows."""
    own_cluster.configure()
    own_cluster.peer(50)
    node = own_cluster.node(1).start()
    own_cluster.etcd.snapshot(tmp_path / "snapshot")
    own_cluster.etcd.delete(own_cluster.key("10.5.50.0-24"))
    own_cluster.peer(51)
    node.sees("ip route", "10.5.51.0/24")
    eventually(lambda: "10.5.50.0/24" not in node.ip("route"))
    own_cluster.etcd.kill()
    own_cluster.etcd.restore(tmp_path / "snapshot")
    own_cluster.etcd.start()
    node.sees("ip route", "10.5.50.0/24", seconds=15)
    node.says("STORE-003 the store has lost what it held")
    assert "10.5.51.0/24" in node.ip("route"), "that the snapshot does not know it says nothing of it"
    own_cluster.peer(52, public="172.31.0.51")
    eventually(lambda: "10.5.51.0/24" not in node.ip("route"))
    node.says("STORE-003 lease 10.5.51.0-24 is given up")
    assert "10.5.52.0/24" in node.ip("route")
    assert node.ready


@pytest.mark.parametrize("how", ["wiped", "snapshot"])
def test_a_store_that_lost_its_data_costs_no_peer_whose_daemon_is_down(own_cluster: Cluster, tmp_path, how):
    """Its pods run on. Nobody can tell its node from one that is gone, so the others keep the way to it."""
    own_cluster.configure()
    one, three = own_cluster.nodes(1, 3)
    own_cluster.etcd.snapshot(tmp_path / "snapshot")
    two = own_cluster.node(2).start()
    here, there, further = one.pod(), two.pod(), three.pod()
    assert reaches(here, there.ips[0])
    assert reaches(further, there.ips[0])
    one.sees("ip route", str(two.v4))
    own_cluster.peers((60,))
    own_cluster.peers((60,))
    own_cluster.peers((60,))
    for node in (two, three):
        eventually(lambda node=node: remembers(node, f"{one.v4[0]}-24"), seconds=10)
    eventually(lambda: remembers(three, f"{two.v4[0]}-24"), seconds=10)
    two.stop()
    three.stop()
    with nothing_lost(here, there, there.ips[0]), nothing_lost(further, there, there.ips[0]):
        own_cluster.etcd.kill()
        if how == "wiped":
            shutil.rmtree(own_cluster.etcd.data)
        else:
            own_cluster.etcd.restore(tmp_path / "snapshot")
        own_cluster.etcd.start()
        own_cluster.configure()
        one.says("STORE-003 the store has lost what it held", seconds=20)
        eventually(lambda: f"{one.v4[0]}-24" in own_cluster.leases(), seconds=10)
        three.start()
        three.says("STORE-003 the store has lost what it held")
        # What is kept is remembered with its time: the next start finds the store's history to go on from there.
        for node in (one, three):
            eventually(lambda node=node: remembers(node, '"mark"'), seconds=10)
            node.stop()
            node.start()
            assert not node.lines("STORE-003")
            assert str(two.v4) in node.ip("route")
        before = two.v4
        two.start()
        assert two.v4 == before
    one.stop()
    one.start()
    assert not one.lines("STORE-003")
    assert str(two.v4) in one.ip("route")
    # From now on its lease is as good as any: who deletes it takes the node away.
    two.stop()
    own_cluster.etcd.delete(own_cluster.key(f"{two.v4[0]}-24"))
    eventually(lambda: str(two.v4) not in one.ip("route"))


def test_what_the_store_lost_is_given_up_when_its_time_is_over(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.peer(50)
    node = own_cluster.node(1).start()
    eventually(lambda: remembers(node, "10.5.50.0-24"), seconds=10)
    node.stop()
    own_cluster.etcd.delete(own_cluster.key("10.5.50.0-24"))
    [path] = node.state_dir.glob("*/cluster.jsonl")
    head, lease = path.read_text().splitlines()
    path.write_text("\n".join([head, json.dumps([*json.loads(lease), time.time() - 1.0])]))
    node.start()
    node.says("STORE-003 lease 10.5.50.0-24 is given up: its time is over", seconds=10)
    eventually(lambda: "10.5.50.0/24" not in node.ip("route"))


@pytest.mark.spec("flannel.md §1.6/revoked", "flannel.md §4.6/own-key-delete", "flannel.md §1.5/20-lease-watched")
def test_an_own_key_that_is_deleted_is_taken_again_in_place(cluster: Cluster):
    cluster.configure()
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0])
    subnet = one.v4
    cluster.etcd.delete(cluster.key(f"{subnet[0]}-24"))
    one.says("LEASE-004 .*taking a lease again")
    eventually(lambda: list(cluster.leases()) == sorted([f"{subnet[0]}-24", f"{two.v4[0]}-24"]))
    assert one.v4 == subnet
    assert one.ready
    assert reaches(here, there.ips[0])
    assert one.stop() == 0


@pytest.mark.spec("flannel.md §4.6/own-key-add")
def test_an_own_key_that_another_node_takes_is_left_to_it(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    old = node.v4
    cluster.peer(77, lease=f"{old[0]}-24")
    node.says(rf"LEASE-004 lease {old[0]}-24 was written by the node 172\.31\.0\.77; taking a lease again")
    node.says(f"LEASE-004 our subnet is now .*, it was {old}; running pods keep their addresses")
    eventually(lambda: node.v4 != old)
    assert '"PublicIP":"172.31.0.77"' in cluster.leases()[f"{old[0]}-24"].value
    # The way to the other node's pods is there, and the old address is not.
    node.sees("ip route", f"^{old} ")
    eventually(lambda: f"inet {old[0]}/32" not in node.ip("address show flannel.1"))
    node.sees("ip address show flannel.1", f"inet {node.v4[0]}/32")


@pytest.mark.spec("flannel.md §4.7/incremental", "flannel.md §4.7/3-events")
def test_a_renewal_of_a_peer_touches_nothing(cluster: Cluster, tmp_path):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    with (tmp_path / "notices").open("w") as notices:
        node.netns.popen("exec ip monitor route neigh", stdout=notices)
    seen = (tmp_path / "notices").read_text
    flicker = "route add 192.0.2.0/24 via 172.31.0.9; ip route del 192.0.2.0/24"
    eventually(lambda: node.ip(flicker) or "192.0.2.0" in seen())
    cluster.peer(50)
    cluster.peer(51)
    eventually(lambda: "10.5.51.0/24" in seen())
    assert "10.5.50.0" not in seen()


def test_a_configuration_that_is_deleted_or_changed_harms_no_running_node(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    before = kernel(node)
    cluster.etcd.delete(f"{cluster.prefix}/config")
    node.says(r"CONF-001 etcd key .*/config: no such key; expected the configuration of the start")
    cluster.configure("nonsense")
    node.says(r"CONF-001 .*: changed, and cannot be used: CONF-002 ", seconds=20)
    cluster.configure(HOST_GW)
    node.says(r"CONF-001 .*: changed since the start: Backend\.Type; Backend;")
    assert node.ready
    assert "CONF-001" in node.diagnosis()
    assert kernel(node) == before
    cluster.configure()
    node.says("the network configuration is that of the start again")
