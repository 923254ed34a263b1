"""No fault ends the daemon in silence: not the store's, not a balancer's, not DNS's, not one of its own."""

import os
import re
import shlex
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import in_time
from tests.support.weftd import STORE, Cluster, Daemon, Underlay, eventually

_RESET = struct.pack("ii", 1, 0)


def test_an_etcd_that_hangs_ends_nothing(own_cluster: Cluster):
    """A stopped etcd accepts connections, for the kernel does, and says nothing."""
    own_cluster.configure()
    node = own_cluster.node(1).start("--ip-masq")
    own_cluster.etcd.pause()
    node.says("STORE-001: the store does not answer", seconds=30)
    ends = time.monotonic() + 20  # several rounds of connecting, asking and looking closer
    while time.monotonic() < ends:
        assert node.running, node.log
        assert node.get("/readyz")[0] == 200
        time.sleep(0.2)
    own_cluster.etcd.resume()
    own_cluster.peer(50)
    node.sees("ip route", "10.5.50.0/24", seconds=20)
    node.says("the store answers again")
    assert not node.lines("INST-002")
    assert node.stop() == 0


@contextmanager
def resetter(underlay: Underlay) -> Iterator[list[int]]:
    """A balancer with nothing behind it in the store's place: it accepts and resets. Yields a count of that."""
    accepted = [0]
    server = underlay.switch.call(lambda: socket.create_server((STORE, underlay.etcd.port)))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            accepted[0] += 1
            time.sleep((0, 0.0005, 0.002)[accepted[0] % 3])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield accepted
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def test_a_balancer_that_accepts_and_resets_ends_nothing(own_cluster: Cluster):
    own_cluster.configure()
    own_cluster.etcd.stop()
    node = own_cluster.node(1)
    with resetter(own_cluster.underlay) as accepted:
        node.spawn()
        node.says("waiting for the network configuration: STORE-001 .*the connection broke")
        eventually(lambda: accepted[0] > 20, seconds=40)
        assert node.running
        assert node.get("/readyz")[0] == 503
    own_cluster.etcd.start()
    node.wait_ready()
    own_cluster.etcd.stop()
    with resetter(own_cluster.underlay) as accepted:
        node.says("STORE-001: the store does not answer", seconds=20)
        eventually(lambda: accepted[0] > 40, seconds=60)
        assert node.running
        assert node.ready
    own_cluster.etcd.start()
    own_cluster.peer(50)
    node.sees("ip route", "10.5.50.0/24", seconds=20)
    assert not node.lines("INST-002")
    assert node.stop() == 0


def test_a_store_behind_a_hole_in_the_network_is_noticed_soon_and_costs_one_connection(own_cluster: Cluster):
    """Packets that are dropped bring no error: neither the connections that are given up nor new ones ever end."""
    own_cluster.configure()
    node = own_cluster.node(1).start()

    def connections() -> list[str]:
        return node.netns.run(f"ss -Htan dst {STORE}").splitlines()

    assert len([line for line in connections() if not line.startswith("TIME-WAIT")]) == 1
    cut = f"ip saddr {STORE} drop"
    node.netns.run(f"nft 'table ip hole {{ chain in {{ type filter hook input priority 0; {cut}; }}; }}'")
    began = time.monotonic()
    node.says("STORE-001: the store does not answer", seconds=30)
    assert in_time(began, 14), "3 s until it is asked, 3 for its answer, 2 for a connection"
    most: list[str] = []
    while time.monotonic() < began + 25:
        most = max(most, connections(), key=len)
        time.sleep(0.05)
    assert len(most) <= 1, "\n".join(most)
    node.netns.run("nft delete table ip hole")
    own_cluster.peer(50)
    node.sees("ip route", "10.5.50.0/24", seconds=20)
    assert len([line for line in connections() if not line.startswith("TIME-WAIT")]) == 1


class Planted:
    """Faults of our own in a real daemon: a function raises as long as a file of its name is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def env(self, *functions: str) -> dict[str, str]:
        lines = ["import asyncio, importlib, pathlib, functools"]
        for function in functions:
            module, _, name = function.partition(":")
            owner, _, method = name.rpartition(".")
            lines.append(f"""
def plant(owner, method, file):
    before = getattr(owner, method)
    @functools.wraps(before)
    def planted(*args, **kwargs):
        if file.exists():
            raise getattr(asyncio, file.read_text(), ZeroDivisionError)("planted")
        return before(*args, **kwargs)
    setattr(owner, method, planted)
plant(importlib.import_module({module!r}).{owner}, {method!r}, pathlib.Path({str(self.folder)!r}) / {method!r})
""")
        (self.folder / "sitecustomize.py").write_text("\n".join(lines))
        return {"PYTHONPATH": os.pathsep.join((str(self.folder), *sys.path))}

    def arm(self, method: str, kind: str = "") -> None:
        (self.folder / method).write_text(kind)

    def disarm(self, method: str) -> None:
        (self.folder / method).unlink()


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "CancelledError"])
def test_a_part_that_dies_of_a_fault_is_started_again_and_that_is_said(cluster: Cluster, tmp_path: Path, kind):
    cluster.configure()
    planted = Planted(tmp_path / "planted")
    env = planted.env(
        "weft.daemon.peers:Peers.take",
        "weft.daemon.network:Network.notice",
        "weft.daemon.reconcile:Reconciler.peers",
        "weft.daemon.reconcile:Reconciler.decide",
        "weft.daemon.planes.kernel:NodeKernel.apply",
        "weft.daemon.planes.rules:RulesPlane.look",
    )
    node = cluster.node(1).start("--ip-masq", env=env)
    cluster.peer(50)
    node.sees("ip route", "10.5.50.0/24")
    parts = {
        "take": ("other leases", lambda: cluster.peer(51), lambda: "10.5.51.0/24" in node.ip("route")),
        "notice": ("notices", lambda: node.ip("route del 10.5.50.0/24"), lambda: "10.5.50.0/24" in node.ip("route")),
        "peers": ("other leases", lambda: cluster.peer(52), lambda: "10.5.52.0/24" in node.ip("route")),
        "decide": (
            "deciding",
            lambda: node.ip("link set eth0 mtu 1400"),
            lambda: "mtu 1350" in node.ip("link show flannel.1"),
        ),
        "apply": ("routes", lambda: cluster.peer(53), lambda: "10.5.53.0/24" in node.ip("route")),
        "look": (
            "rules",
            lambda: node.netns.run("nft flush ruleset"),
            lambda: "FLANNEL-POSTRTG" in node.netns.run("iptables-save"),
        ),
    }
    for method, (part, change, mended) in parts.items():
        planted.arm(method, kind)
        change()
        line = node.says(f"INST-002 weftd's part '{part}': a fault in weft ended it: .*planted")
        assert "starts again in 1 s" in line
        assert node.ready
        planted.disarm(method)
        eventually(mended, seconds=20)
    assert node.log.count("Traceback") >= len(parts), "a fault stays visible"
    assert node.stop() == 0


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "CancelledError"])
def test_a_fault_that_ends_the_daemon_is_said_and_is_no_success(cluster: Cluster, tmp_path: Path, kind):
    planted = Planted(tmp_path / "planted")
    node = cluster.node(1)
    planted.arm("_start", kind)
    assert node.spawn(env=planted.env("weft.daemon.node:Node._start")).wait() == 1
    node.says("INST-002 weftd: a fault in weft ends it: .*planted")
    assert "Traceback" in node.log


@contextmanager
def silent_dns(underlay: Underlay) -> Iterator[None]:
    """A name server on the store's address that takes every question and answers none."""

    def bound() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((STORE, 53))
        return made

    with closing(underlay.switch.call(bound)):
        yield


def by_name(node: Daemon, hosts: Path) -> list[str]:
    """A command before the daemon's: it asks our silent name server, and `hosts` before."""
    resolver = hosts.with_name("resolv.conf")
    resolver.write_text(f"nameserver {STORE}\n")
    binds = f"mount --bind {shlex.quote(str(resolver))} /etc/resolv.conf"
    binds += f" && mount --bind {shlex.quote(str(hosts))} /etc/hosts"
    return ["unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh"]


def test_a_silent_dns_holds_nothing_up(own_cluster: Cluster, tmp_path: Path):
    own_cluster.configure()
    own_cluster.peer(50)
    node = own_cluster.node(1)
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{STORE} etcd.test other.test\n")
    port = own_cluster.etcd.port
    endpoints = f"--etcd-endpoints=http://etcd.test:{port},http://other.test:{port}"
    with silent_dns(own_cluster.underlay):
        node.spawn(endpoints, wrap=by_name(node, hosts)).wait_ready()
        node.sees("ip route", "10.5.50.0/24")
        own_cluster.etcd.kill()
        hosts.write_text("")
        line = node.says("the name '(etcd|other).test' is not resolved: no DNS server answered within 2 s", seconds=40)
        assert "STORE-001" in line
        for _ in range(3):
            node.ip("route del 10.5.50.0/24")
            node.sees("ip route", "10.5.50.0/24", seconds=8)
        threads = len(list(Path(f"/proc/{node.pid}/task").iterdir()))
        assert threads < 12, "one thread a name at most"
        began = time.monotonic()
        assert node.stop() == 0
        assert in_time(began, 5), "a thread that asks DNS is not waited for"


def test_a_name_that_does_not_resolve_is_said_and_a_stop_does_not_wait_for_it(own_cluster: Cluster, tmp_path: Path):
    node = own_cluster.node(1)
    hosts = tmp_path / "hosts"
    hosts.write_text("")
    with silent_dns(own_cluster.underlay):
        node.spawn("--etcd-endpoints=http://nosuch.example:2379", wrap=by_name(node, hosts))
        line = node.says(r"waiting for the network configuration: STORE-001 http://nosuch\.example:2379: the name")
        assert re.search(r"'nosuch\.example' is not resolved.*/etc/resolv\.conf", line)
        began = time.monotonic()
        assert node.stop() == 0
        assert in_time(began, 5)
    node.spawn(f"--etcd-endpoints=http://{'x' * 64}.example:2379")
    node.says("STORE-001 .*does not resolve: no name that DNS can hold")
    assert node.stop() == 0
