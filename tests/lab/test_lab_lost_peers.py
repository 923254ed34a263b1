"""What a node says of a peer that it has lost: what is proved, by doctor and trace, whatever else is wrong there."""

import json
from typing import Any

import pytest

from tests.support.lab import Lab, lab
from tests.support.weftd import eventually

GONE = "kill -9 $(pgrep -x weftd); ip link delete flannel.1"
EATEN = (
    "nft add table netdev eats; nft 'add chain netdev eats in { type filter hook ingress device eth0 priority 0; };'"
    " 'add rule netdev eats in udp dport 8472 drop'"
)
MUTE = "nft 'table inet mute { chain c { type filter hook input priority 0; icmp type echo-request drop; }; }'"
REJECTS = "nft 'table inet fw { chain c { type filter hook input priority 0; udp dport 8472 reject with icmpx %s; }; }'"
DROPS = "nft 'table inet fw { chain c { type filter hook output priority 0; udp dport 8472 drop; }; }'"
VPN = "ip rule add pref 5270 lookup 52; ip route add 10.244.0.0/16 via 172.31.0.1 dev eth0 table 52"
# What is done on node2, on node1, and the codes of what node1 may find then.
LOST = {
    "gone": (GONE, "", {"VTEP-004"}),
    "cleaned": ("kill $(pgrep -x weftd); sleep 1; weft cleanup", "", {"VTEP-004"}),
    "gone, and errors are rare": (f"sysctl -qw net.ipv4.icmp_ratelimit=3000; {GONE}", "", {"VTEP-004", "REACH-001"}),
    "gone, and no errors": (f"sysctl -qw net.ipv4.icmp_ratelimit=600000; {GONE}", "", {"VTEP-004", "REACH-001"}),
    "gone, and mute": (f"{GONE}; {MUTE}", "", {"VTEP-004"}),
    "mute": (MUTE, "", {"REACH-001"}),
    "eaten": (EATEN, "", {"REACH-002"}),
    "eaten, and gone": (f"{EATEN}; {GONE}", "", {"REACH-002"}),
    "eaten, and mute": (f"{EATEN}; {MUTE}", "", {"REACH-001"}),
    "rejected": (REJECTS % "admin-prohibited", "", {"REACH-001"}),
    "refused by a firewall": (REJECTS % "port-unreachable", "", {"VTEP-004"}),
    "a VPN": ("", VPN, {"ROUTE-002"}),
    "a VPN, and gone": (GONE, VPN, {"ROUTE-002"}),
    "own rules": ("", DROPS, {"REACH-001"}),
}


@pytest.fixture
def running():
    with lab("--nodes", "2", "--pods", "1") as running:
        yield running


def findings(running: Lab, node: str = "node1") -> list[Any]:
    ran = running.weft("exec", node, "--", "weft", "doctor", "-o", "json", check=False)
    assert ran.stdout, ran.stderr
    found: list[Any] = json.loads(ran.stdout)["findings"]
    return found


def script(running: Lab, node: str, commands: str) -> None:
    if commands:
        running.run(node, "sh", "-ec", commands)


def verdict(running: Lab, source: str = "pod1-1", target: str = "pod2-1") -> Any:
    return json.loads(running.weft("trace", "-o", "json", source, target, check=False).stdout)


@pytest.mark.parametrize("what", LOST)
def test_of_a_lost_peer_what_is_proved_is_said(running: Lab, what: str):
    there, here, expected = LOST[what]
    script(running, "node2", there)
    script(running, "node1", here)
    # Asked again and again: a node spares its errors, and the answer is the same.
    for _ in range(2):
        found = findings(running)
        assert {each["code"] for each in found} <= expected, found
        assert found
        proved = {each["code"] for each in found} == {"REACH-002"}
        assert all(("for all nodes" in each["hint"]) == proved for each in found), found


# As short as the kernel's time of a neighbour's that is not asked again can be; it is half a minute and more otherwise.
FORGETS = "; ".join(
    f"sysctl -qw net.{family}.neigh.eth0.base_reachable_time_ms=500 net.{family}.neigh.eth0.delay_first_probe_time=1"
    for family in ("ipv4", "ipv6")
)


@pytest.mark.parametrize("family", ["46", "6"])
def test_in_both_families_alike(family: str):
    with lab("--nodes", "2", "--pods", "1", "--family", family) as running:
        script(running, "node1", FORGETS)
        script(
            running, "node2", "kill -9 $(pgrep -x weftd); ip link delete flannel.1 || true; ip link delete flannel-v6.1"
        )
        assert {each["code"] for each in findings(running)} == {"VTEP-004"}
        script(running, "node2", "ip link set eth0 down")
        said = eventually(lambda: [e for e in findings(running) if "does not answer" in e["seen"]], seconds=120)
        assert {each["code"] for each in said} == {"LEASE-005"}
        assert "neighbour discovery" in said[0]["seen"]


def test_of_a_node_that_is_off_its_link_is_named_and_by_the_others_its_silence(running: Lab):
    running.weft("stop", "node2")
    running.run("node1", "ip", "neigh", "flush", "dev", "eth0")
    assert "node2: IFACE-002 link eth0: it has no carrier" in verdict(running)["verdict"]  # a lab looks there, too
    said_to_be_silent(running)


def test_a_peer_that_is_cut_off_is_said_to_be_silent(running: Lab):
    running.weft("partition", "node1", "node2")
    running.run("node1", "ip", "neigh", "flush", "dev", "eth0")
    found = verdict(running)
    assert found["verdict"].startswith("REACH-001 link eth0: 172.31.0.12 does not answer ARP on eth0"), found["verdict"]
    [silent] = [hop for leg in found["legs"] for hop in leg["way"]["hops"] if hop["suspect"]]
    assert silent["suspect"]["code"] == "REACH-001"
    assert found["legs"][-1]["way"]["end"] == "lost"
    text = running.weft("trace", "pod1-1", "pod2-1", check=False).stdout
    assert "? " in text
    assert " · 0  outer packet by" in text
    assert "✓    delivered" not in text
    said_to_be_silent(running)


def said_to_be_silent(running: Lab) -> None:
    """What node1 alone finds out: its own trace and its doctor."""
    source, target = (running.pod(name)["addresses"][0].split("/")[0] for name in ("pod1-1", "pod2-1"))
    alone = running.weft("exec", "node1", "weft", "trace", "--probe", source, target, check=False).stdout
    assert "172.31.0.12 does not answer ARP on eth0" in alone.splitlines()[-1]
    [said] = findings(running)
    assert said["code"] == "LEASE-005"
    assert "172.31.0.12 does not answer ARP on eth0" in said["seen"]


def test_a_vpn_s_rule_and_table_are_named_with_the_command_that_helps(running: Lab):
    script(running, "node1", VPN)
    found = verdict(running)
    removes = "ip -4 route delete 10.244.0.0/16 via 172.31.0.1 dev eth0 table 52"
    assert found["problem"]["code"] == "ROUTE-002"
    assert removes in found["verdict"]
    [said] = findings(running)
    assert "rule '5270: from all lookup 52'" in said["seen"]
    assert said["hint"].endswith(removes)
    running.run("node1", *removes.split(" "))
    assert not findings(running)
    assert verdict(running)["well"]


def test_a_pod_and_a_node_trace_themselves(running: Lab):
    for name in ("pod1-1", "node1"):
        found = verdict(running, name, name)
        assert (found["well"], found["reached"]) == (True, 3)
        assert {device for leg in found["legs"] for device in leg["counted"]} == {"lo"}
        assert all(count == 3 for leg in found["legs"] for count in leg["counted"].values())
