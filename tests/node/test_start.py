"""The order of a start (flannel.md §1.5), as a supervisor, an operator and a peer see it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import in_time
from tests.support.weftd import DUAL, VXLAN, Cluster, eventually, peer_mac


@pytest.mark.spec("flannel.md §1.2/version", "flannel.md §1.5/1-flags-version", "flannel.md §1.3/version-no-effect")
def test_version_and_help_print_and_end(cluster: Cluster):
    node = cluster.node(1)
    assert node.spawn("--version", env={"FLANNELD_IFACE": "none"}).wait() == 0
    version = node.log
    assert version.count("\n") == 1
    assert version[0].isdigit()
    assert node.spawn("--help").wait() == 0
    assert "--subnet-lease-renew-margin" in node.log
    assert not node.state_dir.exists()


@pytest.mark.spec("flannel.md §1.6/exit-2", "flannel.md §1.5/2-margin", "flannel.md §1.1/unknown-flag")
def test_a_command_line_that_cannot_be_understood_ends_with_2_and_all_its_problems(cluster: Cluster):
    node = cluster.node(1)
    assert node.spawn("--subnet-lease-renew-margin=1440", "--ifcae=eth0", "--healthz-port=x", "extra").wait() == 2
    for seen in ("1440", "ifcae", "--healthz-port", "extra"):
        node.says(rf"FLAG-001.*{seen}")
    assert node.spawn("--kube-subnet-mgr").wait() == 2
    node.says("FLAG-001 NODE_NAME: not set, and of POD_NAME and POD_NAMESPACE none")
    assert not node.state_dir.exists()


@pytest.mark.spec("flannel.md §1.6/exit-1")
@pytest.mark.spec("flannel.md §1.5/10-interface", cases="no-such-interface")
@pytest.mark.spec("flannel.md §1.5/11-backend", cases="unknown-back-end")
@pytest.mark.parametrize(
    "config, flags, problems",
    [
        pytest.param("{", (), ["CONF-002"], id="not-json"),
        pytest.param(
            '{"Network": "10.5.0.0/30", "SubnetLen": "x", "Backend": {"Type": "vxlan", "VNI": "one"}}',
            (),
            ["CONF-002.*SubnetLen", r"CONF-002.*Backend\.VNI"],
            id="all-problems-at-once",
        ),
        pytest.param(
            '{"EnableIPv4": false, "Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}',
            (),
            ["CONF-002"],
            id="no-family",
            marks=pytest.mark.spec("flannel.md §1.5/7-no-family"),
        ),
        pytest.param(
            '{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlam"}}',
            (),
            ["CONF-002.*vxlam.*vxlan"],
            id="unknown-back-end",
        ),
        pytest.param(json.dumps(VXLAN), ("--iface=eth7",), ["IFACE-001.*eth7"], id="no-such-interface"),
        pytest.param(
            json.dumps({**VXLAN, "Backend": {"Type": "host-gw"}}),
            ("--public-ip=192.0.2.9",),
            ["IFACE-001.*192.0.2.9"],
            id="host-gw-behind-nat",
            marks=pytest.mark.spec("flannel.md §6.3/nat-refused"),
        ),
    ],
)
def test_a_node_that_cannot_be_served_ends_with_1_and_says_why(cluster: Cluster, config, flags, problems):
    cluster.configure(config)
    node = cluster.node(1)
    before = node.ip("-br address; ip route; ip -br link")
    assert node.spawn(*flags).wait() == 1
    for problem in problems:
        node.says(problem)
    assert "Traceback" not in node.log
    assert node.ip("-br address; ip route; ip -br link") == before, "nothing changed"
    assert cluster.leases() == {}
    assert not node.subnet_file.exists()


@pytest.mark.spec("flannel.md §1.6/exit-1")
def test_a_bad_configuration_leaves_a_working_data_plane_as_it_was(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start("--ip-masq")
    node.stop()
    before = node.ip("route; ip neigh show nud permanent; ip -d link show flannel.1") + node.netns.run("iptables-save")
    cluster.configure('{"Network": "10.5.0.0/16", "SubnetLen": 99, "Backend": {"Type": "nonsense"}}')
    assert node.spawn("--ip-masq").wait() == 1
    node.says("CONF-002.*SubnetLen")
    node.says("CONF-002.*nonsense")
    after = node.ip("route; ip neigh show nud permanent; ip -d link show flannel.1") + node.netns.run("iptables-save")
    assert _without_times(after) == _without_times(before)
    assert node.subnet_file.exists()


@pytest.mark.spec("flannel.md §1.5/6-config-retry", "flannel.md §1.5/4-signals", "flannel.md §1.6/exit-0")
def test_it_waits_for_the_configuration_and_may_be_stopped_meanwhile(cluster: Cluster):
    node = cluster.node(1).spawn()
    node.says(r"waiting for the network configuration: CONF-002 etcd key .*/config: no such key.*etcdctl put")
    time.sleep(1.2)
    assert len(node.lines("waiting for the network configuration")) == 1, "said once"
    assert node.stop() == 0
    node.spawn()
    node.says("waiting for the network configuration")
    cluster.configure()
    node.wait_ready(3)
    assert node.stop() == 0


@pytest.mark.spec("flannel.md §1.5/4-signals")
@pytest.mark.spec("flannel.md §1.5/21-exit-0", cases="SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_ready_daemon_with_0(cluster: Cluster, number):
    cluster.configure()
    node = cluster.node(1).start()
    began = time.monotonic()
    node.signal(number)
    assert node.wait() == 0
    assert in_time(began, 3)
    node.says(f"{number.name}: stopping")


@pytest.mark.spec("flannel.md §1.5/18-peers-before-ready", "flannel.md §1.5/17-subnet-env-ready")
def test_peers_and_rules_are_in_the_kernel_before_the_subnet_file_and_readiness(cluster: Cluster):
    cluster.configure()
    cluster.peers(range(50, 70))
    node = cluster.node(1)
    # Where the file shall be nothing can be written yet: the start cannot pass this point.
    place = node.subnet_file.parent
    place.mkdir(parents=True)
    script = f'mount --make-rprivate / && mount -t tmpfs -o ro x {place} && exec "$@"'
    node.spawn("--ip-masq", wrap=("unshare", "--mount", "sh", "-c", script, "sh"))
    node.says(r"LEASE-001 .*subnet\.env: cannot be written.*--subnet-file")
    assert node.ip("route").count("dev flannel.1 proto 165") == 20
    assert peer_mac(69) in node.netns.run("bridge fdb show dev flannel.1")
    assert "FLANNEL-POSTRTG" in node.netns.run("iptables-save")
    assert node.get("/readyz") == (503, "flanneld is not ready yet")
    assert node.get("/healthz")[0] == 200
    # A failed write is tried again until it works.
    subprocess.run(["nsenter", f"--mount=/proc/{node.pid}/ns/mnt", "umount", str(place)], check=True)
    node.wait_ready(3)
    assert "FLANNEL_SUBNET" in node.env


@pytest.mark.spec("flannel.md §1.5/3-previous-subnet", "flannel.md §4.3/3-previous-subnet")
def test_the_subnet_of_the_subnet_file_is_asked_for_first(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.subnet_file.parent.mkdir(parents=True)
    node.subnet_file.write_text("FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.123.1/24\nFLANNEL_MTU=1450\n")
    node.start()
    assert node.env["FLANNEL_SUBNET"] == "10.5.123.1/24"
    assert list(cluster.leases()) == ["10.5.123.0-24"]


@pytest.mark.spec("flannel.md §1.5/19-sd-notify")
@pytest.mark.spec("flannel.md §1.4/notify-socket", cases=("path", "abstract"))
@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_a_supervisor_is_told_once_when_all_is_ready(cluster: Cluster, tmp_path: Path, abstract):
    cluster.configure()
    node = cluster.node(1)
    address = "@weft-test-notify" if abstract else str(tmp_path / "notify")
    listening = node.netns.call(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    with listening:
        listening.settimeout(100)
        listening.bind(address.replace("@", "\0"))
        node.spawn(env={"NOTIFY_SOCKET": address})
        assert listening.recv(4096) == b"READY=1"
        assert node.subnet_file.exists()
        assert node.stop() == 0
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.recv(4096)


@pytest.mark.spec("flannel.md §1.4/notify-socket")
def test_variables_of_other_stores_and_back_ends_change_nothing_and_a_dead_notify_socket_neither(cluster: Cluster):
    cluster.configure()
    others = {
        "NODE_NAME": "x",
        "POD_NAME": "y",
        "POD_NAMESPACE": "z",
        "EVENT_QUEUE_DEPTH": "many",
        "CONT_WHEN_CACHE_NOT_READY": "true",
        "WIREGUARD_KEY_FILE": "/nowhere",
        "KUBERNETES_SERVICE_HOST": "192.0.2.1",
    }
    node = cluster.node(1).start(env={**others, "NOTIFY_SOCKET": "/nowhere/notify"})
    assert node.lines(" (WARN|ERROR) ") == []


@pytest.mark.spec("flannel.md §1.5/8-br-netfilter")
def test_without_br_netfilter_it_says_so_and_goes_on(cluster: Cluster):
    cluster.configure(VXLAN, DUAL)
    node = cluster.node(1)
    hide = ["unshare", "--mount", "sh", "-ec", 'mount -t tmpfs none /proc/sys/net/bridge; exec "$@"', "sh"]
    node.spawn(wrap=hide).wait_ready()
    node.says(r"KERN-001 .*bridge-nf-call-iptables: br_netfilter is not loaded")
    node.says(r"KERN-001 .*bridge-nf-call-ip6tables")
    node.stop()
    # Nobody misses it who does without iptables.
    cluster.configure(VXLAN, DUAL, EnableNFTables=True)
    node.spawn(wrap=hide).wait_ready()
    assert node.lines("KERN-001") == []


@pytest.mark.spec("flannel.md §1.8/blackhole", "flannel.md §1.5/16-blackhole")
def test_the_blackhole_route_is_there_from_the_start_and_stays(cluster: Cluster):
    cluster.configure(VXLAN, DUAL)
    node = cluster.node(1).start("--ip-blackhole-route")
    assert f"blackhole {node.v4} proto 165" in node.ip("route")
    assert f"blackhole {node.v6} dev lo proto 165" in node.ip("-6 route")
    node.ip(f"route get {node.v4[9]} && exit 1 || true")
    node.ip(f"route del blackhole {node.v4} metric 2147483647")
    node.sees("ip route", f"blackhole {node.v4} proto 165")
    node.says("ROUTE-001: put back route blackhole")
    # The pods' bridge comes first all the same.
    pod = node.pod()
    assert "dev cni0" in node.ip(f"route get {pod.ips[0]}")
    node.stop()
    assert "blackhole" in node.ip("route")


def test_nothing_of_the_environment_is_needed(cluster: Cluster):
    """A unit file may give a process hardly more than this."""
    cluster.configure()
    node = cluster.node(1)
    bare = subprocess.run(
        ["nsenter", f"--net={node.netns.path}", "env", "-i", *node.command("--version")],
        capture_output=True,
        check=True,
        timeout=200,
    )
    assert bare.stderr.strip()
    node.spawn(wrap=["env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"])
    node.wait_ready()
    eventually(lambda: node.ready)
    assert sys.executable in Path(f"/proc/{node.pid}/cmdline").read_text()


def _without_times(text: str) -> list[str]:
    """What `iptables-save` says, without comments and counters."""
    return [line.split(" [")[0] for line in text.splitlines() if not line.startswith("#")]


def test_a_parent_that_ignores_the_end_of_children_changes_nothing(cluster: Cluster):
    """It hands that down, and the kernel then keeps no exit status of the programs for rules."""
    cluster.configure()
    node = cluster.node(1)
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    node.spawn("--ip-masq", wrap=[sys.executable, "-c", ignoring]).wait_ready()
    eventually(lambda: node.ready)
    assert not node.lines("ERROR|WARN asyncio|HOST-002")


def test_without_its_own_device_a_node_is_not_ready_and_says_why(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1)
    node.netns.run("ip link add foreign type vxlan id 1 dstport 8472 dev eth0 && ip link set foreign up")
    node.spawn()
    node.says(r"ERROR network: VTEP-002 link flannel.1 .*the kernel refuses it.*ip -d link show type vxlan")
    assert not node.ready
    assert not node.subnet_file.exists()
    node.netns.run("ip link del foreign")
    node.wait_ready()
    assert len(node.lines("VTEP-002")) == 1


def test_while_a_start_waits_for_its_device_lease_peers_and_rules_are_kept(cluster: Cluster):
    """That may take days: a lease not renewed meanwhile would be another node's, with our public IP in its place."""
    cluster.configure(VXLAN)
    node = cluster.node(1)
    node.netns.run("ip link add foreign type vxlan id 1 dstport 8472 dev eth0 && ip link set foreign up")
    node.spawn()
    node.says("VTEP-002")
    [lease] = cluster.leases()
    cluster.etcd.delete(cluster.key(lease))
    node.says("LEASE-004 .*taking a lease again")
    eventually(lambda: list(cluster.leases()) == [lease])
    node.netns.run("iptables -F FLANNEL-FWD")
    node.says("put back .*FLANNEL-FWD")
    cluster.peers((7,))
    node.netns.run("ip link del foreign")
    node.wait_ready()
    eventually(lambda: "10.5.7.0/24" in node.ip("route"))


def test_a_node_that_waits_for_room_looks_again_at_store_and_machine(cluster: Cluster):
    """Both may have changed by the time that somebody makes room: days later, on another address."""
    cluster.configure(SubnetMin="10.5.100.0", SubnetMax="10.5.101.0")
    cluster.peers((100, 101))
    node = cluster.node(1).spawn()
    node.says("waiting for a lease: LEASE-003")
    assert "LEASE-003" in node.diagnosis()
    node.ip("address add 172.31.0.61/24 dev eth0")
    node.ip("address del 172.31.0.1/24 dev eth0")
    node.says("uplink eth0 .* with 172.31.0.61")
    node.ip("address del 172.31.0.61/24 dev eth0")
    node.says("waiting for a lease: IFACE-001")
    node.ip("address add 172.31.0.62/24 dev eth0")
    node.says("uplink eth0 .* with 172.31.0.62")
    cluster.etcd.delete(cluster.key("10.5.101.0-24"))
    node.wait_ready()
    assert str(node.v4) == "10.5.101.0/24"
    assert json.loads(cluster.leases()["10.5.101.0-24"].value)["PublicIP"] == "172.31.0.62"
