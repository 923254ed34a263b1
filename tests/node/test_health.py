"""The health endpoints (flannel.md §1.7) and the end of a daemon (flannel.md §1.6)."""

import re
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import in_time
from tests.support.weftd import HEALTH_PORT, VXLAN, Cluster, Daemon, eventually


@pytest.mark.spec("flannel.md §1.7/healthz", "flannel.md §1.7/readyz", "flannel.md §1.5/5-health-server")
def test_health_is_answered_while_waiting_for_the_configuration(cluster: Cluster):
    node = cluster.node(1).spawn()
    eventually(lambda: node.get("/healthz")[0])
    assert node.get("/healthz") == (200, "flanneld is running")
    assert node.get("/readyz") == (503, "flanneld is not ready yet")
    cluster.configure()
    node.wait_ready()
    assert node.get("/readyz") == (200, "flanneld is ready")
    assert node.get("/healthz") == (200, "flanneld is running")


@pytest.mark.spec("flannel.md §1.7/other-paths")
def test_any_method_will_do_and_no_other_path(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"):
        body = "" if method == "HEAD" else "flanneld is running"
        assert node.get("/healthz", method) == (200, body)
        assert node.get("/readyz?verbose", method)[0] == 200
        for path in ("/", "/metric", "/healthz/x", "/READYZ"):
            assert node.get(path, method)[0] == 404, path


def test_a_tunnel_is_refused_and_leaves_nothing_open(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    descriptors = Path(f"/proc/{node.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(50):
        assert node.get("/healthz", "CONNECT")[0] == 405
    # A daemon that is just ready still opens some of its own, so not one more is not what can be asked.
    eventually(lambda: len(list(descriptors.iterdir())) < before + 25)
    assert "Traceback" not in node.log


def test_a_connection_without_a_request_does_not_hold_up_the_end(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    made = node.netns.call(lambda: socket.create_connection(("127.0.0.1", node.health_port)))
    with made as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
        assert node.stop() == 0
        assert in_time(start, 4)


@pytest.mark.spec("flannel.md §1.2/healthz-ip", "flannel.md §1.2/healthz-port")
def test_health_listens_only_where_it_is_told(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start("--healthz-ip=127.0.0.1", "--healthz-port=8090")
    assert "127.0.0.1:8090" in node.netns.run("ss -ltn")
    node.stop()
    node.spawn("--healthz-port=0").says("ready: ")
    assert node.netns.run("ss -Hltn") == ""


@pytest.mark.spec("flannel.md §1.5/5-health-server")
def test_a_health_port_in_use_ends_the_start(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    taken = node.netns.call(lambda: socket.create_server(("0.0.0.0", HEALTH_PORT)))  # noqa: S104 a namespace of ours
    with taken:
        assert node.spawn().wait() == 1
    node.says(r"FLAG-001 --healthz-ip, --healthz-port: 0\.0\.0\.0:8090 cannot be bound")
    assert cluster.leases() == {}


@pytest.mark.spec("flannel.md §1.6/health-grace")
def test_open_connections_do_not_hold_up_the_end(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    idle = node.netns.call(lambda: socket.create_connection(("127.0.0.1", HEALTH_PORT)))
    with idle, _half_request(node):
        assert node.get("/healthz")[0] == 200  # the half one was read before
        start = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - start > 2.9
        assert in_time(start, 9), "what was begun has three seconds, and not the usual ten"


@pytest.mark.spec("flannel.md §1.6/health-grace")
def test_a_request_that_was_begun_is_answered_after_the_signal_too(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    with _half_request(node) as begun:
        assert node.get("/healthz")[0] == 200  # ours was read before
        node.signal(signal.SIGTERM)
        eventually(lambda: node.netns.run("ss -Hltn") == "")
        begun.sendall(b"t: node\r\n\r\n")
        assert begun.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert node.wait() == 0


@pytest.mark.spec("flannel.md §1.6/second-signal")
def test_a_second_signal_kills_at_once(cluster: Cluster):
    """Shown on a daemon that gives a request its time to come whole."""
    cluster.configure()
    node = cluster.node(1).start()
    with _half_request(node):
        assert node.get("/healthz")[0] == 200  # ours was read before
        node.signal(signal.SIGTERM)
        eventually(lambda: not _handles(node.pid, signal.SIGTERM))
        assert node.running
        node.signal(signal.SIGTERM)
        assert node.wait() == -signal.SIGTERM


@pytest.mark.spec("flannel.md §1.6/survives-exit")
@pytest.mark.spec("flannel.md §3.2/kept-on-exit", cases=("iptables", "nft"))
@pytest.mark.spec("flannel.md §8.3/kept-at-shutdown", cases="iptables")
@pytest.mark.parametrize("nftables", [False, True], ids=["iptables", "nft"])
def test_all_that_pods_need_survives_the_daemon(cluster: Cluster, nftables):
    cluster.configure(VXLAN, EnableNFTables=nftables)
    cluster.peer(50)
    node = cluster.node(1).start("--ip-masq")
    look = "ip route; ip neigh show nud permanent; bridge fdb show dev flannel.1; ip -d link show flannel.1"
    rules = "nft -s list ruleset"
    before = node.netns.run(look), node.netns.run(rules), node.subnet_file.read_bytes()
    assert node.stop() == 0
    assert (node.netns.run(look), node.netns.run(rules), node.subnet_file.read_bytes()) == before
    node.start("--ip-masq")
    node.kill()
    assert (node.netns.run(look), node.netns.run(rules), node.subnet_file.read_bytes()) == before
    assert list(cluster.leases()) == sorted({f"{node.v4[0]}-24", "10.5.50.0-24"})


@pytest.mark.spec("flannel.md §3.2/once", "flannel.md §3.2/modes", "flannel.md §3.2/atomic")
def test_the_subnet_file_is_written_once_with_its_modes(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.spawn("--ip-masq", wrap=["sh", "-c", 'umask 077; exec "$@"', "sh"]).wait_ready()
    assert node.subnet_file.stat().st_mode & 0o777 == 0o644
    assert node.subnet_file.parent.stat().st_mode & 0o777 == 0o755
    first = node.subnet_file.stat()
    node.ip("link del flannel.1")
    node.says("VTEP-004")
    cluster.peer(50)
    node.sees("ip route", "10.5.50.0")
    again = node.subnet_file.stat()
    assert (again.st_ino, again.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert [path.name for path in node.subnet_file.parent.iterdir()] == ["subnet.env"]


def _half_request(node: Daemon) -> socket.socket:
    """A connection on which a request has begun: what is missing is `t: node` and an empty line."""
    made: socket.socket = node.netns.call(lambda: socket.create_connection(("127.0.0.1", HEALTH_PORT)))
    made.sendall(b"GET /healthz HTTP/1.1\r\nHos")
    return made


def _handles(pid: int, number: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal (proc(5): SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text()
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_idle_connections_take_a_few_descriptors_and_no_more(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.spawn(wrap=["prlimit", "--nofile=256"]).wait_ready()
    descriptors = Path(f"/proc/{node.pid}/fd")
    before = len(list(descriptors.iterdir()))
    with ExitStack() as held:
        for _ in range(300):
            held.enter_context(_half_request(node))
        assert node.get("/readyz") == (200, "flanneld is ready")
        assert len(list(descriptors.iterdir())) < before + 40
    assert not node.lines("ERROR|Traceback")


def test_a_node_in_numbers(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    node.sees("ip route", r"10\.5\.50\.0/24")
    node.ip("route del 10.5.50.0/24")
    node.says("ROUTE-001")
    code, page = node.get("/metrics")
    assert code == 200
    for line in (
        "weft_ready 1.0",
        'weft_peers{state="served"} 1.0',
        'weft_reconcile_repairs_total{code="ROUTE-001",plane="routes"} 1.0',
        "weft_pod_mtu_bytes 1450.0",
        "weft_lease_confirmed 1.0",
        'weft_device_mtu_bytes{device="flannel.1"} 1450.0',
        'weft_device_lost_packets_total{device="flannel.1",direction="received"} 0.0',
    ):
        assert line in page.splitlines(), page
    assert re.search(r'^weft_config_info\{backend="vxlan",digest="[0-9a-f]{12}"\} 1.0$', page, re.MULTILINE)
    [age] = re.findall(r"^weft_store_event_age_seconds (\S+)$", page, re.MULTILINE)
    cluster.peer(51)
    node.sees("ip route", r"10\.5\.51\.0/24")
    assert float(age) >= 0

    def taken() -> float:
        pattern = r'^weft_store_to_kernel_seconds_count\{plane="routes"\} (\S+)$'
        [count] = re.findall(pattern, node.get("/metrics")[1], re.MULTILINE)
        return float(count)

    eventually(lambda: taken() >= 1)  # a page is made once a second at most
