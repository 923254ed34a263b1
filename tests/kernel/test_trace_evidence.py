"""`weft trace --probe` names what the kernel says of lost probes, on a node of reference plugins without any daemon."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.plainnode import WEFT, Node, proved
from tests.support.netns import Netns
from tests.support.weftd import eventually

ARRIVES = "it arrives, and the answer comes back"


@pytest.fixture
def node(netns: Netns, make_netns: Callable[[], Netns], tmp_path: Path) -> Node:
    """The pods `web`, 10.9.0.2, and `db`, 10.9.0.3, are on one bridge, as ports p2 and p3."""
    node = Node(netns, [make_netns() for _ in range(2)], tmp_path)
    eventually(lambda: node.names() == {"web", "db"}, seconds=10)
    return node


def at(node: Node, place: str) -> Netns:
    return {"node": node.netns, "web": node.pods[0], "db": node.pods[1]}[place]


def chain(
    family: str, hook: str, rule: str = "", *, priority: int = 0, policy: str = "accept", device: str = ""
) -> str:
    where = f"{hook} device {device}" if device else hook
    base = f"{{ type filter hook {where} priority {priority}; policy {policy}; }}"
    made = f"nft add table {family} x; nft 'add chain {family} x c {base}'"
    return f"{made}; nft 'add rule {family} x c {rule}'" if rule else made


TO_DB = "ip daddr 10.9.0.3"
ECHO = "icmp type echo-request"
BRIDGED = "sysctl -qw net.bridge.bridge-nf-call-iptables=1; "
# Where a rule or policy is, how it comes there, and what the trace says of it.
RULES = {
    "of a bridge": (
        "node",
        chain("bridge", "forward", "oif p3 drop"),
        "rule 'oif \"p3\" drop' of bridge x c (handle 2)",
    ),
    "a bridge's policy": ("node", chain("bridge", "forward", policy="drop"), "the policy of chain c of bridge x"),
    "a link's first hook": (
        "node",
        chain("netdev", "ingress", f"{ECHO} drop", device="p2"),
        f"rule '{ECHO} drop' of netdev x c (handle 2)",
    ),
    "a link's last hook": (
        "node",
        chain("netdev", "egress", "drop", device="p3"),
        "rule 'drop' of netdev x c (handle 2)",
    ),
    "before connection tracking": (
        "node",
        BRIDGED + chain("ip", "prerouting", f"{TO_DB} drop", priority=-300),
        f"rule '{TO_DB} drop' of ip x c (handle 2)",
    ),
    "iptables": (
        "node",
        f"{BRIDGED} iptables-nft -t raw -I PREROUTING -d 10.9.0.3 -j DROP",
        f"rule '{TO_DB} counter packets 3 bytes ",
    ),
    "in the sender": ("web", chain("inet", "output", f"{TO_DB} drop"), f"rule '{TO_DB} drop' of inet x c (handle 2)"),
    "in the target": ("db", chain("inet", "input", policy="drop"), "the policy of chain c of inet x"),
    "on the answer": ("db", chain("inet", "output", "reject"), "rule 'reject"),
}


@pytest.mark.parametrize("kind", RULES)
def test_the_rule_that_drops_is_named_wherever_it_is(node: Node, kind: str):
    place, command, ruling = RULES[kind]
    at(node, place).run(command)
    found = proved(node, "10.9.0.2", "10.9.0.3")
    where = f"FW-002 {node.netns.run('hostname').strip()}" if place == "node" else f"CHECK-002 pod {place}"
    assert found["verdict"].startswith(f"{where}: {ruling}")
    assert "drops them, as the kernel tells" in found["verdict"]


@pytest.mark.parametrize(
    "rule, arguments",
    [
        ("udp dport 53 drop", ("--udp", "10.9.0.2", "10.9.0.3:53")),
        ("tcp dport 80 drop", ("10.9.0.2", "10.9.0.3:80")),
        ("icmpv6 type echo-request drop", ("fd09::2", "fd09::3")),
        ("icmpv6 type echo-request drop", ("--size", "900", "fd09::2", "fd09::3")),
    ],
)
def test_probes_of_every_kind_are_followed(node: Node, rule: str, arguments: tuple[str, ...]):
    node.pods[1].run(chain("inet", "input", rule))
    verdict = proved(node, *arguments)["verdict"]
    assert verdict.startswith(f"CHECK-002 pod db: rule '{rule}' of inet x c (handle 2) drops them")


def test_rules_that_pass_are_no_finding(node: Node):
    for family, hook in (("bridge", "forward"), ("inet", "input"), ("ip", "output")):
        node.netns.run(chain(family, hook, "counter accept"))
    node.pods[1].run(chain("inet", "input", "tcp dport 81 drop"))
    assert proved(node, "10.9.0.2", "10.9.0.3")["verdict"] == ARRIVES


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_in_the_packet_filter_however_it_ends(node: Node, number: int):
    node.pods[1].run(chain("inet", "input", policy="drop"))
    places = (node.netns, *node.pods)
    files = ("--conf-dir", str(node.folder), "--subnet-file", str(node.folder / "none"))
    command = [WEFT, "trace", "--probe", *files, "10.9.0.2", "10.9.0.3"]
    running = node.netns.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: all("weft-trace" in each.run("nft list tables") for each in places), seconds=30)
    running.send_signal(number)
    running.wait(30)
    eventually(lambda: not any("weft-trace" in each.run("nft list tables") for each in places), seconds=10)
