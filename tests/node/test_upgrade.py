"""A new weftd over the state directory of an older one: what 265bbad (0.1.0, before memories had clocks) has left."""

import json
import os
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.weftd import Cluster, Daemon, eventually
from weft.daemon.disk import instance

IDENTITY: Final = '{"mac_v4": "8a:a2:8a:2f:7d:28", "mac_v6": "4e:da:6e:e9:a8:79"}\n'
NET_CONF: Final = (
    '{"Network": "10.5.0.0/16", "SubnetMin": "10.5.100.0", "SubnetMax": "10.5.139.0", "Backend": {"Type": "vxlan"}}'
)
OWN: Final = (
    '{"PublicIP":"172.31.0.1","PublicIPv6":null,"BackendType":"vxlan",'
    '"BackendData":{"VNI":1,"VtepMAC":"8a:a2:8a:2f:7d:28"}}'
)
PEER: Final = OWN.replace("172.31.0.1", "172.31.0.2").replace("8a:a2:8a:2f:7d:28", "da:50:28:42:8f:52")
ENV: Final = "FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.132.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
KEY: Final = "dd6410424f7c47d8e090f69fcea63e91"
WHO: Final = {"network": "cbr0", "container": "c1", "ifname": "eth0", "boot": "another", "netns": 4026535945}


def leave(node: Daemon, folder: Path) -> None:
    """Lay out what the older daemon left behind on this node."""
    directory = instance.directory(node.state_dir, str(node.subnet_file), node.prefix)
    directory.mkdir(mode=0o700, parents=True)
    own = {"lease": ["10.5.132.0-24", OWN, 4], "etcd_lease": 6727711559934144271, "mod_revision": 4}
    head = {"net_conf": NET_CONF, "own": {**own, "expires": time.time() + 3600}}
    memory = "\n".join(map(json.dumps, (head, ["10.5.106.0-24", PEER, 3])))
    (directory / "cluster.jsonl").write_text(memory)
    (directory / "identity.json").write_text(IDENTITY)
    (directory / "lock").write_text("14798\n")
    records = {
        "ipam": {"dataDir": str(folder / "nets"), "addresses": ["10.5.132.2"]},
        "attachments": {"veth": "veth0f8dd6d3", "index": 5, "masq": "", "addresses": [], "spoofCheck": False},
        "flannel": {"path": str(folder / "flannel" / "c1")},
    }
    for subject, known in records.items():
        (node.state_dir / "cni" / subject).mkdir(parents=True)
        (node.state_dir / "cni" / subject / f"{KEY}.json").write_text(json.dumps({**WHO, **known}))
    (node.state_dir / "cni" / "locks").touch()
    (node.state_dir / "cni" / "turns").mkdir()
    (folder / "flannel").mkdir()
    (folder / "nets" / "cbr0").mkdir(parents=True)
    (folder / "nets" / "cbr0" / "10.5.132.2").write_bytes(b"c1\r\neth0")
    node.subnet_file.parent.mkdir(parents=True, exist_ok=True)
    node.subnet_file.write_text(ENV)
    for path in [node.state_dir, *node.state_dir.rglob("*")]:
        os.chmod(path, 0o700 if path.is_dir() else 0o600)  # noqa: PTH101


@pytest.mark.parametrize("store", ["empty", "away"])
def test_what_an_older_weftd_left_is_taken_over(own_cluster: Cluster, tmp_path: Path, store: str):
    own_cluster.configure(NET_CONF)
    node = own_cluster.node(1)
    leave(node, tmp_path)
    if store == "away":
        own_cluster.underlay.etcd.kill()
    node.start()
    assert str(node.v4) == "10.5.132.0/24"
    assert node.macs == json.loads(IDENTITY)
    assert "8a:a2:8a:2f:7d:28" in node.ip("link show flannel.1")
    assert node.lines("STATE-00|Traceback") == []
    if store == "away":
        assert "10.5.106.0/24" in node.ip("route"), "the peer that was known is served"
    node.says("leaked attachment freed: network=cbr0 container=c1 interface=eth0 proof=made in an earlier boot")
    eventually(lambda: not list((tmp_path / "nets" / "cbr0").glob("10.*")))
    node.stop()
    node.start()
    assert (str(node.v4), node.macs) == ("10.5.132.0/24", json.loads(IDENTITY))
