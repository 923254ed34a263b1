"""What hangs on links and takes packets is named by a trace: queues, programs, bridge ports; without any daemon."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.obstacles.world import World, world

# Programs that take all, or let all pass.
SOURCE = """
__attribute__((section("xdp"), used)) int gate(void *packet) { return VERDICT ? 1 : 2; }
__attribute__((section("tc"), used)) int eater(void *packet) { return VERDICT ? 2 : 0; }
char text[] __attribute__((section("license"), used)) = "GPL";
"""
REMOTE, BESIDE = "pod2-1", "pod1-2"
HOOK = "tc qdisc add dev {0} clsact; tc filter add dev {0} {1} bpf da obj PROGRAM sec tc"
ISOLATED = "bridge link set dev veth1-1 isolated on; bridge link set dev veth1-2 isolated on"
LOCKED = (
    "bridge link set dev veth1-1 learning off locked on;"
    "mac=$(bridge fdb show dev veth1-1 | grep -v permanent | cut -d' ' -f1 | head -1);"
    'bridge fdb delete "$mac" dev veth1-1 master'
)
# What is done at a place, which pod the probes of pod1-1 go to, the code, and words of the verdict.
DONE = {
    "a queue": (
        ("node1", "tc qdisc add dev eth0 root tbf rate 8bit burst 10 latency 1ms"),
        (REMOTE, "QDISC-001", "tbf of eth0"),
    ),
    "a program that receives": (
        ("node1", HOOK.format("veth1-1", "ingress")),
        (BESIDE, "PROG-001", "program 'eater' (id "),
    ),
    "a program that sends": (("node1", HOOK.format("eth0", "egress")), (REMOTE, "PROG-001", "of tc for what leaves")),
    "XDP": (
        ("node1", "ip link set dev veth1-1 xdpgeneric obj PROGRAM sec xdp"),
        (BESIDE, "PROG-001", "XDP program 'gate' (id "),
    ),
    "XDP in the pod": (
        ("pod1-2", "ip link set dev eth0 xdp obj PROGRAM sec xdp"),
        (BESIDE, "PROG-001", "eth0 of pod1-2"),
    ),
    "isolated ports": (("node1", ISOLATED), (BESIDE, "BRIDGE-007", "veth1-1, veth1-2")),
    "the sender's port": (("node1", "bridge link set dev veth1-1 state 0"), (REMOTE, "BRIDGE-007", "port veth1-1")),
    "the target's port": (("node1", "bridge link set dev veth1-2 state 0"), (BESIDE, "BRIDGE-007", "port veth1-2")),
    "a lock of MACs": (("node1", LOCKED), (BESIDE, "BRIDGE-007", "is locked")),
    "a node's MAC": (
        ("node1", "ip neigh replace 192.168.77.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"),
        (REMOTE, "NEIGH-002", "192.168.77.2"),
    ),
    "a pod's MAC": (
        ("node1", "ip neigh replace 10.244.1.2 lladdr 02:00:00:00:00:99 dev cni0 nud permanent"),
        (REMOTE, "NEIGH-002", "10.244.1.2"),
    ),
    "the way of outer packets": (
        ("node1", "ip route add blackhole 192.168.77.2/32"),
        (REMOTE, "ROUTE-003", "route blackhole 192.168.77.2/32 drops it"),
    ),
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, "vxlan") as nodes:
        yield nodes


def compiled(folder: Path, *, drops: bool) -> Path:
    (folder / "program.c").write_text(SOURCE)
    clang = ("clang", "-O2", "-g", "-target", "bpf", f"-DVERDICT={int(drops)}", "-c", "program.c", "-o", "program.o")
    subprocess.run(clang, cwd=folder, check=True)
    return folder / "program.o"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("bpf"), drops=True)


@pytest.mark.parametrize("kind", DONE)
def test_what_takes_packets_on_a_link_is_named(nodes: World, program: Path, kind: str):
    (place, command), (target, code, words) = DONE[kind]
    nodes.run(place, command.replace("PROGRAM", str(program)))
    found = nodes.trace("pod1-1", target, 4)
    assert found.problem is not None, found.verdict
    assert (found.well, found.problem.code) == (False, code), found.verdict
    assert words in found.verdict


def test_what_lets_packets_pass_is_no_finding(nodes: World, tmp_path: Path):
    program = compiled(tmp_path, drops=False)
    for command in (
        f"ip link set dev veth1-1 xdpgeneric obj {program} sec xdp",
        HOOK.format("veth1-2", "egress").replace("PROGRAM", str(program)),
        "tc qdisc add dev eth0 root tbf rate 1gbit burst 1mb latency 1s",
        "bridge link set dev veth1-1 isolated on",
    ):
        nodes.run("node1", command)
    for target in (REMOTE, BESIDE):
        assert nodes.trace("pod1-1", target, 4).well
