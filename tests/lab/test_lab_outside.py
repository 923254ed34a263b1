"""`weft lab trace` to the outside of the pod network, and of packets of a size: what it says is what packets show."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.lab import Lab, lab
from tests.support.weftd import eventually

ANSWERED = "it arrives, and the answer comes back"
FAMILIES = pytest.mark.parametrize("family", [4, 6])
# What NAT does is the same whatever the back end; sizes are not.
VXLAN = pytest.mark.parametrize("running", ["vxlan"], indirect=True)
BACKENDS = pytest.mark.parametrize("running", ["vxlan", "host-gw"], indirect=True)
OUTSIDE = {4: "172.31.0.1", 6: "fd31::1"}
NODE1 = {4: "172.31.0.11", 6: "fd31::11"}
NOBODY = {4: "172.31.0.200", 6: "fd31::200"}
TABLES = {4: "iptables", 6: "ip6tables"}
# Who drops packets of more than 1,300 bytes between nodes, unseen by any rule that a trace reads.
NARROW = {"vxlan": "udp dport 8472 meta length > 1300 drop", "host-gw": "meta length > 1300 drop"}


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with lab("--nodes", "2", "--pods", "1", "--family", "46", "--backend", request.param) as running:
        yield running


def trace(running: Lab, source: str, target: str, family: int = 4, *options: str) -> Any:
    options = (*options, *(["-6"] if family == 6 and target.count(":") < 2 else []))
    ran = running.weft("trace", "-o", "json", source, target, *options, check=False)
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert ran.returncode == (0 if found["well"] else 3)
    return found


def measured(running: Lab, *asked: Any) -> Any:
    """A trace of packets that are too large: on a busy machine answers may come too late for a size to be told."""
    return eventually(
        lambda: found if (found := trace(running, *asked))["sized"]["largest"] is not None else {}, seconds=240
    )


def pod(running: Lab, name: str, family: int) -> str:
    addresses = [text.partition("/")[0] for text in running.pod(name)["addresses"]]
    return next(each for each in addresses if (":" in each) == (family == 6))


def said(found: Any, what: str) -> list[str]:
    return [hop["seen"] for leg in found["legs"] for hop in leg["way"]["hops"] if hop["what"] == what]


@contextmanager
def without_weftd(running: Lab, node: str = "node1") -> Iterator[None]:
    """Nobody puts back what is changed on a node."""
    running.weft("stop", f"{node}/weftd")
    try:
        yield
    finally:
        running.weft("start", f"{node}/weftd")


@contextmanager
def after(running: Lab, node: str, made: str, undone: str) -> Iterator[None]:
    """What a shell on a node makes, until the end."""
    running.run(node, "sh", "-ec", made)
    try:
        yield
    finally:
        running.run(node, "sh", "-ec", undone)


@BACKENDS
@FAMILIES
def test_what_leaves_is_seen_with_both_sources(running: Lab, family: int):
    for target in ("outside", OUTSIDE[family]):
        found = trace(running, "pod1-1", target, family)
        assert found["verdict"] == ANSWERED
        own = pod(running, "pod1-1", family)
        assert found["sources"] == [
            {"place": "pod1-1", "device": "eth0", "address": own},
            {"place": "node1", "device": "eth0", "address": NODE1[family]},
        ]
        [snat] = said(found, "SNAT")
        assert snat.startswith(f"{own} becomes {NODE1[family]}, by rule of ")
        assert [leg["pod"] or leg["node"] for leg in found["legs"]] == [
            *("pod1-1", "node1", "outside", "outside", "node1", "pod1-1")
        ]
        counts = [count for leg in found["legs"] for count in leg["counted"].values()]
        assert set(counts) == {3}
    text = running.weft("trace", "pod1-1", "outside", *(["-6"] if family == 6 else [])).stdout
    assert f"eth0, MTU 1500, from {NODE1[family]}\n" in text
    assert f"seen to come from {own} (eth0 of pod1-1), then from {NODE1[family]} (eth0 of node1)\n" in text
    # The store listens there.
    assert trace(running, "pod1-1", "outside:2379")["verdict"] == ANSWERED
    assert trace(running, "pod1-1", "outside:9", family, "--udp")["verdict"].startswith("it arrives, and is refused")


@VXLAN
@FAMILIES
def test_without_masquerade_nobody_outside_can_answer(running: Lab, family: int):
    own = pod(running, "pod1-1", family)
    with without_weftd(running):
        running.run("node1", TABLES[family], "-t", "nat", "-F", "FLANNEL-POSTRTG")
        found = trace(running, "pod1-1", "outside", family)
        begins = f"NFT-002 packets to {OUTSIDE[family]}: they leave as from {own}: no rule translates it."
        assert found["verdict"].startswith(begins)
        assert "weftd's masquerade rules are gone" in found["verdict"]
        assert [each["address"] for each in found["sources"]] == [own]
        assert found["legs"][found["last"]]["node"] == "outside"
        ran = running.weft("exec", "node1", "weft", "trace", "--probe", own, OUTSIDE[family], check=False)
        assert (ran.returncode, ran.stdout.splitlines()[-1].startswith(begins)) == (3, True)
        # Nodes know the way to pods: to another one it makes no difference.
        assert trace(running, "pod1-1", "node2", family)["verdict"] == ANSWERED
    eventually(lambda: trace(running, "pod1-1", "outside", family)["well"], seconds=240)


@VXLAN
@FAMILIES
def test_a_range_that_is_not_masqueraded_is_named_by_its_rule(running: Lab, family: int):
    command = f"{TABLES[family]} -t nat %s POSTROUTING -d {OUTSIDE[family]} -j RETURN"
    with after(running, "node1", command % "-I", command % "-D"):
        found = trace(running, "pod1-1", "outside", family)
        assert found["problem"]["code"] == "NFT-002"
        assert "nat POSTROUTING (handle " in found["problem"]["seen"]
        assert found["problem"]["seen"].endswith("spares its target")
        # It is no fault where the outside knows the way.
        route = f"ip -{family} route %s {pod(running, 'pod1-1', family)} via {NODE1[family]}"
        inside = ["nsenter", f"--net=/proc/{running.supervisor()}/ns/net", "sh", "-ec"]
        subprocess.run([*inside, route % "add"], check=True)
        try:
            found = trace(running, "pod1-1", "outside", family)
            assert (found["verdict"], len(found["sources"])) == (ANSWERED, 1)
        finally:
            subprocess.run([*inside, route % "delete"], check=True)


@VXLAN
@FAMILIES
def test_what_is_not_tracked_is_not_masqueraded_whatever_the_rules_say(running: Lab, family: int):
    own = pod(running, "pod1-1", family)
    command = f"{TABLES[family]} -t raw %s PREROUTING -s {own} -j NOTRACK"
    with after(running, "node1", command % "-A", command % "-D"):
        found = trace(running, "pod1-1", "outside", family)
        assert found["problem"]["code"] == "NFT-002"
        assert found["problem"]["seen"] == f"they leave as from {own}"
        assert said(found, "SNAT")[0].endswith(f"; yet eth0 shows {own}")


@VXLAN
@FAMILIES
def test_other_targets(running: Lab, family: int):
    silent = trace(running, "pod1-1", NOBODY[family], family)
    word = "ARP" if family == 4 else "neighbour discovery"
    assert silent["verdict"].startswith(f"REACH-001 link eth0: {NOBODY[family]} does not answer {word} on eth0.")
    far = {4: "198.51.100.7", 6: "2001:db8::7"}[family]
    lost = trace(running, "pod1-1", far, family)
    assert lost["verdict"].endswith(f"none leads to {far}. This node has no default route either")
    # Of what is no outside nothing is translated, or only for the sake of the node's own address.
    own, other = (pod(running, name, family) for name in ("pod1-1", "pod2-1"))
    for target in (NODE1[family], other, own):
        found = trace(running, "pod1-1", target, family)
        assert (found["verdict"], [each["address"] for each in found["sources"]]) == (ANSWERED, [own])
    assert said(trace(running, "node1", "outside", family), "SNAT") == []


@VXLAN
@FAMILIES
def test_a_service_by_its_address(running: Lab, family: int):
    running.weft("expose", "web", "--port", "80", "--target-port", "8080", "pod2-1")
    try:
        addresses = next(each["addresses"] for each in running.json("services") if each["name"] == "web")
        address = next(each for each in addresses if (":" in each) == (family == 6))
        found = trace(running, "pod1-1", f"[{address}]:80" if family == 6 else f"{address}:80", family)
        assert found["verdict"] == "it arrives, and is refused: nothing listens at the port"
        assert ":8080, by rule of " in said(found, "DNAT")[0]
    finally:
        running.weft("unexpose", "web")


def mtu(running: Lab) -> int:
    return int(running.node("node1")["mtu"])


@BACKENDS
@FAMILIES
def test_a_packet_of_the_pods_mtu_passes_and_one_byte_more_its_own_kernel_refuses(running: Lab, family: int):
    most = mtu(running)
    for more in ([], ["--udp"]):
        found = trace(running, "pod1-1", "pod2-1:99" if more else "pod2-1", family, "--size", str(most), *more)
        assert (found["well"], found["reached"], found["sized"]["size"]) == (True, 3, most)
    found = measured(running, "pod1-1", "pod2-1", family, "--size", str(most + 1))
    assert found["problem"]["code"] == "MTU-001"
    assert found["problem"]["where"] == "pod1-1"
    assert found["problem"]["seen"].startswith(
        f"eth0 carries packets up to {most} bytes; its own kernel tells pod1-1 MTU"
    )
    assert found["sized"]["largest"] == found["sized"]["told"]["mtu"] == most
    assert found["sized"]["told"]["by"] == ""


@BACKENDS
@FAMILIES
def test_who_is_told_and_who_is_not(running: Lab, family: int):
    """The link by which it leaves node1 is narrower than pods' links."""
    device = {4: "flannel.1", 6: "flannel-v6.1"}[family] if mtu(running) < 1500 else "eth0"
    with without_weftd(running):
        before = running.run("node1", "cat", f"/sys/class/net/{device}/mtu").strip()
        narrow = f"ip link set {device} mtu 1300", f"ip link set {device} mtu {before}"
        with after(running, "node1", *narrow):
            size = str(mtu(running))
            found = measured(running, "pod1-1", "pod2-1", family, "--size", size)
            assert found["verdict"].startswith(
                f"the packet is dropped on node1: MTU-001 {device}: {size} bytes are too"
            )
            gateway = running.run(
                "node1", "ip", "-o", f"-{family}", "address", "show", "dev", "cni0", "scope", "global"
            )
            assert found["sized"]["told"] == {"mtu": 1300, "by": gateway.split()[3].partition("/")[0]}
            assert found["sized"]["largest"] == 1300
            assert " tells pod1-1 MTU 1300; the largest" in found["problem"]["seen"]
            kind = {4: "icmp type destination-unreachable", 6: "icmpv6 type packet-too-big"}[family]
            made = (
                "nft 'add table inet z'; nft 'add chain inet z o { type filter hook output priority 0; }';"
                f" nft add rule inet z o {kind} drop"
            )
            with after(running, "node1", made, "nft delete table inet z"):
                found = measured(running, "pod1-1", "pod2-1", family, "--size", size)
                assert "; nobody tells pod1-1 the MTU; the largest that passes has 1300 bytes." in found["verdict"]
                assert found["problem"]["hint"].startswith("Something drops ICMP's") or device != "eth0"


@BACKENDS
@FAMILIES
def test_what_is_lost_between_nodes_without_a_word_is_measured(running: Lab, family: int):
    rule = NARROW["vxlan" if mtu(running) < 1500 else "host-gw"]
    made = (
        "nft add table netdev d; nft 'add chain netdev d i { type filter hook ingress device eth0 priority 0; }';"
        f" nft 'add rule netdev d i {rule}'"
    )
    around = {4: 50, 6: 70}[family] if mtu(running) < 1500 else 0
    with after(running, "node2", made, "nft delete table netdev d"):
        for target, more in (("pod2-1", []), ("pod2-1:99", ["--udp"])):
            found = measured(running, "pod1-1", target, family, "--size", "1400", *more)
            assert found["problem"]["code"] == "MTU-001"
            assert found["problem"]["where"] == "node2"
            assert found["problem"]["seen"].startswith(f"1400 bytes are too large: rule '{rule}' of netdev d i")
            assert (
                f"nobody tells pod1-1 the MTU; the largest that passes has {1300 - around} bytes"
                in found["problem"]["seen"]
            )
            assert found["sized"] == {
                "size": 1400, "searched": True, "largest": 1300 - around, "told": None, "heard": ""
            }  # fmt: skip
        small = trace(running, "pod1-1", "pod2-1", family, "--size", str(1300 - around))
        assert (small["well"], small["sized"]["searched"]) == (True, False)


@VXLAN
def test_a_loss_that_size_does_not_decide(running: Lab):
    running.weft("break", "node2", "forward-dropped")
    try:
        found = measured(running, "pod1-1", "pod2-1", 4, "--size", "1000")
        assert found["problem"]["code"] == "FW-002"
        assert found["problem"]["seen"].endswith("nobody tells pod1-1 the MTU; small ones are lost, too")
        assert found["sized"]["largest"] == 0
    finally:
        running.weft("break", "node2", "forward-dropped", "--mend")
    eventually(lambda: trace(running, "pod1-1", "pod2-1")["well"], seconds=240)


@VXLAN
def test_a_node_by_itself(running: Lab):
    own, other = (pod(running, name, 4) for name in ("pod1-1", "pod2-1"))
    found = json.loads(running.run("node1", "weft", "trace", "--probe", "-o", "json", own, OUTSIDE[4]))
    assert (found["verdict"], [each["address"] for each in found["sources"]]) == (ANSWERED, [own, NODE1[4]])
    size = str(mtu(running) + 1)
    ran = running.weft(
        "exec", "node1", "weft", "trace", "--probe", "-o", "json", "--size", size, own, other, check=False
    )
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["sized"]["largest"], found["problem"]["code"]) == (3, mtu(running), "MTU-001")
    ran = running.weft("exec", "node1", "weft", "trace", "--size", "9000", own, other, check=False)
    assert ran.returncode == 3
    assert "✗ size" in ran.stdout
    for place, target in (("weft trace", other), ("weft lab trace", "pod2-1")):
        arguments = ("exec", "node1", "weft", "trace", own) if place == "weft trace" else ("trace", "pod1-1")
        refused = running.weft(*arguments, f"{target}:80", "--size", "999", check=False)
        assert (refused.returncode, f"FLAG-001 {place}: --size, and a port of TCP" in refused.stderr) == (2, True)
