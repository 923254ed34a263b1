"""bridge and ptp with the real client and a daemon: with open descriptors alone, and no namespace entered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.test_cni_bridge import sysctl
from tests.support.cni.daemon import CniDaemon
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.host.host import RETIRED
from weft.cni.install.executables import install

IPAM = {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def daemon(netns: Netns, bin_dir: Path, tmp_path: Path) -> Iterator[CniDaemon]:
    started = CniDaemon(tmp_path / "daemon", netns, bin_dir, ours=True)
    yield started
    started.stop()


def config(tmp_path, plugin, **more):
    ipam = IPAM | {"dataDir": str(tmp_path / "networks")}
    return {"cniVersion": "1.1.0", "name": "net", "type": plugin, "ipMasq": True, "ipam": ipam, **more}


def silent(daemon, command, conf, plugin, **env):
    """Call for what prints nothing when it succeeds."""
    client = daemon.start(command, conf, plugin=plugin, **env).feed()
    out, _ = client.process.communicate(timeout=200)
    assert (client.process.returncode, out) == (0, b"")


@pytest.mark.parametrize(
    "plugin, keys",
    [
        ("bridge", {"isDefaultGateway": True, "enabledad": True, "macspoofchk": True, "portIsolation": True}),
        ("ptp", {}),
    ],
)
def test_all_verbs(daemon, make_netns, tmp_path, plugin, keys):
    netns, pod = daemon.netns, make_netns()
    before = sysctl(netns, "net/ipv6/conf/default/accept_dad"), sysctl(netns, "net/ipv4/conf/all/arp_notify")
    conf = config(tmp_path, plugin, **keys)
    env = {"CNI_NETNS": pod.path}
    silent(daemon, "STATUS", conf, plugin)
    result = daemon.call("ADD", conf, plugin=plugin, **env)
    assert [ip["address"] for ip in result["ips"]] == ["10.1.2.2/24", "fd00::2/64"]
    assert sysctl(pod, "net/ipv6/neigh/eth0/retrans_time_ms") == "1000"
    silent(daemon, "CHECK", conf | {"prevResult": result}, plugin, **env)
    listed = {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}
    silent(daemon, "GC", conf | listed, plugin)
    silent(daemon, "CHECK", conf | {"prevResult": result}, plugin, **env)
    silent(daemon, "DEL", conf | {"prevResult": result}, plugin, **env)
    # This daemon has no worker that deletes what is retired.
    assert {link.alias for link in netns.rtnl.links() if link.kind == "veth"} == {RETIRED}
    assert pod.rtnl.link("eth0") is None
    assert "c1" not in netns.run("nft list ruleset")
    assert (sysctl(netns, "net/ipv6/conf/default/accept_dad"), sysctl(netns, "net/ipv4/conf/all/arp_notify")) == before
