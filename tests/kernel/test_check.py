"""`weft check` on a node without any daemon, whose pods hang on a bridge of reference plugins."""

import json
import re
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.plainnode import BRIDGE, NAMES, WEFT, Node, proved, trace
from tests.support.netns import Netns
from tests.support.waiting import in_time
from tests.support.weftd import eventually


@pytest.fixture
def node(netns: Netns, make_netns: Callable[[], Netns], tmp_path: Path) -> Node:
    node = Node(netns, [make_netns() for _ in NAMES], tmp_path)
    eventually(lambda: sorted(name.partition(" ")[0] for name in node.names()) == sorted(NAMES), seconds=10)
    return node


def test_all_pods_of_a_node_that_is_well(node: Node):
    sockets = node.pods[0].run("ss -Htuanp exclude time-wait")
    found = node.report()
    assert found["conclusion"] == f"everything reaches everything: {found['tried']} trials, and none failed"
    assert found["untried"] == []
    [second] = node.names() - {"web", "db"}
    assert second.startswith("db 10.9.0.")
    assert {each["trial"]["family"] for each in found["trials"]} == {4, 6}
    assert [each["tried"] for each in found["scenarios"] if each["name"] == "node-pod-same"] == [18]
    assert node.pods[0].run("ss -Htuanp exclude time-wait") == sockets


def test_the_same_addresses_elsewhere_on_the_machine_are_no_pods(node: Node, make_netns: Callable[[], Netns]):
    elsewhere = make_netns()
    elsewhere.bridge("br7", "10.9.0.9/24", "fd09::9/64")
    beyond = make_netns()
    elsewhere.run(f"ip link add p1 type veth peer name eth0 netns {beyond.path}; ip link set p1 up")
    beyond.run("ip address add 10.9.0.8/24 dev eth0; ip link set eth0 up")
    assert len(node.names()) == len(NAMES)


def test_a_pods_host_name_is_no_more_than_a_word(node: Node, make_netns: Callable[[], Netns]):
    """A pod may call itself as its node, as another pod, or by what no terminal should get."""
    for number, name in enumerate((socket.gethostname().encode(), b"db", b"\x1b[31m", b"a\xff"), 5):
        pod = make_netns()
        node.netns.run(f"ip link add p{number} master br7 up type veth peer name eth0 netns {pod.path}")
        pod.run(f"ip address add 10.9.0.{number}/24 dev eth0; ip link set eth0 up; ip route add default via 10.9.0.1")
        pod.popen(
            [
                "unshare",
                "--uts",
                sys.executable,
                "-c",
                f"import socket, time; socket.sethostname({name!r}); time.sleep(999)",
            ]
        )
    names = eventually(lambda: (found := node.names()) and len(found) == 7 and found, seconds=10)
    own = socket.gethostname()
    assert names - {"web", "db"} >= {f"{own} 10.9.0.5", "10.9.0.7", "10.9.0.8"}
    found = node.report()
    assert found["failed"] == 0, found["conclusion"]
    assert {each["trial"]["source"] for each in found["trials"] if each["trial"]["scenario"] == "node-pod-same"} == {
        own
    }


def test_a_node_without_a_host_name_is_called_this_node(node: Node):
    """The kernel calls it `(none)`, as that was a name."""
    words = "from weft.diag.sight.host import node_name; print(node_name())"
    for name in ("(none)", "node-7"):
        setting = f"import socket; socket.sethostname({name!r}); {words}"
        process = node.netns.popen(
            ["unshare", "--uts", sys.executable, "-c", setting], stdout=subprocess.PIPE, text=True
        )
        assert process.communicate(timeout=200)[0] == {"(none)": "this node\n"}.get(name, f"{name}\n")


def test_two_pods_of_one_address(node: Node, make_netns: Callable[[], Netns]):
    twin = make_netns()
    node.netns.run(f"ip link add p9 master br7 up type veth peer name eth0 netns {twin.path}")
    twin.run("ip address add 10.9.0.3/24 dev eth0; ip link set eth0 up; ip route add default via 10.9.0.1")
    twin.popen(["sleep", "1000"])
    found = node.report()
    assert "is to an address that another pod has, too: CHECK-001" in found["conclusion"]
    assert next(each["failed"] for each in found["demands"] if each["name"] == "own-address") == 6


def test_without_the_right_to_enter_namespaces_nothing_is_said_to_be_well(node: Node):
    options = ["--conf-dir", str(node.folder), "--subnet-file", str(node.folder / "none")]
    drop = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--reset-env"]
    process = node.netns.popen(
        [*drop, WEFT, "check", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (1, "")
    assert "HOST-002 weft check: [Errno 1] Operation not permitted" in err


ENDING = """
from ipaddress import ip_network
from weft.diag.sight.pods import Pods
pods = Pods([ip_network("10.9.0.0/24")], "node1")
print(all(map(pods.is_there, pods.found)), flush=True)
input()
print(*(pod.name for pod in pods.found if not pods.is_there(pod)))
"""


def test_a_pod_that_ends_meanwhile_is_noticed(node: Node):
    process = node.netns.popen([sys.executable, "-c", ENDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    node.netns.run("ip link del p2")
    assert process.communicate("\n", timeout=200)[0] == "web\n"


def test_a_pod_that_is_cut_off_and_its_reason(node: Node):
    node.netns.run("ip link set p2 nomaster")
    ran = node.check()
    assert ran.returncode == 3
    # The node takes packets for its own address from any link, so some may still arrive there.
    assert re.match("every (lost packet is|packet) between web and others", ran.stdout)
    assert "\nnode-pod-same: 6 of 18 failed\n" in ran.stdout
    assert "Next: weft doctor\n      weft trace --explain 10.9.0." in ran.stderr
    cases = ET.fromstring(node.check("-o", "junit").stdout)  # noqa: S314 - our own
    failed = [str(case.get("name")) for case in cases if case.find("failure") is not None]
    assert failed
    assert all("web" in name for name in failed)
    assert {str(case.get("classname")) for case in cases} >= {"weft.check.pod-itself", "weft.check.node-pod-same"}


def test_a_packet_filter_on_the_node_is_named(node: Node):
    node.netns.run("nft add table inet t; nft 'add chain inet t i { type filter hook input priority 0; }'")
    node.netns.run("nft add rule inet t i iifname br7 meta l4proto udp drop")
    ran = node.check()
    assert ran.returncode == 3
    first = ran.stdout.splitlines()[0]
    assert re.fullmatch(r"every UDP packet from others to \S+ is lost: FW-002 input of udp 10\.9\.0\.[234] .*", first)


def test_a_node_that_has_nothing(netns: Netns, tmp_path: Path):
    ran = Node(netns, [], tmp_path).check()
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "INST-003 weft check: a node that has no pods and knows no other nodes" in ran.stderr


@pytest.mark.parametrize(
    "source, target",
    [("10.9.0.2", "10.9.0.3"), ("10.9.0.1", "10.9.0.2:80"), ("fd09::2", "fd09::3"), ("fd09::2", "fd09::1")],
)
def test_a_trace_is_proved_by_probes_from_where_it_begins(node: Node, source: str, target: str):
    found = proved(node, source, target)
    refused = "it arrives, and is refused: nothing listens at the port"
    wanted = refused if target.endswith(":80") else "it arrives, and the answer comes back"
    assert (found["verdict"], found["reached"], found["tried"]) == (wanted, 3, 3)
    counts = [count for leg in found["legs"] for count in leg["counted"].values()]
    assert counts.count(3) >= 2


def test_probes_show_what_no_rule_that_was_read_drops(node: Node):
    node.pods[1].run(
        "nft add table inet t; nft 'add chain inet t i { type filter hook input priority 0; policy drop; }'"
    )
    said = trace(node, "--probe", "10.9.0.2", "10.9.0.3")
    assert said.returncode == 3
    assert re.search(
        r"^0 of 3 probes were answered\nCHECK-002 pod (web|db|db .*): the policy of chain", said.stdout, re.MULTILINE
    )
    assert trace(node, "--probe", "-o", "mermaid", "10.9.0.2", "10.9.0.3").stdout.startswith("sequenceDiagram\n")


def test_a_datagram_need_not_be_answered(node: Node):
    node.pods[1].popen(["python3", "-c", "import socket; s = socket.socket(type=2); s.bind(('', 53)); s.recv(9999)"])
    eventually(lambda: ":53" in node.pods[1].run("ss -Hlun"), seconds=10)
    datagram = proved(node, "--udp", "10.9.0.2", "10.9.0.3:53")
    assert re.match(r"it arrives; .* does not answer", datagram["verdict"])


def test_of_a_service_by_chance_those_that_went_to_one_pod_are_judged(node: Node):
    node.netns.run("nft add table ip s; nft 'add chain ip s p { type nat hook prerouting priority -100; }'")
    pods = "{ 0 : 10.9.0.3, 1 : 10.9.0.4 }"
    node.netns.run(f"nft 'add rule ip s p ip daddr 10.96.0.9 dnat to numgen random mod 2 map {pods}'")
    found = proved(node, "10.9.0.2", "10.96.0.9")
    assert (found["well"], found["reached"]) == (True, found["tried"])
    assert found["elsewhere"] + found["tried"] == 12


def test_a_port_where_nothing_listens(node: Node):
    found = proved(node, "10.9.0.2", "10.9.0.3:81")
    assert (found["verdict"], found["well"]) == ("it arrives, and is refused: nothing listens at the port", True)


def test_a_pods_link_may_have_any_name(node: Node):
    node.pods[1].run("ip link set eth0 down; ip link set eth0 name net1; ip link set net1 up")
    found = proved(node, "10.9.0.2", "10.9.0.3")
    assert found["verdict"] == "it arrives, and the answer comes back"
    assert [leg["counted"] for leg in found["legs"] if leg["pod"] == "db"] == [{"net1": 3}, {"net1": 3}]


def test_packets_without_end_do_not_keep_it(node: Node):
    flood = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\nwhile True: s.sendto(b'x', ('10.9.0.4', 9))"
    node.pods[0].popen([sys.executable, "-c", flood])
    started = time.monotonic()
    proved(node, "10.9.0.2", "10.9.0.3:81")
    assert in_time(started, 30)  # of a command that waits for a second


def test_what_the_kernel_refuses_to_send_is_said_in_its_words(node: Node):
    found = proved(node, "10.9.0.2", "10.9.0.255")
    assert found["verdict"] == "ROUTE-003 web: web sent 0 by eth0: its kernel says 'Permission denied'"


@pytest.mark.parametrize("arguments", [("10.9.0.2", "[fd09::3]81"), ("--udp", "10.9.0.2", "10.9.0.3")])
def test_targets_that_are_none(node: Node, arguments: tuple[str, ...]):
    ran = trace(node, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "port" in ran.stderr


def test_only_what_begins_on_the_node_can_be_tried(node: Node):
    ran = trace(node, "--probe", "192.0.2.1", "10.9.0.2")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "FLAG-001 weft trace --probe: 192.0.2.1 is no address of this node" in ran.stderr
    command = [WEFT, "trace", "--probe", "--from", "x.tar.gz", "10.9.0.3", "10.9.0.2"]
    both = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (both.returncode, both.stdout) == (2, "")
    assert "--from and --probe exclude each other" in both.stderr


# A user namespace of its own, as of a container's root: the processes of others are seen in /proc, and even with all
# capabilities the kernel refuses a look at their namespaces. NODE is a bridge with two pods, then a command is run.
SHUT_OUT = """
set -e
trap 'kill $pods' EXIT
sysctl -qw net.ipv4.ip_forward=1
ip link set lo up; ip link add br7 type bridge; ip address add 10.9.0.1/24 dev br7; ip link set br7 up
for number in 2 3; do
  unshare --net sleep 1000 & pods="$pods $!"
  until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
  ip link add p$number master br7 up type veth peer name eth0 netns $!
  nsenter --net=/proc/$!/ns/net sh -ec "ip link set lo up; ip address add 10.9.0.$number/24 dev eth0
    ip link set eth0 up; ip route add default via 10.9.0.1"
done
! readlink /proc/1/ns/net
"$@"
"""
HIDDEN = re.compile(r"pods of /proc/1/ns/net and \d+ more: even root may not look into these namespaces")


def shut_out(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "10-net.conflist").write_text(json.dumps(BRIDGE))
    verb, *rest = arguments
    files = ("--conf-dir", str(folder), "--subnet-file", str(folder / "none"))
    apart = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", SHUT_OUT, "sh"]
    command = [*apart, WEFT, verb, *files, *rest]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_check_goes_on_where_the_kernel_hides_processes_even_from_root(tmp_path: Path):
    ran = shut_out(tmp_path, "check", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["failed"] == 0
    assert {each["trial"]["source"] for each in found["trials"]} >= {"10.9.0.2", "10.9.0.3"}
    assert [each for each in found["untried"] if HIDDEN.fullmatch(each)]
    assert HIDDEN.search(shut_out(tmp_path, "check").stdout)


def test_a_trace_is_proved_where_the_kernel_hides_processes_even_from_root(tmp_path: Path):
    ran = shut_out(tmp_path, "trace", "--probe", "-o", "json", "10.9.0.2", "10.9.0.3")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["verdict"] == "it arrives, and the answer comes back"
    elsewhere = shut_out(tmp_path, "trace", "--probe", "10.9.0.77", "10.9.0.3")
    assert elsewhere.returncode == 2
    assert "10.9.0.77 is no address of this node" in elsewhere.stderr
    assert HIDDEN.search(elsewhere.stderr)
