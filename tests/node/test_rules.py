"""Firewall rules of a running daemon, of both kinds: made, kept, replaced, put back (flannel.md §8)."""

import socket
import sys

import pytest

from tests.support.firewall import only
from tests.support.traffic import Capture, reaches
from tests.support.weftd import DUAL, VXLAN, Cluster, Daemon, eventually

NFT = {"EnableNFTables": True}
KINDS = pytest.mark.parametrize("kind", [{}, NFT], ids=["iptables", "nft"])


def rules(node: Daemon) -> str:
    """All rules in our tables, however they were made, without counters."""
    return node.netns.run(
        """for family in 4 6; do
            nft -s list table ip${family#4} flannel-ipv$family || true
            for table in nat filter; do ip${family#4}tables-save -t $table; done
        done 2>/dev/null | grep -vE '^[#:]' || true"""
    )


@pytest.mark.spec("flannel.md §1.5/13-traffic-manager", "flannel.md §1.5/14-masquerade", "flannel.md §1.5/15-forward")
@pytest.mark.spec("flannel.md §2.2/EnableNFTables", "flannel.md §8/families")
def test_the_rules_are_those_of_the_flags_and_the_configuration(cluster: Cluster):
    cluster.configure(VXLAN, DUAL)
    node = cluster.node(1).start()
    assert "FLANNEL-FWD" in rules(node)
    assert "POSTRTG" not in rules(node)
    node.stop()
    node.start("--ip-masq", "--iptables-forward-rules=false")
    assert "FLANNEL-FWD" not in rules(node)
    for program in ("iptables-save", "ip6tables-save"):
        assert "FLANNEL-POSTRTG" in node.netns.run(program)
    node.stop()
    cluster.configure(VXLAN, DUAL, EnableNFTables=True)
    node.start("--ip-masq")
    tables = node.netns.run("nft list tables")
    assert "table ip flannel-ipv4" in tables
    assert "table ip6 flannel-ipv6" in tables
    eventually(lambda: "FLANNEL" not in node.netns.run("iptables-save; ip6tables-save"))


@KINDS
def test_rules_that_someone_removes_or_changes_are_put_back_and_named(cluster: Cluster, kind):
    cluster.configure(VXLAN, DUAL, **kind)
    node = cluster.node(1).start("--ip-masq")
    before = rules(node)
    postrtg = "ip flannel-ipv4 postrtg" if kind else "ip nat FLANNEL-POSTRTG"
    changes = [
        f"nft flush chain {postrtg}",
        f"nft add rule {postrtg} counter accept",
        "nft delete table ip6 flannel-ipv6" if kind else "ip6tables -F; ip6tables -X FLANNEL-FWD",
        "nft flush ruleset",
    ]
    if not kind:
        changes += ["iptables -t nat -D POSTROUTING 1", "iptables -F FORWARD", "iptables -F FLANNEL-FWD"]
    for change in changes:
        known = len(node.lines("NFT-002: put back"))
        node.netns.run(change)
        eventually(lambda n=known: len(node.lines("NFT-002: put back")) > n)
        eventually(lambda: rules(node) == before)
    assert not node.lines("ERROR|someone keeps changing")


@pytest.mark.spec("flannel.md §1.5/12-other-manager-cleaned")
@pytest.mark.spec("flannel.md §8.4/iptables-cleaned", cases="nft")
@pytest.mark.spec("flannel.md §8.5/clean-up", cases="iptables")
@KINDS
def test_leftovers_of_the_other_kind_go(cluster: Cluster, kind):
    other = {"EnableNFTables": not kind}
    cluster.configure(VXLAN, other)
    node = cluster.node(1).start("--ip-masq")
    foreign = "nft add table ip mine; nft add chain ip mine keep"
    node.netns.run(foreign)
    node.stop()
    cluster.configure(VXLAN, kind)
    node.start("--ip-masq")
    ours, theirs = ("flannel-ipv4", "FLANNEL-POSTRTG") if kind else ("FLANNEL-POSTRTG", "flannel-ipv4")
    assert ours in node.netns.run("nft list ruleset")
    eventually(lambda: theirs not in node.netns.run("nft list ruleset"))
    assert "table ip mine" in node.netns.run("nft list ruleset")
    # What someone brings back later goes again.
    if kind:
        node.netns.run("iptables -t nat -N FLANNEL-POSTRTG")
        eventually(lambda: "FLANNEL-POSTRTG" not in node.netns.run("nft list ruleset"))


@pytest.mark.spec("flannel.md §1.5/12-other-manager-cleaned")
@pytest.mark.spec("flannel.md §8.3/5-binary-missing", cases=("iptables", "nft"))
@KINDS
def test_the_other_kinds_programs_are_not_needed(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    node = cluster.node(1)
    node.spawn("--ip-masq", wrap=only("nft" if kind else "*tables*")).wait_ready()
    assert ("flannel-ipv4" if kind else "FLANNEL-POSTRTG") in node.netns.run("nft list ruleset")
    assert not node.lines("ERROR")


@pytest.mark.spec("flannel.md §8.3/5-binary-missing")
@KINDS
def test_without_the_program_it_is_named_and_the_network_works_all_the_same(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    cluster.peer(50)
    node = cluster.node(1)
    node.spawn("--ip-masq", wrap=only("")).says("WARN .*up, but not ready: NFT-001")
    program = "nft" if kind else "iptables"
    node.says(f"HOST-002 {program}")
    assert "10.5.50.0/24" in node.ip("route")
    assert node.subnet_file.exists()
    code, body = node.get("/readyz?verbose")
    assert code == 503
    assert f"[-]rules failed: NFT-001 firewall rules: cannot be written: HOST-002 {program}" in body


@KINDS
def test_a_node_that_needs_no_rules_needs_no_program(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    node = cluster.node(1)
    node.spawn("--iptables-forward-rules=false", wrap=only("")).wait_ready()
    assert not node.lines("NFT-001")


NO_NFNETLINK = """
import errno, os, runpy, socket, sys
from weft.kernel.netfilter import monitor as nfmonitor

class Socket(socket.socket):
    def __init__(self, *arguments, **named):
        if arguments[2:] == (nfmonitor.NETLINK_NETFILTER,):
            raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
        super().__init__(*arguments, **named)

socket.socket = Socket
sys.argv = sys.argv[3:]  # behind: python -m weft.daemon.main
runpy.run_module("weft.daemon.main", run_name="__main__")
"""


def test_a_kernel_without_notices_costs_the_speed_of_repairs_alone(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1)
    node.spawn("--ip-masq", "--iptables-resync=1", wrap=[sys.executable, "-c", NO_NFNETLINK]).wait_ready()
    node.says("WARN.*KERN-001 nf_tables notices: the kernel has none: Protocol not supported; .*--iptables-resync")
    node.netns.run("iptables -t nat -F FLANNEL-POSTRTG")
    node.says("NFT-002: put back", seconds=4)
    assert "Traceback" not in node.log


@pytest.mark.spec("flannel.md §1.5/14-masquerade")
@pytest.mark.spec("flannel.md §8.3/1-recycle", cases="iptables")
@KINDS
def test_rules_of_an_earlier_subnet_go_with_it(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    node = cluster.node(1).start("--ip-masq")
    old = node.v4
    node.stop()
    cluster.etcd.delete(cluster.key(f"{old[0]}-24"))
    cluster.peer(90, lease=f"{old[0]}-24", public="172.31.0.90")
    node.start("--ip-masq")
    assert node.v4 != old
    assert str(node.v4) in rules(node)
    assert str(old) not in rules(node)


@pytest.mark.spec("flannel.md §8.1/rules", cases="iptables")
@pytest.mark.spec("flannel.md §8.5/postrtg", cases="nft")
@KINDS
def test_pods_keep_their_address_inside_and_take_the_nodes_outside(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    one, two = (cluster.node(number).spawn("--ip-masq") for number in (1, 2))
    here, there = (node.wait_ready().pod() for node in (one, two))
    # Bridged packets would pass the rules a second time, as they do on a real node.
    inside, outside = Capture(there, "eth0"), Capture(two.netns, "eth0")
    assert reaches(here, there.ips[0])
    assert {p.source for p in inside.packets() if p.target == there.ips[0]} == {here.ips[0]}
    outside.packets()
    assert reaches(here, two.public_v4)
    pings = [p for p in outside.packets() if p.protocol == socket.IPPROTO_ICMP]  # the store is on this link, too
    assert {p.source for p in pings if p.target == two.public_v4} == {one.public_v4}
    inside.close()
    outside.close()
