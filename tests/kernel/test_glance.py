"""The daemon's cheap look: what it finds is what the doctor finds, and it reads no more than it may."""

import json
from pathlib import Path

import pytest

from tests.support.netns import Netns
from weft.diag.checks import CHECKS, EACH_MINUTE
from weft.diag.finding import ask
from weft.diag.sight.look import Places
from weft.diag.sight.node import Sight
from weft.diag.sight.quick_look import glance
from weft.model.node.nodestate import LeaseState, NetworkState, NodeState, PeerState, UplinkState

NETWORK = {"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}
STATE = NodeState(
    version="1",
    instance="a",
    pid=1,
    seconds=9,
    ready=True,
    parts={},
    losses={},
    store=None,
    faults=0,
    network=NetworkState(networks=["10.244.0.0/16"], backend="host-gw", mtu=1500, devices=[]),
    uplink=UplinkState(name="eth0", index=2, mtu=1500, addresses=["192.0.2.1"], why=""),
    lease=LeaseState(id="x", subnets=["10.244.1.0/24"], public=["192.0.2.1"], confirmed=True),
    peers=[PeerState(id="y", subnets=["10.244.2.0/24"], public=["192.0.2.2"], backend="host-gw")],
)
CHAIN = "add chain inet t f { type filter hook forward priority 0; %s }"


@pytest.fixture
def node(netns: Netns, tmp_path: Path) -> Netns:
    netns.bridge("eth0", "192.0.2.1/24")
    netns.bridge("cni0", "10.244.1.1/24")
    netns.run("sysctl -qw net.ipv4.ip_forward=1; ip route add 10.244.2.0/24 via 192.0.2.2")
    (tmp_path / "10-net.conflist").write_text(json.dumps(NETWORK))
    return netns


def look(node: Netns, folder: Path) -> Sight:
    return node.call(lambda: glance(STATE, Places(conf_dir=folder)))


def codes(node: Netns, folder: Path) -> list[str]:
    sight = look(node, folder)
    diagnosis = ask(EACH_MINUTE, sight)
    assert not sight.unseen
    assert not [answer.unseen for answer in diagnosis.answers if answer.unseen]
    return [finding.problem.code for finding in diagnosis.findings]


def test_what_it_finds(node: Netns, tmp_path: Path):
    assert not codes(node, tmp_path)
    node.run(f"nft 'add table inet t; {CHAIN % 'policy drop;'}'")
    assert codes(node, tmp_path) == ["FW-002"]
    node.run("nft delete table inet t; sysctl -qw net.ipv4.conf.cni0.forwarding=0")
    assert codes(node, tmp_path) == ["KERN-002"]
    node.run("sysctl -qw net.ipv4.conf.cni0.forwarding=1; iptables -P FORWARD DROP")
    node.run("iptables -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT; iptables -t nat -N SOMEBODYS")
    assert codes(node, tmp_path) == ["FW-002"]
    assert not [place for place in look(node, tmp_path).rules.chains if place[1] == "nat"]


@pytest.mark.parametrize("each, where", [(500, "s"), (120, "t")], ids=["of a table", "of all tables together"])
def test_rules_that_are_too_long_are_left_to_the_doctor(node: Netns, tmp_path: Path, each: int, where: str):
    rules = "".join(
        f"add rule inet T f ip saddr 10.{n // 256}.{n % 256}.1 tcp dport {n + 1} drop\n" for n in range(each)
    )
    many = f"add table inet T\n{CHAIN % ''}\n{rules}".replace(" inet t ", " inet T ")
    node.run("nft -f -", input=many.replace("T", "s") + many.replace("T", "t"))
    sight = look(node, tmp_path)
    long = f"nft -j list table inet {where}: more than 56 KiB of rules; `weft doctor` reads them"
    assert sight.unseen == {"rules": long}
    assert sight.rules.chains == {}
    assert not ask(EACH_MINUTE, sight).findings


def test_programs_that_fail_are_told(node: Netns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("weft.diag.sight.quick_look._TABLES", ("false",))
    assert look(node, tmp_path).unseen == {"rules": "false: exit 1"}
    monkeypatch.setattr("weft.diag.sight.quick_look._TABLES", ("no-such-program",))
    assert look(node, tmp_path).unseen == {"rules": "No such file or directory"}


def test_its_checks_are_the_doctors():
    assert set(EACH_MINUTE) < set(CHECKS)
    assert len(EACH_MINUTE) == 7
