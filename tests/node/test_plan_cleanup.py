"""`weft plan` says what a round would do and does nothing; `weft cleanup` removes what is ours and nothing else."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.firewall import only
from tests.support.squatter import ROOT, USER, squatting
from tests.support.weftd import HOST_GW, ONLY_V6, STORE, VXLAN, Cluster, Daemon, eventually, peer_value

# Somebody else's things, and the chains that iptables itself makes with the first rule in a table and keeps.
FOREIGN = """
ip link add foreign type vxlan id 77 dstport 4789 dev eth0; ip link set foreign up
ip route add 198.51.100.0/24 via 172.31.0.254
nft add table ip foreign
for program in iptables ip6tables; do
    $program -t nat -N FOREIGN
    $program -t nat -A POSTROUTING -j FOREIGN
    $program -A FORWARD -j ACCEPT
done
"""
LOOK = "ip -d link show type vxlan; ip route; ip -6 route; bridge fdb; iptables-save; nft list ruleset"
WEFT = Path(sys.executable).with_name("weft")


def weft(node: Daemon, *arguments: str, wrap: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command on a node; `wrap` is a command that runs it."""
    return subprocess.run(
        ["nsenter", f"--net={node.netns.path}", "--", *wrap, str(WEFT), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def plan(node: Daemon, *options: str) -> subprocess.CompletedProcess[str]:
    flags = [flag for flag in node.command()[3:] if not flag.startswith(("--healthz", "--cni"))]
    return weft(node, "plan", *options, "--", *flags)


def state(node: Daemon) -> list[str]:
    """Everything in the kernel that weft could have changed, but for times and counters."""
    lines = node.netns.run(LOOK).splitlines()
    return [re.sub(r"expires \d+sec|packets \d+ bytes \d+|\[\d+:\d+\]", "", line) for line in lines if line[:1] != "#"]


def instance(node: Daemon) -> str:
    [directory] = node.state_dir.glob("*-*")
    return directory.name


def test_without_flags_the_weftd_that_runs_here_is_asked(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start("--ip-masq")
    ran = weft(node, "plan")
    assert (ran.returncode, ran.stderr) == (0, "")
    first, *rest = ran.stdout.splitlines()
    assert first == f"# answered by the weftd that runs here, instance {instance(node)}"
    assert "with 172.31.0.1, by --iface=eth0" in rest[0]
    assert rest[1:] == [f"# our lease is {node.v4[0]}-24", "# leases from the store", "# nothing to do"]
    node.stop()
    ran = weft(node, "plan")
    assert ran.returncode, "nothing tells it where the store is"
    assert "the weftd that runs here" not in ran.stdout


def test_what_is_not_given_is_as_the_weftd_here_was_started(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start("--ip-masq")
    [endpoints] = [flag for flag in node.command() if flag.startswith("--etcd-endpoints=")]
    same = weft(node, "plan", "--", endpoints)
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.startswith("# answered by the weftd that runs here")
    without = weft(node, "plan", "--", "--ip-masq=false")
    assert without.returncode == 3
    assert without.stdout.startswith("# a start with the flags of the weftd that runs here, but for those given here\n")
    assert "ruleset iptables IPv4" in without.stdout


@pytest.mark.parametrize("changed", [False, True], ids=["as it started", "configured otherwise"])
def test_a_plan_beside_a_weftd_connects_to_no_store(cluster: Cluster, changed: bool):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    if changed:
        cluster.configure(HOST_GW)
        node.says("CONF-001 .*changed since the start")
    node.netns.run(
        f"""nft add table inet watch
        nft add chain inet watch out '{{ type filter hook output priority 0; }}'
        nft add rule inet watch out ip daddr {STORE} 'tcp flags & (syn | ack) == syn' counter"""
    )
    shown = plan(node)
    assert ("the configuration has changed (Backend.Type; Backend)" in shown.stdout) == changed
    assert shown.returncode == (3 if changed else 0)
    assert "counter packets 0 " in node.netns.run("nft list table inet watch")


def test_the_plan_shows_what_weftd_then_does(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    fight = node.netns.popen(["sh", "-c", "while :; do ip route del 10.5.50.0/24 2>/dev/null; sleep 0.01; done"])
    try:
        node.says("ROUTE-001: someone keeps changing route 10.5.50.0/24", seconds=30)
        shown = json.loads(plan(node, "-o", "json").stdout)
    finally:
        fight.kill()
        fight.wait()
    assert [(step["do"], step["kind"]) for step in shown["steps"]] == [("put", "route")]
    [step] = shown["steps"]
    assert step["text"].startswith("+ route 10.5.50.0/24 ")
    assert step["why"] == "lease 10.5.50.0-24 of node 172.31.0.50"
    node.sees("ip route", "10.5.50.0/24 via", seconds=60)
    assert plan(node).stdout.splitlines()[-1] == "# nothing to do"


def test_a_weftd_without_a_lease_says_what_it_waits_for(cluster: Cluster):
    cluster.configure(SubnetMin="10.5.100.0", SubnetMax="10.5.100.0")
    cluster.peer(100)
    node = cluster.node(1).spawn()
    node.says("waiting for a lease: ")
    shown = plan(node)
    assert shown.returncode == 1
    assert "LEASE-003" in shown.stderr


def test_a_configuration_that_no_start_takes_is_said_and_changes_no_plan(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    cluster.configure({"Network": "nonsense"})
    node.says("CONF-001 .*cannot be used")
    shown = plan(node)
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (0, "# nothing to do")
    assert "! CONF-001 " in shown.stdout


@pytest.mark.parametrize(
    "before, after, gone",
    [
        (VXLAN, HOST_GW, "flannel.1 vxlan"),
        (VXLAN | {"Backend": {"Type": "vxlan", "VNI": 2}}, VXLAN, "flannel.2 vxlan"),
        (VXLAN | {"Backend": {"Type": "udp"}}, VXLAN, "flannel0 tun"),
    ],
)
def test_a_device_of_the_configuration_before_is_planned_to_go(
    cluster: Cluster, before: dict[str, Any], after: dict[str, Any], gone: str
):
    cluster.configure(before)
    node = cluster.node(1).start()
    assert weft(node, "plan").stdout.splitlines()[-1] == "# nothing to do"
    cluster.configure(after)
    node.says("CONF-001 .*changed since the start")
    shown = weft(node, "plan")
    assert f"- link {gone}  # a device of the earlier configuration" in shown.stdout
    node.stop()
    node.start()
    name, _, _ = gone.partition(" ")
    eventually(lambda: f"{name}:" not in node.netns.run("ip link show"), seconds=30)
    assert weft(node, "plan").stdout.splitlines()[-1] == "# nothing to do"


def test_a_key_in_the_store_forges_no_line_and_moves_no_cursor(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    for name in ("\n# nothing to do\n10.6.1.0-24", "\x1b[2J\x1b]0;owned\x0710.6.2.0-24", "\u202e10.6.3.0-24"):
        cluster.peer(50, lease=name)
    shown = plan(node).stdout
    assert "10.6.1.0-24" in shown
    assert "# nothing to do" not in shown.splitlines()
    assert all(line.isprintable() for line in shown.splitlines())


def test_without_the_store_a_plan_rests_on_the_lease_that_the_daemon_holds(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.peer(50)
    node = own_cluster.node(1).start()
    eventually(
        lambda: any("10.5.50.0" in path.read_text() for path in node.state_dir.glob("*/cluster.jsonl")), seconds=30
    )
    own_cluster.etcd.stop()
    shown = plan(node)
    assert f"our lease is {node.v4[0]}-24" in shown.stdout
    assert "we have no lease" not in shown.stdout
    assert shown.stdout.splitlines()[-1] == "# nothing to do", shown.stdout


@pytest.mark.parametrize("bent", [{"BackendType": "vxlam"}, {"data": {"VtepMAC": "zz"}}], ids=["type", "data"])
def test_a_peer_that_is_served_by_what_it_said_before_is_not_planned_to_go(cluster: Cluster, bent: dict[str, Any]):
    cluster.configure()
    name = cluster.peer(50)
    node = cluster.node(1).start()
    node.sees("ip route", "10.5.50.0/24 via")
    eventually(
        lambda: any("10.5.50.0" in path.read_text() for path in node.state_dir.glob("*/cluster.jsonl")), seconds=30
    )
    cluster.etcd.put(cluster.key(name), peer_value(50, **bent))
    node.says(f"ADDR-002 lease {name}: .*it is served by what it said before")
    assert plan(node).stdout.splitlines()[-1] == "# nothing to do"
    node.sees("ip route", "10.5.50.0/24 via")


def test_a_plan_takes_neither_what_is_reserved_nor_what_nobody_can_read(cluster: Cluster):
    cluster.configure(SubnetMin="10.5.100.0", SubnetMax="10.5.102.0")
    node = cluster.node(1)
    cluster.etcd.put(cluster.key("10.5.100.0-24"), "nonsense")
    cluster.etcd.put(cluster.key("10.5.101.0-24"), '{"PublicIP":"172.31.0.77"}')
    assert "planned with 10.5.102.0/24" in plan(node).stdout


def test_before_the_first_start_everything_is_to_be_done_and_nothing_is(cluster: Cluster):
    cluster.configure()
    cluster.node(1).start()
    node = cluster.node(2)
    before = state(node)
    shown = plan(node)
    assert shown.returncode == 3
    for line in ("+ link flannel.1 vxlan id 1", "+ route 10.5.", "+ ruleset iptables IPv4", "we have no lease"):
        assert line in shown.stdout
    assert state(node) == before
    assert not list(node.folder.iterdir())


def test_on_a_node_in_order_there_is_nothing_to_do(cluster: Cluster):
    cluster.configure()
    cluster.node(1).start()
    node = cluster.node(2).start()
    shown = plan(node)
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (0, "# nothing to do")


def test_what_pods_of_before_need_is_shown_and_done_by_the_next_start(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    gateway = node.v4[1]
    node.stop()
    node.netns.run("sysctl -qw net.ipv4.ip_forward=0")
    assert plan(node).stdout.splitlines()[-1] == "# nothing to do", "a machine without pods need not be a router"
    node.netns.run("ip link add cni0 type bridge; ip link set cni0 alias weft:bridge")
    node.ip(f"address add {gateway}/24 dev cni0")
    shown = plan(node).stdout
    assert "~ sysctl net/ipv4/ip_forward=1 (now: sysctl net/ipv4/ip_forward=0)" in shown
    assert "~ link cni0 up (now: link cni0 down)" in shown
    assert shown.splitlines()[-1] == "# 2 steps"
    node.start()
    assert node.netns.run("sysctl -n net.ipv4.ip_forward") == "1\n"
    node.sees("ip -o link show dev cni0", "[<,]UP[,>]")
    assert plan(node).stdout.splitlines()[-1] == "# nothing to do"


@pytest.mark.parametrize("config", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_what_is_missing_and_what_is_too_much_are_shown_apart(cluster: Cluster, config: dict[str, object]):
    cluster.configure(config)
    peer = cluster.node(1).start()
    node = cluster.node(2).start()
    node.stop()
    node.netns.run(f"ip route del {peer.v4}; ip route add 10.5.250.0/24 via {peer.public_v4} proto 165")
    before = state(node)
    shown = json.loads(plan(node, "-o", "json").stdout)
    done = {(step["do"], step["text"].partition(" via")[0]) for step in shown["steps"]}
    assert {("put", f"+ route {peer.v4}"), ("delete", "- route 10.5.250.0/24")} <= done
    why = {step["text"].partition(" via")[0]: step["why"] for step in shown["steps"]}
    assert why[f"+ route {peer.v4}"] == f"lease {str(peer.v4).replace('/', '-')} of node {peer.public_v4}"
    assert why["- route 10.5.250.0/24"] == "no lease that is served asks for it"
    assert f"{peer.public_v4}\n" in plan(node).stdout.partition(f"+ route {peer.v4}")[2]
    assert state(node) == before


def test_without_the_store_the_plan_rests_on_what_is_remembered(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.node(1).start()
    node = own_cluster.node(2).start()
    node.stop()
    own_cluster.underlay.etcd.kill()
    shown = plan(node)
    assert "# leases from memory: STORE-001 " in shown.stdout
    assert "# nothing to do" in shown.stdout


def test_a_peer_that_the_store_has_lost_is_not_planned_to_go(own_cluster: Cluster, tmp_path):
    own_cluster.configure()
    own_cluster.etcd.snapshot(tmp_path / "snapshot")
    own_cluster.peer(50)
    node = own_cluster.node(1).start()
    node.sees("ip route", "10.5.50.0/24")
    node.stop()
    own_cluster.etcd.kill()
    own_cluster.etcd.restore(tmp_path / "snapshot")
    own_cluster.etcd.start()
    shown = plan(node)
    assert "the store has lost what it held, or is another one (STORE-003)" in shown.stdout
    assert [line for line in shown.stdout.splitlines() if line.startswith("-")] == []
    node.start()
    assert "10.5.50.0/24" in node.ip("route")


def test_without_the_store_and_without_memory_the_plan_says_so(own_cluster: Cluster):
    own_cluster.underlay.etcd.kill()
    shown = plan(own_cluster.node(1))
    assert shown.returncode == 1
    assert "STORE-001" in shown.stderr


@pytest.mark.parametrize("config", [VXLAN, HOST_GW, {**VXLAN, **ONLY_V6}, {**VXLAN, "EnableNFTables": True}])
def test_cleanup_removes_exactly_what_is_ours_and_proves_it(cluster: Cluster, config: dict[str, object]):
    node = cluster.node(1)
    node.netns.run(FOREIGN)
    before = state(node)
    cluster.configure(config)
    cluster.node(2).start("--ip-masq")
    node.start("--ip-masq")
    assert state(node) != before
    node.stop()
    listed = weft(node, "cleanup", "--dry-run", f"--subnet-file={node.subnet_file}")
    assert state(node) != before
    removed = weft(node, "cleanup", f"--subnet-file={node.subnet_file}")
    assert (removed.returncode, removed.stderr) == (0, "")
    assert state(node) == before
    assert listed.stdout.count("would remove") == removed.stdout.count("removed ")
    assert not node.subnet_file.exists()
    places = f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}"
    again = json.loads(weft(node, "cleanup", "-o", "json", *places).stdout)
    files = again.pop("files")
    assert files[str(node.state_dir)].startswith("who this node is; remove it if")
    assert again == {"dry_run": False, "found": [], "left": [], "foreign": [], "problems": []}
    said = weft(node, "cleanup", *places).stdout.splitlines()
    assert said[:-1] == [f"left {path}: {why}" for path, why in files.items()]


@pytest.mark.parametrize("config", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_cleanup_leaves_what_only_bears_our_marks_and_names_it(cluster: Cluster, config: dict[str, object]):
    cluster.configure(config)
    cluster.node(2).start()
    node = cluster.node(1)
    node.netns.run(
        """ip link add theirs type bridge; ip link set theirs alias weft:mine
        ip link add bridge0 type bridge; ip link set bridge0 alias bridge:weft:
        ip link add pretender type bridge; ip link set pretender alias weft:vtep
        ip route add 198.51.100.0/24 via 172.31.0.254 proto 165"""
    )
    look = "route show proto 165", "link show type bridge"
    before = [node.ip(each) for each in look]
    node.start()
    node.stop()
    node.netns.run("ip route add 10.5.250.0/24 via 172.31.0.254 proto 165 table 77")
    removed = weft(node, "cleanup", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}")
    assert (removed.returncode, removed.stderr) == (0, "")
    assert [node.ip(each) for each in look] == before
    assert "10.5.250.0/24" in node.ip("route show table 77")
    left = [line for line in removed.stdout.splitlines() if line.startswith(("left link", "left route", "left table"))]
    assert len(left) == 4
    for name in ("link theirs", "link pretender", "198.51.100.0/24", "table 77"):
        assert any(name in line for line in left)


def test_cleanup_removes_no_route_of_which_nothing_tells_whose_it_is(cluster: Cluster):
    cluster.configure(HOST_GW)
    peer = cluster.node(2).start()
    node = cluster.node(1).start()
    node.stop()
    node.subnet_file.unlink()
    unsure = weft(node, "cleanup", f"--subnet-file={node.subnet_file}", "--state-dir=/nonexistent")
    assert unsure.returncode == 1
    assert f"CLEAN-001 route {peer.v4}" in unsure.stderr
    assert str(peer.v4) in node.ip("route")
    assert "nothing of weft is left" not in unsure.stdout
    done = weft(node, "cleanup", f"--subnet-file={node.subnet_file}", f"--state-dir={node.state_dir}")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(peer.v4) not in node.ip("route")


@pytest.mark.parametrize("config", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_cleanup_is_refused_beside_a_daemon(cluster: Cluster, config: dict[str, object]):
    cluster.configure(config)
    cluster.node(2).start()
    node = cluster.node(1).start()
    before = state(node)
    refused = weft(node, "cleanup", f"--subnet-file={node.subnet_file}")
    assert refused.returncode == 2
    assert "INST-001" in refused.stderr
    assert state(node) == before


@pytest.mark.parametrize("kind", [{}, {"EnableNFTables": True}], ids=["iptables", "nft"])
def test_cleanup_without_the_program_says_what_it_cannot_see(cluster: Cluster, kind: dict[str, object]):
    cluster.configure(VXLAN, kind)
    node = cluster.node(1).start("--ip-masq")
    node.stop()
    arguments = "cleanup", f"--subnet-file={node.subnet_file}"
    for option in ("--dry-run", "-ojson", ""):
        done = weft(node, *arguments, *([option] if option else []), wrap=only(""))
        assert done.returncode == 1
        said = done.stdout if option == "-ojson" else done.stderr
        assert "HOST-002" in said
        assert ("the table ip flannel-ipv4" if kind else "chains under our names for IPv4") in said
        assert "nothing of weft is left" not in done.stdout
    assert "flannel" in node.netns.run("nft list ruleset").lower()
    assert weft(node, *arguments).returncode == 0
    # Where there is nothing, no program is needed to prove it.
    done = weft(node, *arguments, wrap=only(""))
    assert (done.returncode, done.stderr) == (0, "")
    *files, last = done.stdout.splitlines()
    assert last == "nothing of weft is left in the kernel"
    assert all(line.startswith("left /") for line in files)


def test_cleanup_beside_a_daemon_is_refused_however_often_it_was_asked_before(cluster: Cluster):
    """Each who asks leaves a connection waiting."""
    cluster.configure()
    [node] = cluster.nodes(1)
    for _ in range(4):
        assert "INST-001" in weft(node, "cleanup", f"--subnet-file={node.subnet_file}").stderr


@pytest.mark.parametrize("wrap, user", [(USER, 65534), (ROOT, 0)], ids=["a user", "a container's root"])
def test_a_process_without_rights_that_holds_our_names_holds_up_nothing(cluster: Cluster, wrap, user):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1)
    with squatting(node.netns, "weft/device/flannel.1", "weft/rules", "weft/device/other", wrap=wrap):
        node.start("--ip-masq")
        node.says(f"the name device/flannel.1 is held by user {user}")
        assert "10.5.50.0/24" in node.ip("route")
        assert node.stop() == 0
        cleaned = weft(node, "cleanup", f"--subnet-file={node.subnet_file}")
        assert cleaned.returncode == 0, cleaned.stderr
    assert "flannel.1" not in node.ip("link")
