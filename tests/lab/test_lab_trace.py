"""`weft lab trace` says where a packet of a lab is lost, and why; what it predicts to arrive, arrives."""

import json
from typing import Any

import pytest

from tests.support.lab import Lab, lab
from tests.support.weftd import eventually

# Faults of a packet's way from pod1-1 to pod2-1 that last, and on which node and by which code it is said.
LOST = {
    "forward-dropped": "FW-002",
    "forwarding-off-bridge": "KERN-002",
    "firewalld-rejects": "FW-001",
    "route-stale": "ROUTE-002",
    "port-blocked": "REACH-001",
    "uplink-down": "IFACE-002",
}


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2", "--pods", "2") as running:
        yield running


def trace(running: Lab, source: str, target: str, *options: str) -> Any:
    ran = running.weft("trace", "-o", "json", source, target, *options, check=False)
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert ran.returncode == (0 if found["reached"] == found["tried"] else 3)
    return found


REFUSED = "it arrives, and is refused: nothing listens at the port"


@pytest.mark.parametrize(
    "source, target, legs",
    [
        ("pod1-1", "pod2-1", 8),
        ("pod1-1", "pod1-2:80", 6),
        ("pod1-2", "pod2-1:80 --udp", 8),
        ("node1", "pod2-2", 6),
        ("pod2-1", "node1:80", 6),
    ],
)
def test_what_arrives_is_predicted_to(running: Lab, source: str, target: str, legs: int):
    found = trace(running, source, *target.split(" "))
    assert found["verdict"] == (REFUSED if ":80" in target else "it arrives, and the answer comes back")
    assert (found["problem"], found["reached"], found["tried"]) == (None, 3, 3)
    assert len(found["legs"]) == legs
    assert {leg["way"]["end"] for leg in found["legs"]} == {"sent", "delivered"}


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("node", ["node1", "node2"])
def test_what_is_lost_is_lost_where_it_is_said(running: Lab, fault: str, node: str):
    running.weft("break", node, fault)
    try:
        found = trace(running, "pod1-1", "pod2-1")
        last = found["legs"][-1]
        assert last["way"]["problem"]["code"] == LOST[fault], found["verdict"]
        assert last["node"] == node
        assert found["verdict"].startswith(("the packet is dropped on", "the answer is dropped on"))
        assert not found["reached"]
    finally:
        running.weft("break", node, fault, "--mend")
    eventually(lambda: trace(running, "pod1-1", "pod2-1")["reached"] == 3, seconds=30)


# Rules of several families, and what the trace says of them. Each takes the outer packets.
UNREAD = {
    "raw": (
        "nft add table ip x; nft 'add chain ip x p { type filter hook prerouting priority raw; }'",
        "nft add rule ip x p udp dport 8472 drop",
        "of ip x p (handle 2): 'udp dport 8472 drop', as the kernel tells",
    ),
    "ingress": (
        "nft add table netdev x; nft 'add chain netdev x p { type filter hook ingress device eth0 priority 0; }'",
        "nft add rule netdev x p udp dport 8472 drop",
        "rule 'udp dport 8472 drop' of netdev x p (handle 2) drops them, as the kernel tells",
    ),
    "bridge": (
        "nft add table bridge x; nft 'add chain bridge x p { type filter hook output priority 0; }'",
        "nft add rule bridge x p ip daddr 10.244.2.0/24 drop",
        "rule 'ip daddr 10.244.2.0/24 drop' of bridge x p (handle 2) drops them, as the kernel tells",
    ),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_the_kernel_names_the_rule_that_drops_outer_packets_or_frames(running: Lab, kind: str):
    chain, rule, named = UNREAD[kind]
    running.run("node2", "sh", "-c", f"{chain}; {rule}")
    try:
        found = trace(running, "pod1-1", "pod2-1")
        said = running.weft("trace", "pod1-1", "pod2-1", check=False).stdout
    finally:
        running.run("node2", "nft", "delete", "table", *rule.split()[3:5])
    assert named in found["verdict"]
    assert "pod2-1, there" not in said
    assert "weft-trace" not in running.run("node2", "nft", "list", "tables")


# What breaks and mends a node, in ways that no rule or route of the walk shows: the kernel counts what it drops.
STRICT = "net/ipv4/conf/flannel.1/rp_filter"
COUNTED = {
    "XfrmOutPolBlock": (
        "ip xfrm policy add src 172.31.0.11/32 dst 172.31.0.12/32 dir out action block",
        "ip xfrm policy delete src 172.31.0.11/32 dst 172.31.0.12/32 dir out",
        "XFRM-001",
    ),
    "TcpExt.IPReversePathFilter": (
        f"sysctl -qw {STRICT}=1; ip route add 10.244.1.0/24 dev lo table 77; ip rule add to 10.244.1.0/24 lookup 77",
        f"sysctl -qw {STRICT}=0; ip rule delete lookup 77; ip route flush table 77",
        "KERN-003",
    ),
}


@pytest.mark.parametrize("counter", COUNTED)
def test_what_the_kernel_counts_is_its_word_for_a_loss(running: Lab, counter: str):
    breaks, mends, code = COUNTED[counter]
    node = "node1" if code == "XFRM-001" else "node2"
    running.run(node, "sh", "-c", breaks)
    try:
        found = trace(running, "pod1-1", "pod2-1")
    finally:
        running.run(node, "sh", "-c", mends)
    assert (found["problem"]["code"], found["problem"]["where"]) == (code, node), found["verdict"]
    assert f"its counter {counter} grew by" in found["verdict"]


def test_a_pod_reaches_itself_by_its_own_loopback(running: Lab):
    found = trace(running, "pod1-1", "pod1-1")
    assert [(leg["pod"], leg["counted"]) for leg in found["legs"]] == [("pod1-1", {"lo": 3})] * 2
    assert found["verdict"] == "it arrives, and the answer comes back"


def test_behind_the_place_of_a_loss_no_step_is_reached(running: Lab):
    running.weft("break", "node2", "port-eaten")
    try:
        found = trace(running, "pod1-1", "pod2-1")
        said = running.weft("trace", "pod1-1", "pod2-1", check=False).stdout
    finally:
        running.weft("break", "node2", "port-eaten", "--mend")
    hops = [hop for leg in found["legs"] for hop in leg["way"]["hops"]]
    reached = [hop["reached"] for hop in hops]
    assert reached == sorted(reached, reverse=True)
    assert next(hop["device"] for hop in hops if not hop["reached"]) == "flannel.1"
    assert {leg["way"]["end"] for leg in found["legs"] if not leg["way"]["hops"][-1]["reached"]} == {"lost"}
    assert "delivered" not in [line.strip() for line in said.splitlines()]


def test_a_node_proves_its_own_part(running: Lab):
    source, target = (running.pod(name)["addresses"][0].split("/")[0] for name in ("pod1-1", "pod2-1"))
    found = json.loads(running.run("node1", "weft", "trace", "--probe", "-o", "json", source, target))
    assert (found["verdict"], found["reached"]) == ("it arrives, and the answer comes back", 3)
    assert [leg["pod"] or leg["node"] for leg in found["legs"]] == ["pod1-1", "node1", "node1", "pod1-1"]
    assert {count for leg in found["legs"] for count in leg["counted"].values()} == {3}
    running.weft("break", "node2", "port-eaten")
    try:
        ran = running.weft("exec", "node1", "weft", "trace", "--probe", source, target, check=False)
    finally:
        running.weft("break", "node2", "port-eaten", "--mend")
    assert ran.returncode == 3
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("REACH-001 node1 to 172.31.0.12: eth0 of node1 sent 3, and eth0 received 0 answers.")


@pytest.fixture
def web(running: Lab):
    running.weft("expose", "web", "--port", "80", "--target-port", "8080", "--node-port", "30080", "pod1-1", "pod2-1")
    yield running
    running.weft("unexpose", "web")


def test_services_are_followed_through_nat(web: Lab):
    for source, target in (("pod1-2", "web:80"), ("pod2-2", "node1:30080"), ("node2", "web:80"), ("pod1-1", "web:80")):
        found = trace(web, source, target)
        assert found["verdict"] == REFUSED, (source, target)
        assert found["tried"] + found["elsewhere"] == 12
        assert 0 < found["reached"] == found["tried"]
        hops = [hop for leg in found["legs"] for hop in leg["way"]["hops"] if hop["what"] == "DNAT"]
        assert ["by chance" in hop["seen"] for hop in hops] == [True]
    # From a node port of another node the packet goes on to the endpoint's node, and the answer the same way back.
    found = trace(web, "pod1-2", "node2:30080")
    order = [leg["node"] for leg in found["legs"] if not leg["pod"]]
    assert order == ["node1", "node2", "node1", "node1", "node2", "node1"]
    assert found["reached"] == found["tried"]
    refused = web.weft("trace", "pod1-1", "web", check=False)
    assert (refused.returncode, "Service web without a port; expected web:80" in refused.stderr) == (2, True)


def test_a_service_that_is_lost_is_lost_where_it_is_said(web: Lab):
    web.run(
        "node1", "sh", "-c", "nft add table ip x && nft 'add chain ip x f { type filter hook forward priority 5; }'"
    )
    web.run("node1", "nft", "add", "rule", "ip", "x", "f", "tcp", "dport", "8080", "drop")
    try:
        found = trace(web, "pod1-2", "web:80")
        assert found["verdict"].startswith("the packet is dropped on node1: FW-002 forward of tcp 10.244.")
        assert "dropped by rule of ip x f" in found["verdict"]
    finally:
        web.run("node1", "nft", "delete", "table", "ip", "x")
    web.run("node1", "nft", "flush", "table", "ip", "weft-lab-services")
    # The second is behind the Service itself: what it sends is no packet that has come to it.
    for source, target in (("pod1-2", "web:80"), ("pod1-2", "node1:30080"), ("pod1-1", "node1:30080")):
        found = trace(web, source, target)
        assert (found["problem"]["code"], found["reached"]) == ("SVC-001", 0)
        assert found["verdict"].startswith("the packet is dropped on node1: SVC-001")
    # A rule that chooses a table for what one pod sends.
    own = web.pod("pod1-2")["addresses"][0].split("/")[0]
    web.run("node1", "ip", "rule", "add", "from", own, "priority", "77", "prohibit")
    try:
        found = trace(web, "pod1-2", "pod2-1")
        assert found["problem"]["code"] == "ROUTE-001"
        assert f"rule 77: from {own}/32 action 8" in found["verdict"]
        assert trace(web, "pod1-1", "pod2-1")["reached"] == 3
    finally:
        web.run("node1", "ip", "rule", "delete", "priority", "77")


def test_for_people(running: Lab):
    said = running.weft("trace", "pod1-1", "pod2-1:80").stdout
    assert said.startswith("pod1-1, there\n   1 ✓ +3 sent by  eth0\n     sent\nnode1, there\n   1 ✓ +3 host end")
    assert said.endswith(f"3 of 3 probes were answered\n{REFUSED}\n")


def test_for_learners(running: Lab):
    said = running.weft("trace", "--explain", "pod1-1", "pod2-1").stdout
    assert "6 ✓    neighbour" in said
    assert "       The entry that says which MAC has an address" in said
    drawn = running.weft("trace", "-o", "mermaid", "pod1-1", "pod2-1").stdout
    assert drawn.startswith("sequenceDiagram\n  participant p0 as pod1-1\n  participant p1 as node1\n")
    assert "  p1->>p2: VXLAN 1, UDP port 8472\n" in drawn
    assert "✓ +3 out by: flannel.1, MTU 1450<br/>" in drawn
    own, other = (running.pod(pod)["addresses"][0].split("/")[0] for pod in ("pod1-1", "pod2-1"))
    drawn = running.run("node1", "weft", "trace", "-o", "mermaid", own, other)
    assert drawn.startswith(f"sequenceDiagram\n  participant p0 as {own}\n  participant p1 as this node\n")
    assert "  p1->>p2: VXLAN 1, UDP port 8472\n" in drawn
    assert "Of all routes that have the target" in running.run("node1", "weft", "trace", "--explain", own, other)


def test_an_unknown_place_is_refused(running: Lab):
    refused = running.weft("trace", "pod1-1", "pod9", check=False)
    assert refused.returncode == 2
    assert "expected one of node1, node2, pod1-1" in refused.stderr
    refused = running.weft("trace", "pod1-1", "pod2-1:http", check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "FLAG-001 weft lab trace: pod2-1:http: port 'http'; expected 1 to 65535" in refused.stderr


def test_the_entry_that_sends_packets_to_no_node_is_named(running: Lab):
    # A switch takes no frame back to where it comes from.
    own = running.run("node1", "cat", "/sys/class/net/eth0/address").strip()
    running.run("node1", "ip", "neigh", "replace", "172.31.0.12", "lladdr", own, "dev", "eth0")
    try:
        found = trace(running, "pod1-1", "pod2-1")
        fixed = f"172.31.0.12 has a permanent neighbour entry on eth0, {own}"
        assert found["verdict"].startswith(f"NEIGH-002 link eth0: {fixed}")
    finally:
        running.run("node1", "ip", "neigh", "delete", "172.31.0.12", "dev", "eth0")


def test_a_probe_that_is_not_sent_is_dropped_by_the_pods_own_policy(running: Lab):
    running.run("pod1-1", "nft", "add table ip x")
    running.run("pod1-1", "nft", "add chain ip x o { type filter hook output priority 0; policy drop; }")
    try:
        verdict = trace(running, "pod1-1", "pod2-1")["verdict"]
        assert verdict.startswith("CHECK-002 pod pod1-1: the policy of chain o of ip x drops them, as the kernel tells")
    finally:
        running.run("pod1-1", "nft", "delete table ip x")


def test_by_ipv6():
    with lab("--nodes", "2", "--pods", "1", "--family", "46") as both:
        found = trace(both, "pod1-1", "pod2-1", "-6")
        assert found["verdict"] == "it arrives, and the answer comes back"
        assert found["legs"][1]["way"]["carried"].startswith("VXLAN 1")
        for port in (":80", ":80 --udp"):
            assert trace(both, "pod1-1", f"pod2-1{port.split()[0]}", "-6", *port.split()[1:])["reached"] == 3


def test_by_hand_on_a_node(running: Lab):
    address = running.pod("pod2-1")["addresses"][0].split("/")[0]
    own = running.pod("pod1-1")["addresses"][0].split("/")[0]
    said = running.weft("exec", "node1", "--", "weft", "trace", own, f"{address}:53", "--udp")
    assert f"udp {own} to {address}:53\n" in said.stdout
    for arguments in ((own, "fd00::1"), (own, f"{address}:0"), (own, "nowhere")):
        refused = running.weft("exec", "node1", "--", "weft", "trace", *arguments, check=False)
        assert refused.returncode == 2
        assert "FLAG-001 weft trace: " in refused.stderr
