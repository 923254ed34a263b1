"""Ports of the host with real packets: who answers, and which address it sees (cni.md §5, §7.10)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.hostports import BRIDGE, NODE, OUTSIDE, Ports, Server, ask, mapping, outside, silent
from tests.support.netns import Netns

FORMS = ["", "iptables", "nftables"]


def conf(form):
    return {"backend": form} if form else {}


class Scene:
    def __init__(self, host: Netns, make_netns: Callable[[], Netns], directory: Path) -> None:
        self.ports = Ports(host, directory)
        self.host, self.pod, self.sibling, self.other = host, make_netns(), make_netns(), make_netns()
        outside(host, self.other)
        self.ports.attach(self.pod, "c1")
        self.ports.attach(self.sibling, "c2")


@pytest.fixture
def scene(netns: Netns, make_netns: Callable[[], Netns], tmp_path: Path) -> Scene:
    return Scene(netns, make_netns, tmp_path / "site")


@pytest.mark.spec("cni.md M24")
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("form", FORMS)
def test_everybody_reaches_the_pod_through_the_host(scene, form, family, protocol):
    Server(scene.pod, "c1", 80, protocol, family)
    assert scene.ports.portmap("ADD", mapping(8080, 80, protocol), **conf(form)).exit == 0
    pod, node = scene.ports.address("c1", family), NODE[family]
    assert ask(scene.host, pod, 80, protocol) == f"c1 {BRIDGE[family]}"
    assert ask(scene.other, node, 8080, protocol) == f"c1 {OUTSIDE[family]}"
    assert ask(scene.host, node, 8080, protocol).startswith("c1 ")
    assert ask(scene.pod, node, 8080, protocol) == f"c1 {BRIDGE[family]}"
    if form != "nftables":  # upstream's nft rules leave out the pod's siblings
        assert ask(scene.sibling, node, 8080, protocol) == f"c1 {BRIDGE[family]}"
    if family == 4:
        assert ask(scene.host, "127.0.0.1", 8080, protocol) == f"c1 {BRIDGE[4]}"
    assert scene.ports.portmap("DEL", mapping(8080, 80, protocol), **conf(form)).exit == 0
    assert silent(scene.other, node, 8080, protocol)


@pytest.mark.parametrize("form", FORMS)
def test_without_bridge_netfilter_no_hairpin_mode_is_needed(netns, make_netns, tmp_path, form):
    pod, ports = make_netns(), Ports(netns, tmp_path / "site")
    ports.bridge["hairpinMode"] = False
    outside(netns, make_netns())
    netns.run("sysctl -qe net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0")
    ports.attach(pod)
    assert ports.portmap("ADD", mapping(8080, 80), **conf(form)).exit == 0
    for family in (4, 6):
        Server(pod, "c1", 80, family=family)
        assert ask(pod, NODE[family], 8080) == f"c1 {BRIDGE[family]}"


@pytest.mark.parametrize("form", FORMS)
def test_an_address_of_the_host_alone(scene, form):
    scene.host.run("ip addr add 192.0.2.7/24 dev uplink")
    Server(scene.pod, "c1", 80)
    Server(scene.pod, "c1 other", 81)
    mappings = mapping(8080, 80, host_ip="192.0.2.7"), mapping(8081, 81, host_ip="0.0.0.0")  # noqa: S104 - a wildcard
    assert scene.ports.portmap("ADD", *mappings, **conf(form)).exit == 0
    assert ask(scene.other, "192.0.2.7", 8080) == f"c1 {OUTSIDE[4]}"
    assert silent(scene.other, NODE[4], 8080)
    assert ask(scene.other, NODE[4], 8081) == f"c1 other {OUTSIDE[4]}"
    assert silent(scene.other, NODE[6], 8081)


def test_a_mapping_of_one_address_wins_over_that_of_all(scene):
    scene.host.run("ip addr add 192.0.2.7/24 dev uplink")
    Server(scene.pod, "c1", 80)
    Server(scene.sibling, "c2", 80)
    assert scene.ports.portmap("ADD", mapping(8080, 80), id_="c1").exit == 0
    assert scene.ports.portmap("ADD", mapping(8080, 80, host_ip="192.0.2.7"), id_="c2").exit == 0
    assert ask(scene.other, "192.0.2.7", 8080) == f"c2 {OUTSIDE[4]}"
    assert ask(scene.other, NODE[4], 8080) == f"c1 {OUTSIDE[4]}"


@pytest.mark.parametrize("form", FORMS)
def test_without_snat_addresses_are_kept(scene, form):
    Server(scene.pod, "c1", 80)
    assert scene.ports.portmap("ADD", mapping(8080, 80), snat=False, **conf(form)).exit == 0
    assert ask(scene.other, NODE[4], 8080) == f"c1 {OUTSIDE[4]}"
    assert silent(scene.host, "127.0.0.1", 8080)
    assert scene.host.run("cat /proc/sys/net/ipv4/conf/cni0/route_localnet").strip() == "0"


def test_masq_all_hides_whoever_comes(scene):
    Server(scene.pod, "c1", 80)
    Server(scene.pod, "c1", 80, family=6)
    assert scene.ports.portmap("ADD", mapping(8080, 80), masqAll=True).exit == 0
    assert ask(scene.other, NODE[4], 8080) == f"c1 {BRIDGE[4]}"
    assert ask(scene.other, NODE[6], 8080) == f"c1 {BRIDGE[6]}"


@pytest.mark.parametrize("form", FORMS)
def test_what_only_passes_through_is_left_alone(scene, form):
    """Upstream once took away connections that the node forwards (cni.md §5.5)."""
    Server(scene.pod, "c1", 80)
    Server(scene.other, "outside", 8080)
    assert scene.ports.portmap("ADD", mapping(8080, 80), **conf(form)).exit == 0
    scene.other.run(f"ip route add 10.1.2.0/24 via {NODE[4]}")
    assert ask(scene.sibling, OUTSIDE[4], 8080) == f"outside {scene.ports.address('c2')}"
    # And straight to the pod, past the host's ports.
    assert ask(scene.sibling, scene.ports.address("c1"), 80) == f"c1 {scene.ports.address('c2')}"


@pytest.mark.spec("cni.md M25")
@pytest.mark.parametrize("form", FORMS)
def test_a_udp_flow_follows_its_port_to_the_next_pod(scene, form):
    Server(scene.pod, "c1", 53, "udp")
    Server(scene.sibling, "c2", 53, "udp")
    dns = mapping(5353, 53, "udp")
    assert scene.ports.portmap("ADD", dns, id_="c1", **conf(form)).exit == 0
    assert ask(scene.other, NODE[4], 5353, "udp", source=4711) == f"c1 {OUTSIDE[4]}"
    assert scene.ports.portmap("DEL", dns, id_="c1", **conf(form)).exit == 0
    assert silent(scene.other, NODE[4], 5353, "udp", source=4711)
    assert scene.ports.portmap("ADD", dns, id_="c2", **conf(form)).exit == 0
    assert ask(scene.other, NODE[4], 5353, "udp", source=4711) == f"c2 {OUTSIDE[4]}"


def test_flows_to_another_pods_same_port_of_another_address_go_on(scene):
    """One UDP port of two of the node's addresses, each another pod's."""
    scene.host.run("ip address add 192.0.2.9/24 dev uplink")
    Server(scene.pod, "c1", 53, "udp")
    Server(scene.sibling, "c2", 53, "udp")
    assert scene.ports.portmap("ADD", mapping(5353, 53, "udp", NODE[4]), id_="c1").exit == 0
    assert scene.ports.portmap("ADD", mapping(5353, 53, "udp", "192.0.2.9"), id_="c2").exit == 0
    for address in (NODE[4], "192.0.2.9"):
        assert ask(scene.other, address, 5353, "udp", source=4711)
    assert scene.ports.portmap("DEL", id_="c1").exit == 0
    flows = scene.host.run("conntrack -L -p udp -f ipv4")
    assert "dst=192.0.2.9 sport=4711 dport=5353" in flows
    assert f"dst={NODE[4]} sport=4711 dport=5353" not in flows


def test_only_flows_of_the_mapped_port_end(scene):
    Server(scene.pod, "c1", 53, "udp")
    Server(scene.sibling, "c2", 53, "udp")
    assert scene.ports.portmap("ADD", mapping(5353, 53, "udp"), id_="c1").exit == 0
    assert scene.ports.portmap("ADD", mapping(5354, 53, "udp"), id_="c2").exit == 0
    for port in (5353, 5354):
        assert ask(scene.other, NODE[4], port, "udp", source=4711)
    assert scene.ports.portmap("DEL", id_="c1").exit == 0
    flows = scene.host.run("conntrack -L -p udp -f ipv4")
    assert "dport=5354" in flows
    assert "dport=5353" not in flows
