"""Each back end carries what pods send, unchanged: streams, datagrams of every size, errors (flannel.md §6.2-6.7)."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import ipsecnode, wgnode
from tests.node.sending import is_refused, not_read, send_every_size, transfer
from tests.node.test_extension import EXAMPLES
from tests.support.traffic import reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Daemon, Underlay, clusters, eventually

WG = {**VXLAN, "Backend": {"Type": "wireguard"}}
DIRECT = {**VXLAN, "Backend": {"Type": "vxlan", "DirectRouting": True}}
RELAY = {**VXLAN, "Backend": {"Type": "udp", "KernelPath": False}}
KERNEL = {**VXLAN, "Backend": {"Type": "udp"}}
BOTH_FAMILIES = {
    "vxlan": VXLAN,
    "direct": DIRECT,
    "host-gw": HOST_GW,
    "wireguard": WG,
    "udp, the relay": RELAY,
    "udp, the kernel": KERNEL,
}
CONFIGURATIONS = {
    **{name: {**conf, **DUAL} for name, conf in BOTH_FAMILIES.items()},
    "ipsec": ipsecnode.IPSEC,
    "extension, routes": {**VXLAN, "Backend": EXAMPLES[0]["Backend"]},
    "extension, a tunnel": {**VXLAN, "Backend": EXAMPLES[1]["Backend"]},
}
ALL = pytest.mark.parametrize("name", CONFIGURATIONS)


@pytest.fixture
def cluster(underlay: Underlay) -> Iterator[Cluster]:
    """In a directory with a short name: charon's socket needs one."""
    folder = tempfile.mkdtemp(prefix="weft-")
    try:
        for made in clusters(underlay, Path(folder)):
            yield made
            wgnode.end_servers(made)
            ipsecnode.end_charons(made)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def nodes(cluster: Cluster, name: str) -> tuple[Daemon, Daemon]:
    cluster.configure(CONFIGURATIONS[name])
    one, two = [wgnode.start(cluster.node(number)) for number in (1, 2)]
    return one, two


@ALL
def test_what_pods_send_arrives_as_it_was_sent(nodes: tuple[Daemon, Daemon]):
    one, two = nodes
    here, there = one.pod(), two.pod()
    mtu = int(one.env["FLANNEL_MTU"])
    for near, far in zip(here.ips, there.ips, strict=True):
        eventually(lambda far=far: reaches(here, far), seconds=20)
        assert transfer(here, there, far, megabytes=100)
        assert transfer(there, here, near, megabytes=20)
        send_every_size(here, there, far, mtu=mtu)
        assert is_refused(here, far)
        assert is_refused(there, near)


@ALL
def test_a_restart_of_the_daemon_loses_no_datagram(nodes: tuple[Daemon, Daemon]):
    one, two = nodes
    here, there = one.pod(), two.pod()
    eventually(lambda: reaches(here, there.ips[0]), seconds=20)
    server = there.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    eventually(lambda: ":5201" in there.run("ss -ltn"))
    # Few and small, so that a process that the machine lets wait for most of a second still finds room for all.
    command = ["iperf3", "-J", "-u", "-b", "500K", "-l", "200", "-t", "4", "-c", str(there.ips[0])]
    client = here.popen(command, stdout=subprocess.PIPE)
    time.sleep(0.5)
    for node in nodes:
        node.stop()
        wgnode.start(node)
        node.kill()
        wgnode.start(node)
    report = json.loads(client.communicate()[0])
    server.wait(100)
    sent = report["end"]["sum"]
    assert sent["packets"] > 1000
    lost = sent["lost_packets"] - not_read(there)  # iperf3 may have to wait for longer
    assert lost == 0, f"no room in {[not_read(node.netns) for node in nodes]}"
