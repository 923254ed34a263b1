"""Readiness tells the truth: `/readyz` turns with what pods need, and its long form says which part fails, and why."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.netns import Netns
from tests.support.weftd import Cluster, Daemon, eventually


def says(node: Daemon, code: int, *lines: str) -> str:
    """Wait until readiness answers with `code`, with these lines, or beginnings of lines, in its long form."""

    def look() -> str:
        seen, body = node.get("/readyz?verbose")
        missing = [line for line in lines if f"\n{line}" not in f"\n{body}"]
        return body if seen == code and not missing else ""

    return eventually(look, seconds=20)


@contextmanager
def stopped(node: Daemon) -> Iterator[None]:
    """Do several things to a node before its daemon can answer the first."""
    node.signal(signal.SIGSTOP)
    yield
    node.signal(signal.SIGCONT)


def test_the_long_form_names_each_part(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    own = ("lease", "records", "devices", "uplink", "forwarding", "bridges", "rules", "subnet.env", "published")
    whole = "\n".join([*(f"[+]{part} ok" for part in (*own, "store")), "flanneld is ready"])
    assert node.get("/readyz?verbose") == (200, whole)
    assert node.get("/readyz?verbose=1&x=y") == (200, whole)
    assert node.get("/readyz?x=y") == (200, "flanneld is ready")


def test_a_node_whose_device_another_has_replaced_is_not_ready(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    with stopped(node):
        node.ip("link del flannel.1")
        node.ip("link add other type vxlan id 1 dstport 8472 local 172.31.0.1 dev eth0 nolearning")
    says(node, 503, "[-]devices failed: VTEP-002 link flannel.1 vxlan id 1", "[+]rules ok")
    assert "VTEP-002" in node.diagnosis()
    node.ip("link del other")
    says(node, 200, "[+]devices ok")


def test_a_node_whose_device_was_moved_to_another_namespace_is_not_ready(cluster: Cluster):
    """The kernel keeps the VNI and the port for the device where it was made."""
    cluster.configure()
    node = cluster.node(1).start()
    with Netns() as away:
        node.ip(f"link set flannel.1 netns {away.path}")
        says(node, 503, "[-]devices failed: VTEP-002 link flannel.1 vxlan id 1")
    says(node, 200, "[+]devices ok")


@pytest.mark.parametrize(
    "harm, how",
    [
        ("rm {file}", "was deleted"),
        ("rm -r {file.parent}", "was deleted"),
        ("sed -i s/MTU=.*/MTU=9000/ {file}", "was changed"),
        ("echo more >>{file}", "was changed"),
        ("chmod 600 {file}", "became -rw-------"),
        ("rm {file}; mkfifo {file}", "became prw-r--r--"),
        ("cp {file} {file}.2; ln -sf {file}.2 {file}", "became lrwxrwxrwx"),
    ],
)
def test_what_others_do_to_the_subnet_file_is_undone_and_named(cluster: Cluster, harm, how):
    cluster.configure()
    node = cluster.node(1).start()
    before = node.subnet_file.read_bytes()
    node.netns.run(harm.format(file=node.subnet_file))
    node.says(f"WARN .*LEASE-001: put back {node.subnet_file}, which {how}$")
    eventually(lambda: node.subnet_file.is_file() and node.subnet_file.read_bytes() == before)
    assert node.subnet_file.lstat().st_mode == 0o100644
    assert node.ready


def test_a_subnet_file_that_cannot_be_put_back_costs_readiness(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    node.netns.run(f"rm {node.subnet_file}; mkdir {node.subnet_file}")
    says(node, 503, f"[-]subnet.env failed: LEASE-001 {node.subnet_file}: cannot be written: Is a directory")
    node.subnet_file.rmdir()
    says(node, 200, "[+]subnet.env ok")


def test_a_touch_of_the_subnet_file_is_nothing(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    inode = node.subnet_file.stat().st_ino
    node.netns.run(f"touch {node.subnet_file}")
    os.utime(node.subnet_file)
    node.netns.run(f"echo FLANNEL_X=1 >>{node.subnet_file}")
    node.says("put back")
    assert len(node.lines("put back")) == 1
    assert inode != node.subnet_file.stat().st_ino


def test_a_store_that_refuses_a_changed_password_costs_readiness_and_one_that_is_silent_does_not(
    own_cluster: Cluster, tmp_path
):
    cluster, etcd = own_cluster, own_cluster.etcd
    cluster.configure()
    etcd.add_user("weft", "the-first", prefix=cluster.prefix)
    etcd.enable_auth()
    file = tmp_path / "password"
    file.write_text("the-first\n")
    node = cluster.node(1).start("--etcd-username=weft", f"--etcd-password-file={file}")
    etcd.stop()
    body = says(node, 200, "[!]store: STORE-001 store: it does not answer", "[+]lease ok")
    assert body.endswith("\nflanneld is ready")
    etcd.start()
    says(node, 200, "[+]store ok")
    etcd.ctl("user", "passwd", "weft", "--interactive=false", stdin="the-second\n")
    etcd.restart()
    says(node, 503, "[-]store failed: STORE-002 store: it refuses us (STORE-002 http://", "[+]lease ok")
    node.says("WARN .*STORE-002: the store refuses us .*to user 'weft'")
    etcd.ctl("user", "passwd", "weft", "--interactive=false", stdin="the-first\n")
    says(node, 200, "[+]store ok")
    assert "the-first" not in node.log
