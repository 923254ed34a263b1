"""What pods of a node share is watched: a bridge that is set down is put up again; a pod that is stranded is named."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.node.test_cni_daemon import Runtime, attach
from tests.support.netns import Netns
from tests.support.traffic import reaches
from tests.support.weftd import DUAL, VXLAN, Cluster, Daemon, eventually
from weft.cni import build
from weft.cni.install.executables import install
from weft.model.net import Ip


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


class Site:
    """A node, and a pod on it by the flannel plugin."""

    def __init__(self, cluster: Cluster, folder: Path, bin_dir: Path) -> None:
        cluster.configure(VXLAN, DUAL)
        cluster.peer(50)
        self.node: Daemon = cluster.node(1).start()
        self.runtime = Runtime(self.node, folder, bin_dir)
        self.pod: Netns = attach(self.runtime, "c1")["c1"]

    @property
    def gateways(self) -> list[Ip]:
        [link] = self.node.netns.json("ip -j address show dev cni0")
        return [ip_address(info["local"]) for info in link["addr_info"] if info["scope"] == "global"]

    def bridge(self) -> str:
        """The bridge as pods need it: state, addresses, routes."""
        return self.node.netns.run(
            """ip -o link show dev cni0 | grep -oE 'state [A-Z]+'
            ip -o address show dev cni0 scope global | grep -oE 'inet6? [^ ]+'
            ip route show dev cni0; ip -6 route show dev cni0"""
        )

    def serves(self) -> bool:
        """Tell whether the pod reaches its gateways."""
        return all(reaches(self.pod, ip, seconds=2) for ip in self.gateways)


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path, bin_dir: Path) -> Site:
    return Site(cluster, tmp_path, bin_dir)


def test_a_bridge_that_is_set_down_is_put_up_with_all_it_had(site: Site):
    whole = site.bridge()
    assert len(site.gateways) == 2
    site.node.ip("link set cni0 down")
    site.node.says("BRIDGE-006: put back link cni0 up")
    eventually(lambda: site.bridge() == whole)
    assert site.serves()
    eventually(lambda: site.node.ready)
    assert len(site.node.lines("BRIDGE-006")) == 1


def test_a_bridge_that_was_set_down_while_no_daemon_ran_is_put_up_by_its_start(site: Site):
    whole = site.bridge()
    site.node.stop()
    site.node.ip("link set cni0 down")
    site.node.start()
    eventually(lambda: site.bridge() == whole)
    assert site.serves()


def test_a_node_is_not_ready_while_another_program_keeps_the_bridge_down(site: Site):
    def down() -> str:
        site.node.ip("link set cni0 down")
        seen, body = site.node.get("/readyz?verbose")
        fought = site.node.lines("BRIDGE-006: someone keeps changing link cni0 up")
        return body if seen == 503 and fought else ""

    assert "[-]bridges failed: BRIDGE-006 link cni0" in eventually(down, seconds=20)
    site.node.sees("ip -o link show dev cni0", "[<,]UP[,>]", seconds=20)
    eventually(lambda: site.node.ready)
    assert len(site.node.lines("someone keeps changing")) == 1


def test_bridges_of_others_and_those_that_are_gone_are_nobodys_to_put_up(site: Site):
    site.node.netns.run("ip link add other0 type bridge; ip link set other0 up; ip link set other0 down")
    site.node.netns.run("ip link set cni0 down; ip link set cni0 name cni7; ip link del cni7")
    site.node.ip("route del 10.5.50.0/24")
    site.node.says("ROUTE-001")
    site.node.sees("ip -o link show dev other0", "state DOWN")
    eventually(lambda: site.node.ready)
    assert site.runtime.ask("DEL", "c1", site.pod) is None
    assert attach(site.runtime, "c2")
    site.node.ip("link set cni0 down")
    eventually(lambda: site.node.lines("BRIDGE-006: put back link cni0 up"))
    site.node.sees("ip -o link show dev cni0", "state UP")


def test_a_pod_whose_host_end_somebody_deletes_is_named_once(site: Site):
    attach(site.runtime, "c2")
    [veth] = [link["ifname"] for link in site.node.netns.json("ip -j link show master cni0")][:1]
    site.node.ip(f"link del {veth}")
    said = "CHECK-001 network=cbr0 container=c1 interface=eth0: host end veth"
    site.node.says(said)
    assert site.node.ready, "one pod's loss is not the node's"
    assert len(site.node.lines("CHECK-001")) == 1


def test_a_pod_whose_host_end_somebody_takes_off_its_bridge_is_named_once(site: Site):
    attach(site.runtime, "c2")
    [veth] = [link["ifname"] for link in site.node.netns.json("ip -j link show master cni0")][:1]
    site.node.ip(f"link set {veth} nomaster")
    said = (
        f"CHECK-001 network=cbr0 container=c1 interface=eth0: host end {veth} is on no bridge; expected a port of cni0"
    )
    site.node.says(said)
    assert site.node.ready, "one pod's loss is not the node's"
    site.node.ip(f"link set {veth} master cni0")
    assert site.serves(), "put back, it has what it had"
    assert len(site.node.lines("CHECK-001")) == 1


def test_a_bridge_that_is_deleted_is_said_until_its_pods_are_gone(site: Site):
    pods = attach(site.runtime, "c2") | {"c1": site.pod}
    site.node.ip("link del cni0")
    site.node.says("BRIDGE-006 link cni0: another program deleted it with 2 pods on it")
    for name in pods:
        site.node.says(f"CHECK-001 network=cbr0 container={name} interface=eth0: host end veth")
    seen, body = site.node.get("/readyz?verbose")
    assert (seen, "[!]pods: BRIDGE-006 link cni0" in body) == (200, True)
    assert site.runtime.ask("STATUS") is None, "new pods get a network, and bring the bridge back"
    for name, pod in pods.items():
        assert "[!]pods" in site.node.get("/readyz?verbose")[1]
        assert site.runtime.ask("DEL", name, pod) is None
    eventually(lambda: "[!]pods" not in site.node.get("/readyz?verbose")[1])
    assert len(site.node.lines("BRIDGE-006")) == 1
    assert len(site.node.lines("CHECK-001")) == 2


def test_a_deleted_bridge_that_another_pod_brings_back_is_whole(site: Site):
    site.node.ip("link del cni0")
    eventually(lambda: "[!]pods" in site.node.get("/readyz?verbose")[1], seconds=15)  # after a time of grace
    attach(site.runtime, "c2")
    eventually(lambda: "[!]pods" not in site.node.get("/readyz?verbose")[1])
    assert len(site.node.lines("CHECK-001")) == 1, "the pod of the old one has no network all the same"


def test_links_that_del_removes_are_no_news(site: Site):
    """Neither is what the end of a container's namespace takes along, when DEL comes soon after."""
    pods = attach(site.runtime, "c2", "c3")
    assert site.runtime.ask("DEL", "c2", pods["c2"]) is None
    site.node.pods.remove(pods["c3"])
    pods["c3"].close()
    assert site.runtime.ask("DEL", "c3", None) is None
    # One that is stranded is named after both.
    site.pod.run("ip link del eth0")
    site.node.says("CHECK-001 network=cbr0 container=c1")
    assert len(site.node.lines("CHECK-001")) == 1


def test_host_ports_and_masquerade_come_back_with_the_notice_of_a_flush(site: Site):
    """As weftd's own rules do: firewalld or an administrator has flushed all of nftables."""
    ipam = {"type": "host-local", "dataDir": str(site.runtime.folder / "own"), "ranges": [[{"subnet": "10.77.0.0/24"}]]}
    ports = [{"hostPort": 2500, "containerPort": 25, "protocol": "tcp"}]
    plugins = [
        {"type": "bridge", "bridge": "cni7", "isGateway": True, "ipMasq": True, "ipam": ipam},
        {"type": "portmap", "runtimeConfig": {"portMappings": ports}},
    ]
    own = [{"cniVersion": "1.0.0", "name": "own", **plugin} for plugin in plugins]
    other = Netns()
    site.node.pods.append(other)
    result = site.runtime.chain("ADD", own, container="c7", netns=other.path)[-1].result
    address = result["ips"][0]["address"].split("/")[0]

    def made() -> bool:
        rules = site.node.netns.run("nft list ruleset")
        return "tcp . 2500" in rules and f"ip saddr {address}" in rules

    assert eventually(made)
    for flush in ("flush ruleset", "delete table inet weft-hostport"):
        site.node.netns.run(f"nft {flush}")
        assert eventually(made, seconds=20), flush
    site.node.says("host ports put back that somebody had deleted: network=own container=c7")
