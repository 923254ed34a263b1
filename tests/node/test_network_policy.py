"""NetworkPolicies from files on real nodes: who reaches whom, from a pod's first packet and through restarts."""

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether

from tests.node.plugincalls import Runtime
from tests.node.policyworld import PORT, World, attach, connects, elements, listen, rules
from tests.node.test_plan_cleanup import weft
from tests.support.netns import Netns
from tests.support.weftd import Cluster, eventually
from weft.cni import build
from weft.cni.install.executables import install
from weft.model.kernel.marks import BRIDGE_NETFILTER

ALL = 3  # ETH_P_ALL (linux/if_ether.h)
FROM_A = [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": PORT}]}]


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world")
    for name in ("web", "a", "b"):
        made.pod(name, app=name)
    made.policy("only-a", {"app": "web"}, ingress=FROM_A)
    made.write()
    return made


def begin(cluster: Cluster, tmp_path: Path, bin_dir: Path, *flags: str) -> Runtime:
    cluster.configure()
    return Runtime(cluster.node(1).start(*flags), tmp_path, bin_dir)


def test_what_a_policy_allows_passes_and_nothing_else(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (web, ip), (a, _), (b, b_ip) = (attach(runtime, name) for name in ("web", "a", "b"))
    listen(web, 81)
    assert connects(a, ip)
    assert not connects(b, ip)
    assert not connects(a, ip, 81), "another port"
    assert connects(web, b_ip), "what it begins itself"
    assert connects(runtime.node.netns, ip), "its node"
    assert connects(web, ip), "itself"


def test_changes_are_in_effect_at_once_and_a_file_that_is_no_policy_changes_nothing(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (_, ip), (a, _), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    world.pod("b", app="a")
    world.write()
    eventually(lambda: connects(b, ip))
    world.policy("only-a", {"app": "web"}, ingress=[])
    world.write()
    eventually(lambda: not connects(b, ip))
    assert not connects(a, ip)
    (world.folder / "world.json").write_text("kind: NetworkPolicy\napiVersion: networking.k8s.io/v1\nspec: []\n")
    assert runtime.node.says("policies stay as they were: POL-005")
    assert not connects(a, ip)
    del world.policies["only-a"]
    world.write()
    eventually(lambda: connects(a, ip))


@pytest.mark.parametrize("changes", [12, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_change_refuses_a_new_connection_that_is_allowed_before_and_after(
    cluster, tmp_path, bin_dir, world, changes
):
    """Rules with ranges, which a chain that is filled anew while it is live loses packets by."""
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (_, ip), (a, _) = attach(runtime, "web"), attach(runtime, "a")
    over, refused, made = threading.Event(), list[float](), 0

    def connect() -> None:
        nonlocal made
        while not over.is_set():
            made += 1
            if not connects(a, ip):
                refused.append(time.monotonic())
            time.sleep(0.003)  # nobody accepts, and the queue holds 4096

    with ThreadPoolExecutor(1) as threads:
        trying = threads.submit(connect)
        for number in range(changes):
            ports = [{"port": PORT}, {"port": 9000, "endPort": 9000 + number}]
            world.policy("only-a", {"app": "web"}, ingress=[{**FROM_A[0], "ports": ports}])
            world.pod("b", app="a" if number % 2 else "b")
            world.write()
            eventually(lambda now=number: f"9000-{9000 + now}" in rules(runtime.node) or not now)
        over.set()
        trying.result()
    assert (refused, made > 100) == ([], True)


def test_a_pod_that_nobody_knows_is_not_attached(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    began = time.monotonic()
    with Netns() as pod:
        answer = runtime.ask("ADD", "stranger", pod)
        assert answer["code"] == 11
        assert "POL-003 pod default/stranger: no such Pod is known" in answer["msg"]
        assert time.monotonic() - began > 4.5
        assert runtime.owners == set()
        assert "eth0" not in pod.run("ip link")
        world.pod("stranger")
        world.write()
        assert "ips" in runtime.ask("ADD", "stranger", pod), "it waits until the file is read"
        runtime.ask("DEL", "stranger", pod)
    assert "default/stranger" not in elements(runtime.node, "in4")


def test_an_address_that_no_pod_has_is_refused_and_so_is_a_forged_sender(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (web, ip), (a, a_ip), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    forged = str(runtime.node.v4[77])
    web.run(f"ip addr add {forged}/24 dev eth0")
    assert not connects(a, forged)
    b.run(f"ip addr add {a_ip}/32 dev eth0; ip route replace {runtime.node.v4} dev eth0 src {a_ip}")
    assert not connects(b, ip)


def test_a_restart_writes_nothing_and_a_stop_opens_nothing(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    node = runtime.node
    (_, ip), (a, _), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    before = rules(node)
    given = elements(node, "in4")
    node.kill()
    assert connects(a, ip)
    assert not connects(b, ip)
    with Netns() as pod:
        answer = runtime.ask("ADD", "c", pod)
        assert (answer["code"], answer["msg"].split(":")[0]) == (11, "POL-003 pod default/c")
    node.start(*world.flags)
    time.sleep(0.5)
    assert rules(node) == before
    assert elements(node, "in4") == given
    assert connects(a, ip)
    assert not connects(b, ip)


def test_pods_that_run_already_are_judged_once_it_is_turned_on_and_no_more_when_it_is_off(
    cluster, tmp_path, bin_dir, world
):
    runtime = begin(cluster, tmp_path, bin_dir)
    node = runtime.node
    (_, ip), (a, _), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    assert connects(b, ip)
    for flags, allowed in ((world.flags, False), (("--network-policy=audit", world.flags[1]), True), ((), True)):
        node.stop()
        node.start(*flags)
        assert connects(a, ip)
        assert connects(b, ip) == allowed
        assert ("weft-policy" in node.netns.run("nft list tables")) == bool(flags)


def test_what_others_change_is_back(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (_, ip), (a, _), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    runtime.node.netns.run("nft flush ruleset")
    eventually(lambda: not connects(b, ip))
    assert connects(a, ip)


def test_pods_of_another_node_are_known_by_their_addresses(cluster, tmp_path, bin_dir, world):
    cluster.configure()
    here, there = (
        Runtime(cluster.node(number).start("--ip-masq", *world.flags), tmp_path / f"node{number}", bin_dir)
        for number in (1, 2)
    )
    (_, ip), (a, a_ip), (b, b_ip) = attach(here, "web"), attach(there, "a"), attach(there, "b")
    assert not connects(a, ip), "its address is not known yet"
    world.pod("a", a_ip, app="a")
    world.pod("b", b_ip, app="b")
    world.write()
    eventually(lambda: connects(a, ip))
    assert not connects(b, ip)


def test_a_plan_shows_what_becomes_of_the_tables(cluster, tmp_path, bin_dir, world):
    node = begin(cluster, tmp_path, bin_dir, *world.flags).node
    eventually(lambda: "ingress" in rules(node))
    asked = weft(node, "plan", "-o", "json")
    assert json.loads(asked.stdout)["steps"] == []
    node.stop()
    flags = [flag for flag in node.command()[3:] if not flag.startswith(("--healthz", "--cni", "--network-policy"))]
    planned = json.loads(weft(node, "plan", "-o", "json", "--", *flags).stdout)["steps"]
    assert [each["text"] for each in planned if each["kind"] == "table"] == [
        "- table inet weft-policy",
        "- table bridge weft-policy",
    ]
    on = json.loads(weft(node, "plan", "-o", "json", "--", *flags, *world.flags).stdout)
    assert any(each.startswith("policies: a weftd that runs decides") for each in on["notes"])


def test_a_clean_up_takes_both_tables_away(cluster, tmp_path, bin_dir, world):
    node = begin(cluster, tmp_path, bin_dir, *world.flags).node
    node.stop()
    assert "bridge weft-policy" in node.netns.run("nft list tables")
    said = weft(node, "cleanup", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}").stdout
    assert "table inet weft-policy" in said
    assert "weft-policy" not in node.netns.run("nft list tables")


@pytest.mark.parametrize("recorded", [True, False])
def test_a_restart_takes_no_pods_word_for_its_addresses(cluster, tmp_path, bin_dir, world, recorded):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    node = runtime.node
    (web, ip), (_, a_ip), (b, _) = (attach(runtime, name) for name in ("web", "a", "b"))
    source, target = (pod.json("ip -j link show eth0")[0]["address"] for pod in (b, web))
    frame = bytes(Ether(src=source, dst=target) / IP(src=a_ip, dst=ip) / TCP(dport=PORT) / b"forbidden")
    b.run(f"ip addr add {a_ip}/32 dev eth0")
    node.kill()
    if not recorded:
        [lost] = [each for each in (node.state_dir / "cni" / "attachments").glob("*.json") if '"b"' in each.read_text()]
        lost.unlink()
    node.start(*world.flags)
    time.sleep(0.5)
    with web.call(lambda: raw("eth0", ALL)) as receiver, b.call(lambda: raw("eth0")) as sender:
        sender.send(frame)
        assert not came(receiver)


@pytest.mark.parametrize("tagged", [False, True])
def test_forged_senders_and_tagged_frames_go_nowhere(cluster, tmp_path, bin_dir, world, tagged):
    """By the bridge's table: bridge netfilter does not see what is in a VLAN."""
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (web, ip), (_, a_ip), (b, b_ip) = (attach(runtime, name) for name in ("web", "a", "b"))
    source, target = (pod.json("ip -j link show eth0")[0]["address"] for pod in (b, web))
    inside = IP(src=b_ip if tagged else a_ip, dst=ip) / UDP(sport=9, dport=PORT) / b"forbidden"
    head = Ether(src=source, dst=target)
    frame = bytes(head / Dot1Q(vlan=0) / inside if tagged else head / inside)
    with web.call(lambda: raw("eth0", ALL)) as receiver, b.call(lambda: raw("eth0")) as sender:
        sender.send(frame)
        assert not came(receiver)
        runtime.node.stop()
        runtime.node.netns.run("nft delete table bridge weft-policy; nft delete table inet weft-policy")
        sender.send(frame)
        assert came(receiver), "the trial itself is right"


def test_groups_and_broadcasts_reach_no_pod_past_its_policies(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (web, _), (b, _) = (attach(runtime, name) for name in ("web", "b"))
    for target in ("224.0.0.1", "255.255.255.255"):
        with web.call(lambda: receiving(PORT)) as receiver, b.call(lambda: receiving(0)) as sender:
            b.run(f"ip route replace {target}/32 dev eth0")
            sender.sendto(b"forbidden", (target, PORT))
            assert not came(receiver)
            runtime.node.stop()
            runtime.node.netns.run("nft delete table inet weft-policy")
            sender.sendto(b"forbidden", (target, PORT))
            assert came(receiver), "the trial itself is right"
            runtime.node.start(*world.flags)
            eventually(lambda: "ingress" in rules(runtime.node))


def test_who_was_refused_is_told_by_names_also_without_a_daemon(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    node = runtime.node
    (_, ip), (_, _), (b, b_ip) = (attach(runtime, name) for name in ("web", "a", "b"))
    assert not connects(b, ip)

    def told() -> dict[str, Any]:
        [flow] = json.loads(weft(node, "policy", "denied", "-o", "json").stdout)["flows"]
        return flow

    first = told()
    assert (
        first.items()
        >= {
            "direction": "ingress",
            "source": b_ip,
            "source_pod": "default/b",
            "target_pod": "default/web",
            "protocol": "tcp",
            "port": PORT,
            "policies": ["default/only-a"],
        }.items()
    )
    page = node.get("/metrics")[1]
    [counted] = re.findall(r'^weft_policy_refused_packets_total\{direction="ingress"\} (\S+)$', page, re.MULTILINE)
    assert float(counted) >= first["packets"]
    assert 'weft_policy_isolated_pods{direction="ingress"} 1.0' in page
    assert 'weft_reconcile_rounds_total{plane="policies"}' in page
    node.kill()
    assert not connects(b, ip)
    assert told()["packets"] > first["packets"]
    assert f"default/b ({b_ip})" in weft(node, "policy", "denied").stdout
    node.netns.run("nft delete table inet weft-policy")
    nothing = weft(node, "policy", "denied")
    assert (nothing.returncode, "POL-001 table inet weft-policy" in nothing.stderr) == (1, True)


def test_a_bridge_that_another_program_has_pass_no_policies_is_put_right_at_once_and_told(
    cluster, tmp_path, bin_dir, world
):
    """No notice tells of it, and the next full look may be a minute away.

    That look would mend it, too, however late, and say that there was no notice of it. Once it may happen to be
    quicker.
    """
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    node = runtime.node
    (_, ip), (b, _) = attach(runtime, "web"), attach(runtime, "b")
    name = BRIDGE_NETFILTER[4]
    for times in (1, 2):
        node.netns.run(f"sysctl -qw {name}=0")
        eventually(lambda: node.netns.run(f"sysctl -n {name}") == "1\n")
        eventually(lambda times=times: len(node.lines(f"POL-002: put back sysctl {name}=1")) == times)
    assert not connects(b, ip)
    assert len(node.lines(f"sysctl {name}=0 has changed, and the kernel has sent no notice of it")) < times
    told = json.loads(weft(node, "events", "-o", "json").stdout)
    mended = [(each["subject"], each["code"]) for each in told if each["kind"] == "repaired"]
    assert mended == [(f"sysctl {name}=1", "POL-002")] * times


def test_a_nodes_pods_are_listed_with_their_policies_also_without_a_daemon(cluster, tmp_path, bin_dir, world):
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    node = runtime.node
    (_, ip), _ = attach(runtime, "web"), attach(runtime, "a")

    def listed(*pod: str) -> dict[str, Any]:
        return json.loads(weft(node, "policy", "list", *pod, "-o", "json").stdout)

    names = {each["pod"]: each["policies"] for each in listed()["pods"]}
    assert names == {
        "default/a": {"ingress": [], "egress": []},
        "default/web": {"ingress": ["default/only-a"], "egress": []},
    }
    assert [(each["pod"], each["addresses"]) for each in listed("web")["pods"]] == [("default/web", [ip])]
    none = weft(node, "policy", "list", "c")
    assert (none.returncode, "POL-003 pod default/c" in none.stderr) == (1, True)
    (world.folder / "world.json").write_text("kind: NetworkPolicy\napiVersion: networking.k8s.io/v1\nspec: []\n")
    eventually(lambda: [each["code"] for each in listed()["problems"]] == ["POL-005"])
    node.kill()
    assert {each["pod"]: each["policies"] for each in listed()["pods"]} == names
    node.netns.run("nft delete table inet weft-policy")
    assert "POL-001 table inet weft-policy" in weft(node, "policy", "list").stderr


def test_pings_that_were_refused_are_told_and_all_of_a_flow_are_one(cluster, tmp_path, bin_dir, world):
    """An echo has a checksum where TCP has the port: a flow for each packet would fill the set."""
    runtime = begin(cluster, tmp_path, bin_dir, *world.flags)
    (_, ip), (b, b_ip) = (attach(runtime, name) for name in ("web", "b"))
    b.run(f"ping -c 3 -i 0.01 -W 0.1 {ip} || true")
    found = json.loads(weft(runtime.node, "policy", "denied", "-o", "json").stdout)
    [flow] = found["flows"]
    assert (flow["source"], flow["protocol"], flow["port"], flow["packets"]) == (b_ip, "icmp", 0, 3)
    assert found["packets"]["ingress"] == 3, "what is counted in all, and what is told, are the same"
    assert f"default/web icmp ({ip})" in weft(runtime.node, "policy", "denied").stdout


def receiving(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    made.bind(("", port))
    made.settimeout(0.5)
    return made


def raw(device: str, protocol: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    made.bind((device, protocol))
    made.settimeout(0.5)
    return made


def came(receiver: socket.socket) -> bool:
    try:
        while b"forbidden" not in receiver.recv(2048):
            pass
    except TimeoutError:
        return False
    return True


def test_a_node_says_since_when_and_names_those_that_do_not_enforce(cluster, tmp_path, bin_dir, world):
    """Those are known by their leases, which say it as long as they enforce."""
    began = time.time()
    node = begin(cluster, tmp_path, bin_dir, *world.flags).node
    other = cluster.node(2).start()

    def listed() -> dict[str, Any]:
        return json.loads(weft(node, "policy", "list", "-o", "json").stdout)

    eventually(lambda: ["172.31.0.2)" in each for each in listed()["unenforced"]] == [True])
    first = listed()["effect"]
    assert first["since"] >= began
    assert (first["found"], first["changing"]) == (False, [])
    other.stop()
    other.start("--network-policy=audit", *world.flags[1:])
    eventually(lambda: ["172.31.0.2, in an audit)" in each for each in listed()["unenforced"]] == [True])
    other.stop()
    other.start(*world.flags)
    eventually(lambda: listed()["unenforced"] == [])
    other.stop()
    other.start()
    eventually(lambda: "172.31.0.2)" in "".join(listed()["unenforced"]))
    world.policy("shut", {"app": "b"}, ingress=[])
    world.write()
    eventually(lambda: listed()["effect"]["since"] > first["since"])
    assert "In effect since " in weft(node, "status").stdout
    node.kill()
    alone = listed()
    assert (alone["effect"], alone["unenforced"]) == (None, None)
