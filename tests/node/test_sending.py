"""Each back end carries what pods send, unchanged: streams, datagrams of every size, errors (flannel.md §6.2-6.7)."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ipsecnode, wgnode
from tests.support.sending import is_refused, send_every_size, transfer
from tests.support.traffic import reaches
from tests.support.weftd import DUAL, HOST_GW, VXLAN, Cluster, Underlay, clusters, eventually

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
}


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


@pytest.mark.parametrize("conf", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_what_pods_send_arrives_as_it_was_sent(cluster: Cluster, conf: dict[str, Any]):
    cluster.configure(conf)
    one, two = [wgnode.start(cluster.node(number)) for number in (1, 2)]
    here, there = one.pod(), two.pod()
    mtu = int(one.env["FLANNEL_MTU"])
    for near, far in zip(here.ips, there.ips, strict=True):
        eventually(lambda far=far: reaches(here, far), seconds=20)
        assert transfer(here, there, far, megabytes=100)
        assert transfer(there, here, near, megabytes=20)
        send_every_size(here, there, far, mtu=mtu)
        assert is_refused(here, far)
        assert is_refused(there, near)
