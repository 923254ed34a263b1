"""A mesh of real daemons on vxlan: it is made by one command, and no packet is lost when daemons die or are cut off."""

import json
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.node.meshnode import WEFT, MeshNode, created, mesh_of
from tests.support.traffic import Stream, nothing_lost, reaches
from tests.support.weftd import Cluster, eventually

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster-without-a-store.md"


def cut(here: MeshNode, *there: MeshNode) -> None:
    """Have a node neither tell these anything nor hear of them; pods' packets are left alone."""
    here.netns.run("nft add table ip cut")
    for hook, end, port in (
        ("input", "saddr", "sport"),
        ("input", "saddr", "dport"),
        ("output", "daddr", "dport"),
        ("output", "daddr", "sport"),
    ):
        here.netns.run(f"nft 'add chain ip cut {hook} {{ type filter hook {hook} priority -300; }}'")
        for other in there:
            here.netns.run(f"nft add rule ip cut {hook} ip {end} {other.public_v4} tcp {port} 51820 drop")


def heal(here: MeshNode) -> None:
    here.netns.run("nft delete table ip cut")


def test_three_nodes_find_each_other_and_all_pods_reach_all(cluster: Cluster):
    nodes = created(cluster, 1, 2, 3)
    assert len({node.v4 for node in nodes}) == 3
    pods = [node.pod() for node in nodes]
    for pod in pods:
        for other in pods:
            assert reaches(pod, other.ips[0])
    for node in nodes:
        eventually(lambda node=node: node.knows(3))
        names = sorted(peer["name"] for peer in node.state["peers"])
        assert names == ["node1", "node2", "node3"]
    eventually(lambda: re.search(r"node2-\S+ +vxlan +vxlan +taken +\d s ago ", nodes[0].mesh("ways", "node2")))
    assert cluster.leases() == {}, "nothing is in etcd"
    [file] = nodes[0].state_dir.glob("mesh-*/store/mesh.json")
    assert file.stat().st_mode & 0o777 == 0o600


def test_pods_of_both_families_reach_each_other(cluster: Cluster, tmp_path: Path):
    config = {"Network": "10.32.0.0/12", "EnableIPv6": True, "IPv6Network": "fd05::/48", "Backend": {"Type": "mesh"}}
    file = tmp_path / "net-conf.json"
    file.write_text(json.dumps(config))
    one, two = created(cluster, 1, 2, more=(f"--net-config-path={file}",))
    here, there = one.pod(), two.pod()
    assert len(there.ips) == 2
    assert all(reaches(source, target) for source in (here, one.netns) for target in there.ips)


def test_every_daemon_is_killed_and_started_again_and_no_packet_is_lost(cluster: Cluster):
    nodes = created(cluster, 1, 2, 3)
    before = [node.v4 for node in nodes]
    here, there, far = (node.pod() for node in nodes)
    with nothing_lost(here, there, there.ips[0]), nothing_lost(here, far, far.ips[0]):
        for node in nodes:
            node.kill()
        for node in nodes:
            node.start()
        for node in nodes:
            eventually(lambda node=node: node.state["agreed"], seconds=40)
    assert [node.v4 for node in nodes] == before


def test_a_node_without_peers_goes_on_and_gives_new_pods_their_addresses(cluster: Cluster):
    alone, *others = created(cluster, 1, 2, 3)
    here, there = alone.pod(), others[0].pod()
    with nothing_lost(here, there, there.ips[0]):
        for other in others:
            other.kill()
        alone.says("STORE-001.*no peer of the mesh answers", seconds=30)
        alone.kill()
        alone.start()  # it knows its ring, its block and its peers from its disk
        assert alone.routes().count("/24 ") == 2, "what peers have stays theirs"
        assert reaches(alone.pod(), here.ips[0])


def test_a_partition_heals_and_a_newcomer_is_known_then(cluster: Cluster):
    giver, witness, right = created(cluster, 1, 2, 3)
    here, there = giver.pod(), right.pod()
    with nothing_lost(here, there, there.ips[0]):
        cut(right, giver, witness)
        right.says("STORE-001.*no peer of the mesh answers", seconds=40)
        [newcomer] = mesh_of(cluster, 4)  # the side that has two nodes with blocks takes it in
        cut(newcomer, right)
        newcomer.start()
        assert str(newcomer.v4) not in right.routes()
        heal(right)
        eventually(lambda: str(newcomer.v4) in right.routes(), seconds=60)
        assert right.ready
    assert reaches(newcomer.pod(), there.ips[0])


def test_a_password_keeps_out_who_has_another(cluster: Cluster, tmp_path):
    (tmp_path / "good").write_text("a password of words\n")
    (tmp_path / "bad").write_text("another one, of words\n")
    for file in ("good", "bad"):
        (tmp_path / file).chmod(0o600)
    created(cluster, 1, 2, more=(f"--password-file={tmp_path / 'good'}",))
    [stranger] = mesh_of(cluster, 3, more=(f"--password-file={tmp_path / 'bad'}",))
    stranger.spawn().says("MESH-002", seconds=30)
    assert stranger.state["ring"] is None
    stranger.signal(signal.SIGTERM)
    stranger.wait()


@pytest.mark.parametrize("command", [("leave",), ("rmpeer", "node2"), ("adopt", "00"), ("create",)])
def test_what_cannot_be_done_is_refused_and_said(cluster: Cluster, command: tuple[str, ...]):
    [node] = created(cluster, 1, peers=())
    said = node.mesh(*command, "--yes", check=False)
    assert said == ""
    assert node.ready


def test_the_five_commands_of_the_page_make_a_cluster(cluster: Cluster):
    text = PAGE.read_text().replace("10.0.0.", "172.31.0.")
    typed = re.findall(r"^(node\d)# (.*)$", text, re.MULTILINE)
    assert len(typed) == 5
    nodes = {node.name: node for node in mesh_of(cluster, 1, 2, 3, peers=())}
    said = ""
    for name, command in typed:
        node, (program, *words) = nodes[name], shlex.split(command)
        if program == "weftd":
            assert words.pop(0) == "--mesh"
            node.spawn(*words).says("MESH-001")
        else:
            for each in nodes.values() if words[1:2] == ["peers"] else ():
                each.wait_ready()
            assert words.pop(0) == "mesh"
            said = eventually(lambda node=node, words=words: node.mesh(*words))
    assert {line.split("-")[0] for line in said.splitlines()[1:]} == {"node1", "node2", "node3"}
    assert reaches(nodes["node2"].pod(), nodes["node3"].pod().ips[0])


VXLAN, WIREGUARD = "udp dport 8472", "udp dport 51820"


def drop(node: MeshNode, *others: MeshNode, what: Sequence[str] = (VXLAN, WIREGUARD)) -> None:
    """Have a node hear nothing of that from these."""
    node.netns.run("nft add table ip blocked")
    node.netns.run("nft 'add chain ip blocked input { type filter hook prerouting priority -400; }'")
    for other in others:
        for each in what:
            node.netns.run(f"nft add rule ip blocked input ip saddr {other.public_v4} {each} drop")


def goes_by(here: MeshNode, there: MeshNode, relay: MeshNode) -> bool:
    """Tell whether packets for pods of `there` go to `relay` first, perhaps itself, by vxlan."""
    return f"via {relay.v4.network_address} " in here.ip(f"route show {there.v4}")


def goes_direct(here: MeshNode, there: MeshNode) -> bool:
    return " dev flannel-wg " in here.ip(f"route show {there.v4}")


def test_n2_packets_go_by_wireguard_or_a_relay_while_the_ways_before_are_blocked_and_straight_after_it(
    cluster: Cluster,
):
    one, other, relay = created(cluster, 1, 2, 3)
    here, there = one.pod(), other.pod()
    eventually(lambda: " answers " in other.mesh("ways", "node1"), seconds=30)  # by WireGuard, which is spare
    with Stream(here, there, there.ips[0], every=0.01) as stream:
        drop(one, other, what=[VXLAN])
        eventually(lambda: goes_direct(one, other) and goes_direct(other, one), seconds=40)
        eventually(lambda: reaches(here, there.ips[0]), seconds=20)
        eventually(lambda: "direct: port-filtered" in one.netns.run(f"{WEFT} peers"), seconds=40)
        drop(one, other)
        eventually(lambda: goes_by(one, other, relay) and goes_by(other, one, relay), seconds=40)
        eventually(lambda: reaches(here, there.ips[0]), seconds=20)
        one.netns.run("nft delete table ip blocked")
        eventually(lambda: goes_by(one, other, other) and goes_by(other, one, one), seconds=60)
        assert reaches(here, there.ips[0])
    assert stream.whole, stream.fault


def test_n3_n12_packets_go_on_where_large_ones_are_lost_and_pods_are_told_what_passes(cluster: Cluster):
    one, other = created(cluster, 1, 2)
    here, there = one.pod(), other.pod()
    with Stream(there, here, here.ips[0], every=0.0001) as stream:  # in segments as large as they may be
        drop(one, other, what=[f"{VXLAN} meta length 1441-65535"])
        for each, to in ((one, other), (other, one)):
            eventually(lambda each=each, to=to: " mtu 1380" in each.ip(f"route show {to.v4}"), seconds=40)
        ping = f"ping -c 1 -W 2 -s 1390 {there.ips[0]}"
        eventually(lambda: "1 received" in here.run(ping, check=False), seconds=20)
        assert "vxlan: mtu" in one.netns.run(f"{WEFT} peers")
    assert stream.whole, stream.fault


def test_n1_another_relay_is_taken_when_the_first_one_is_lost(cluster: Cluster):
    one, other, *relays = created(cluster, 1, 2, 3, 4)
    here, there = one.pod(), other.pod()
    with here.popen(["ping", "-q", "-i", "0.1", str(there.ips[0])]) as pings:
        drop(one, other)
        eventually(lambda: any(goes_by(one, other, relay) for relay in relays), seconds=40)
        eventually(lambda: reaches(here, there.ips[0]), seconds=20)
        first, second = relays if goes_by(one, other, relays[0]) else relays[::-1]
        drop(first, one, other, second)
        eventually(lambda: goes_by(one, other, second) and goes_by(other, one, second), seconds=40)
        eventually(lambda: reaches(here, there.ips[0]), seconds=20)
        pings.terminate()


def test_a_node_leaves_and_one_that_is_lost_is_removed(cluster: Cluster):
    stays, leaves, lost, other = created(cluster, 1, 2, 3, 4)
    here, there = stays.pod(), other.pod()
    with nothing_lost(here, there, there.ips[0]):
        subnet = str(leaves.v4)
        leaves.mesh("leave", "--yes")
        for node in (stays, other):
            eventually(lambda node=node: subnet not in node.routes(), seconds=20)
        leaves.says("MESH-007 mesh: this node has left the mesh", seconds=20)
        leaves.stop()

        subnet = str(lost.v4)
        lost.kill()
        assert "answers" in stays.netns.run(f"{WEFT} mesh rmpeer node4 --yes 2>&1", check=False)
        eventually(lambda: not any(lost.name in link for peer in stays.state["peers"] for link in peer["links"]))
        eventually(lambda: "weftd does so" in stays.mesh("rmpeer", lost.name, "--yes", check=False), seconds=20)
        for node in (stays, other):
            eventually(lambda node=node: subnet not in node.routes(), seconds=40)
        assert stays.state["ring"]["resting"] > 0
        lost.spawn().says("MESH-005.*this node was removed from the mesh", seconds=60)
        eventually(lambda: str(lost.v4) != subnet, seconds=20)
        lost.wait_ready()
        eventually(lambda: str(lost.v4) in stays.routes(), seconds=20)


def test_a_node_that_has_lost_its_store_is_served_as_another(cluster: Cluster):
    """Its devices have the MACs of what it was, whose lease stays until that is removed."""
    one, _, lost = created(cluster, 1, 2, 3)
    here, before = one.pod(), str(lost.v4)
    lost.stop()
    [store] = lost.state_dir.glob("mesh-*/store")
    shutil.rmtree(store)
    lost.spawn()
    eventually(lambda: lost.subnet_file.exists() and str(lost.v4) != before, seconds=40)
    lost.wait_ready()
    there = lost.pod()
    eventually(lambda: reaches(here, there.ips[0]), seconds=40)
