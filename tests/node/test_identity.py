"""Who is who: copied disks, torn state, second daemons (settled.md §5)."""

import shlex
import shutil
import socket
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.support.traffic import nothing_lost, reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, eventually
from weft.daemon.disk import instance


def copy_disk(source: Daemon, target: Daemon, *, subnet_file: bool = False) -> None:
    """Give a node the state directory of another, as it is when a machine's image is cloned."""
    shutil.copytree(source.state_dir, target.state_dir)
    # An instance's directory is named for the paths it was started with, which on a real clone are the same.
    [old] = [path for path in target.state_dir.iterdir() if (path / "identity.json").exists()]
    old.rename(instance.directory(target.state_dir, str(target.subnet_file), target.prefix))
    if subnet_file:
        target.subnet_file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.subnet_file, target.subnet_file)


@pytest.mark.parametrize("subnet_file", [False, True], ids=["state", "state-and-subnet-file"])
@pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_a_cloned_disk_gives_no_subnet_and_no_mac_twice(cluster: Cluster, backend, subnet_file):
    cluster.configure(backend)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(there, here.ips[0])
    lease = cluster.lease_of(one)
    with nothing_lost(there, here, here.ips[0]):
        three = cluster.node(3)
        copy_disk(one, three, subnet_file=subnet_file)
        three.start()
    three.says("cloned|copy")
    assert len({one.v4, two.v4, three.v4}) == 3
    if backend is VXLAN:
        assert len({node.macs["mac_v4"] for node in (one, two, three)}) == 3
    assert cluster.lease_of(one) == lease, "nobody touched it"
    assert not one.lines("WARN|ERROR"), "the original is not disturbed"
    far = three.pod()
    assert reaches(far, here.ips[0])
    assert reaches(far, there.ips[0])
    # Each keeps what it has when all start again.
    before = [(node.v4, node.macs) for node in (one, two, three)]
    for node in (one, two, three):
        node.stop()
        node.start()
    assert [(node.v4, node.macs) for node in (one, two, three)] == before


def test_a_plan_on_a_cloned_disk_is_what_weftd_would_do(cluster: Cluster):
    cluster.configure()
    one = cluster.node(1).start()
    three = cluster.node(3)
    copy_disk(one, three)
    flags = [flag for flag in three.command()[3:] if not flag.startswith(("--healthz", "--cni"))]
    shown = three.netns.run(f"{Path(sys.executable).with_name('weft')} plan -- {shlex.join(flags)} || true")
    assert "we have no lease; planned with" in shown
    own = "\n".join(line for line in shown.splitlines() if line.startswith(("+ link", "+ address")))
    assert "flannel.1" in own
    assert str(one.v4[0]) not in own
    assert one.macs["mac_v4"] not in own


def test_a_disk_cloned_while_the_first_daemon_is_away_does_not_take_its_subnet(cluster: Cluster):
    """The first machine answers on its address, so it lives; its pods go on meanwhile."""
    cluster.configure()
    one = cluster.node(1).start()
    subnet, macs = one.v4, one.macs
    one.kill()
    three = cluster.node(3)
    copy_disk(one, three)
    three.start()
    assert three.v4 != subnet
    one.start()
    assert (one.v4, one.macs) == (subnet, macs)
    assert three.macs["mac_v4"] != macs["mac_v4"]
    assert reaches(one.pod(), three.pod().ips[0])


def test_a_disk_that_moves_to_another_machine_takes_its_subnet_along(cluster: Cluster):
    cluster.configure()
    one = cluster.node(1).start()
    subnet, macs = one.v4, one.macs
    one.kill()
    three = cluster.node(3)
    copy_disk(one, three)
    one.unplug()
    three.start()
    assert (three.v4, three.macs) == (subnet, macs)
    assert len(cluster.leases()) == 1


@pytest.mark.parametrize("change", ["another public address", "another uplink", "a family less"])
def test_an_address_that_is_still_this_machines_makes_no_copy(cluster: Cluster, change):
    """What the old lease names answers, because it is us: subnet and MACs stay, and so do the pods."""
    cluster.configure(VXLAN, DUAL)
    node = cluster.node(1).start()
    subnet, macs = node.v4, node.macs
    node.stop()
    flags = []
    if change == "another public address":
        flags = ["--public-ip=192.0.2.9"]
    elif change == "another uplink":
        node.netns.bridge("other", "172.31.9.1/24", "fd31:0:0:9::1/64")
        flags = ["--iface=other"]
    else:
        cluster.configure()
    node.start(*flags)
    assert node.lines("copy|cloned") == []
    assert (node.v4, node.macs) == (subnet, macs)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"own": 3}', bytes(100)], ids=["empty", "torn", "list", "odd", "zeros"]
)
def test_torn_files_are_said_and_done_without(cluster: Cluster, content):
    cluster.configure()
    node = cluster.node(1).start()
    before = node.v4, node.macs["mac_v4"]
    node.kill()
    for path in [*node.state_dir.glob("*/*.json*"), node.subnet_file]:
        path.write_bytes(content)
    node.start()
    node.says(r"identity\.json: cannot be read")
    node.says(r"cluster\.jsonl: cannot be read")
    assert (node.v4, node.macs["mac_v4"]) == before, "store and device still know"
    assert len(cluster.leases()) == 1


def test_a_second_daemon_for_the_same_device_is_refused(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()
    before = node.ip("route; ip -d link show flannel.1")
    second = cluster.beside(node, "second")
    assert second.spawn().wait() == 1
    second.says(
        rf"INST-001 .*flannel\.1.*another weftd \(pid {node.pid}\)"
        r".*another --etcd-prefix and --subnet-file, .*another VNI"
    )
    assert node.ip("route; ip -d link show flannel.1") == before
    assert node.ready
    assert len(cluster.leases()) == 1
    # It is gone with the process, however that ends.
    node.kill()
    second.start()
    second.stop()


def test_a_second_daemon_with_the_same_state_directory_is_refused(cluster: Cluster):
    cluster.configure()
    node, other = cluster.node(1).start(), cluster.node(2)
    # The same instance, so the same subnet file; in another network namespace.
    flags = (f"--state-dir={node.state_dir}", f"--subnet-file={node.subnet_file}")
    assert other.spawn(*flags).wait() == 1
    other.says(
        rf"INST-001 state directory .*in use by another weftd \(pid {node.pid}\)"
        r".*another --etcd-prefix and --subnet-file, .*another VNI.*--state-dir"
    )
    assert len(cluster.leases()) == 1


def test_somebody_without_rights_cannot_hold_up_a_daemon(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    hold = (
        "import socket, time; s = socket.socket(socket.AF_UNIX)"
        "; s.bind('\\0weft/device/flannel.1'); s.listen(); time.sleep(60)"
    )
    holder = node.netns.popen(["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", hold])
    eventually(lambda: "weft/device/flannel.1" in node.netns.run("cat /proc/thread-self/net/unix"))
    node.start()
    node.says(rf"flannel\.1 is held by user 65534 \(pid {holder.pid}\), which is no daemon")


@pytest.mark.spec("flannel.md §4.9/two-networks")
def test_two_networks_side_by_side_on_the_same_nodes(cluster: Cluster):
    cluster.configure()
    prefix = f"{cluster.prefix}-b"
    second = '{"Network":"10.6.0.0/16","Backend":{"Type":"vxlan","VNI":2}}'
    cluster.etcd.put(f"{prefix}/config", second)
    one, two = cluster.nodes(1, 2)
    also_one, also_two = (cluster.beside(node, "b", prefix=prefix).start() for node in (one, two))
    here, there = one.pod(), two.pod()
    assert also_one.v4.subnet_of(ip_network("10.6.0.0/16"))
    also_one.says("INST-001 firewall rules: kept by another weftd .*; this instance makes none")
    for node in (one, two):
        links = node.ip("-br link")
        assert "flannel.1" in links
        assert "flannel.2" in links
    with nothing_lost(here, there, there.ips[0]):
        also_one.stop()
        also_one.start()
        # Each repairs its own, and neither the other's.
        one.ip("link del flannel.2")
        also_one.says("VTEP-004: put back link flannel.2")
    assert f"{also_two.v4}" in one.ip("route")
    assert f"{two.v4}" in one.ip("route")
    assert not one.lines("flannel.2|NFT-002")
    assert not also_one.lines(r"NFT-002|WARN.*10\.5\.")


def test_a_cni_socket_that_is_served_already_is_left_alone(cluster: Cluster):
    cluster.configure()
    prefix = f"{cluster.prefix}-b"
    cluster.etcd.put(f"{prefix}/config", '{"Network":"10.6.0.0/16","Backend":{"Type":"vxlan","VNI":2}}')
    one = cluster.node(1).start()
    other = cluster.beside(one, "b", prefix=prefix)
    path = one.folder / "cni" / "cni.sock"
    other.start(f"--cni-socket={path}")
    other.says(r"INST-001.*cni\.sock")
    other.stop()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
