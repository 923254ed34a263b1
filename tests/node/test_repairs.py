"""What someone else changes is put back, counted and named; what is not ours stays (flannel.md §6.2, §6.3)."""

import re
import time

import pytest

from tests.support.traffic import reaches
from tests.support.weftd import DUAL, HOST_GW, ONLY_V6, VXLAN, Cluster, Daemon, eventually, peer_mac

PEER = {"PublicIPv6": "fd31::32", "BackendV6Data": {"VNI": 1, "VtepMAC": "02:aa:00:00:06:32"}}
PEER_MAC = peer_mac(50)


def state(node: Daemon) -> str:
    """All of ours in the kernel of a node but for the numbers of links."""
    return node.netns.run(
        """ip route show proto 165; ip -6 route show proto 165
        for dev in flannel.1 flannel-v6.1; do
            test -e /proc/sys/net/ipv4/conf/$dev || continue
            ip -d link show $dev | sed 's/^[0-9]*: //'
            ip address show $dev | grep -E 'global' || true
            ip neigh show dev $dev nud permanent; ip -6 neigh show dev $dev nud permanent
            bridge fdb show dev $dev; cat /proc/sys/net/ipv6/conf/$dev/accept_ra || true
        done"""
    )


CHANGES = {
    "route deleted": ("ip route del 10.5.50.0/24", "ROUTE-001"),
    "route changed": ("ip route replace 10.5.50.0/24 via 172.31.0.99 dev eth0 proto 165", "ROUTE-001"),
    "route taken over": ("ip route replace 10.5.50.0/24 via 172.31.0.99 dev eth0 proto static", "ROUTE-001"),
    "route's MTU": ("ip route change 10.5.50.0/24 via 10.5.50.0 dev flannel.1 onlink proto 165 mtu 900", "ROUTE"),
    "route's scope": ("ip route replace 10.5.50.0/24 via 10.5.50.0 dev flannel.1 onlink proto 165 scope 90", "ROUTE"),
    "v6 route deleted": ("ip -6 route del fd05:0:0:32::/64", "ROUTE-001"),
    "stray route": ("ip route add 10.5.99.0/24 via 172.31.0.99 proto 165", "ROUTE-002: removed"),
    "routes flushed": ("ip route flush dev flannel.1", "ROUTE-001: put back route"),
    "neighbour deleted": ("ip neigh del 10.5.50.0 dev flannel.1", "FDB-001: put back neighbour"),
    "neighbour changed": ("ip neigh replace 10.5.50.0 lladdr 02:bb:00:00:00:01 dev flannel.1", "FDB-001"),
    "neighbour not permanent": (f"ip neigh replace 10.5.50.0 lladdr {PEER_MAC} nud reachable dev flannel.1", "FDB-001"),
    "v6 neighbour deleted": ("ip neigh del fd05:0:0:32:: dev flannel-v6.1", "FDB-001"),
    "stray neighbour": ("ip neigh add 10.5.99.0 lladdr 02:bb:00:00:00:01 dev flannel.1", "ROUTE-002: removed"),
    "FDB entry deleted": (f"bridge fdb del {PEER_MAC} dev flannel.1", "FDB-001: put back fdb"),
    "FDB entry changed": (f"bridge fdb replace {PEER_MAC} dev flannel.1 dst 172.31.0.99", "FDB-001"),
    "second remote": (f"bridge fdb append {PEER_MAC} dev flannel.1 dst 172.31.0.99", None),
    "stray FDB entry": ("bridge fdb add 02:bb:00:00:00:01 dev flannel.1 dst 172.31.0.99", "ROUTE-002: removed"),
    "address deleted": ("ip address del {v4}/32 dev flannel.1", "VTEP-001: put back address"),
    "v6 address deleted": ("ip address del {v6}/128 dev flannel-v6.1", "VTEP-001"),
    "second address": ("ip address add 10.5.99.9/24 dev flannel.1", "removed address 10.5.99.9"),
    "second v6 address inside": (
        "ip address add fd05:0:0:63::9/64 dev flannel-v6.1 nodad",
        "removed address fd05:0:0:63",
    ),
    "second v6 address": ("ip address add 2001::4/64 dev flannel-v6.1 nodad", "removed address 2001::4"),
    "MAC changed": ("ip link set flannel.1 address 02:bb:00:00:00:01", "VTEP-003: put back link"),
    "MTU changed": ("ip link set flannel.1 mtu 900", "VTEP-003: put back link"),
    "alias removed": ("ip link set flannel.1 alias ''", "VTEP-003"),
    "learning turned on": ("ip link set flannel.1 type vxlan learning", "VTEP-003"),
    "device down": ("ip link set flannel.1 down", "VTEP-003"),
    "v6 device down": ("ip link set flannel-v6.1 down", "VTEP-003"),
    "device down and up": ("ip link set flannel.1 down; ip link set flannel.1 up", None),
    "device deleted": ("ip link del flannel.1", "VTEP-004: put back link flannel.1"),
    "v6 device deleted": ("ip link del flannel-v6.1", "VTEP-004: put back link flannel-v6.1"),
    "device renamed": ("ip link set flannel.1 down; ip link set flannel.1 name stolen", "VTEP-004"),
    "device replaced": (
        "printf 'link del flannel.1\nlink add flannel.1 type vxlan id 9 dstport 9999 dev eth0' | ip -batch - || true",
        "VTEP-00[34]",
    ),
}


@pytest.fixture(scope="module")
def node(underlay, tmp_path_factory):
    """A node with both families and one peer, for all changes one after the other."""
    cluster = Cluster(underlay, tmp_path_factory.mktemp("repairs"))
    try:
        cluster.configure(VXLAN, DUAL)
        cluster.peer(50, lease="10.5.50.0-24&fd05:0:0:32::-64", **PEER)
        yield cluster.node(1).start()
    finally:
        cluster.close()


@pytest.mark.spec("flannel.md §6.2/reconciled")
@pytest.mark.spec(
    "flannel.md §6.2/device-watch", cases=("device deleted", "device renamed", "device replaced", "v6 device deleted")
)
@pytest.mark.spec("flannel.md §6.2/mac-rewritten", cases="MAC changed")
@pytest.mark.spec("flannel.md §6.1/v4-address-helper", cases=("address deleted", "second address"))
@pytest.mark.spec("flannel.md §6.1/v6-address-helper", cases=("v6 address deleted", "second v6 address*"))
@pytest.mark.spec("flannel.md 11.8/v4-replaced", cases="second address")
@pytest.mark.spec("flannel.md 11.8/v6-replaced", cases="second v6 address inside")
@pytest.mark.spec("flannel.md 11.8/v6-outside-removed", cases="second v6 address")
@pytest.mark.parametrize("command, said", CHANGES.values(), ids=CHANGES)
def test_it_is_put_back_and_named(node: Daemon, command: str, said: str | None):
    before = state(node)
    known = len(node.lines("WARN"))
    node.netns.run(command.format(v4=node.v4[0], v6=node.v6[0]))
    if said is not None:
        eventually(lambda: any(re.search(said, line) for line in node.lines("WARN")[known:]))
    eventually(lambda: state(node) == before)
    assert not node.lines("ERROR|someone keeps changing")


@pytest.mark.spec("flannel.md §6.2/mac-rewritten", "flannel.md §6.2/mac")
def test_the_mac_is_the_same_after_all_of_that_in_kernel_store_and_on_disk(node: Daemon):
    assert f"link/ether {node.macs['mac_v4']}" in node.ip("link show flannel.1")
    assert f"link/ether {node.macs['mac_v6']}" in node.ip("link show flannel-v6.1")
    assert "stolen" not in node.ip("link")


@pytest.mark.spec("flannel.md §6.2/accept-ra")
def test_a_setting_is_put_back_by_the_next_full_look(node: Daemon):
    """The kernel announces no change of accept_ra, so it waits for a reason to look at everything."""
    node.netns.run("sysctl -qw net/ipv6/conf/flannel.1/accept_ra=2")
    node.ip("link set flannel.1 down")
    node.sees("sysctl -n net/ipv6/conf/flannel.1/accept_ra", "^0$")
    assert node.lines("VTEP-003: put back sysctl net/ipv6/conf/flannel.1/accept_ra=0")


@pytest.mark.spec("flannel.md 11.8/v4-outside-kept", "flannel.md §6.1/v4-address-helper")
def test_what_is_not_ours_is_not_touched(cluster: Cluster):
    cluster.configure(VXLAN, DUAL)
    cluster.peer(50, lease="10.5.50.0-24&fd05:0:0:32::-64", **PEER)
    node = cluster.node(1)
    node.netns.run(
        """ip route add 10.77.0.0/16 via 172.31.0.99 proto static
        ip route add 10.5.201.0/24 via 172.31.0.99 metric 50
        ip -6 route add fd77::/48 via fd31::99 proto static
        ip route add 10.5.50.0/24 via 172.31.0.99 table 77
        ip link add other0 type vxlan id 99 dstport 4789 dev eth0; ip link set other0 up
        ip address add 10.5.202.1/32 dev other0
        ip neigh add 10.5.50.0 lladdr 02:cc:00:00:00:01 dev other0 nud permanent
        bridge fdb add 02:cc:00:00:00:01 dev other0 dst 172.31.0.99
        nft add table ip mine; nft add chain ip mine c; nft add rule ip mine c counter accept
        iptables -A FORWARD -s 192.0.2.0/24 -j DROP -m comment --comment "flanneld masq lookalike"
        ip rule add from 10.5.0.0/16 lookup 77 priority 100"""
    )
    look = """ip route | grep -v proto.165; ip -6 route show proto static; ip route show table 77; ip rule
        ip address show other0 | sed 's/ tentative//'
        ip neigh show dev other0 nud permanent; bridge fdb show dev other0
        nft -s list table ip mine; iptables-save -t filter | grep lookalike"""
    before = node.netns.run(look)
    node.start("--ip-masq")
    node.ip("address add 192.0.2.77/24 dev flannel.1")
    node.ip("link set flannel.1 down")
    node.says("VTEP-003")
    node.ip("link del flannel.1")
    node.says("VTEP-004")
    node.stop()
    node.start("--ip-masq")
    time.sleep(0.2)
    node.ip("address add 192.0.2.77/24 dev flannel.1")
    node.ip("route del 10.5.50.0/24")
    node.says("ROUTE-001")
    assert "192.0.2.77" in node.ip("address show flannel.1")
    lines = [line for line in node.netns.run(look).splitlines() if "192.0.2.0" not in line or "lookalike" in line]
    assert lines == before.splitlines()


@pytest.mark.spec("flannel.md §6.1/device-defaults", "flannel.md §6.1/route-defaults", "flannel.md §6.2/device")
def test_objects_are_as_upstream_makes_them_and_marked_as_ours(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    [link] = node.netns.json("ip -d -j link show flannel.1")
    assert link["ifalias"] == "weft:vtep"
    assert link["mtu"] == 1450
    assert link["qdisc"] == "noqueue"
    data = link["linkinfo"]["info_data"]
    expected = {"id": 1, "local": "172.31.0.1", "link": "eth0", "port": 8472, "learning": False}
    assert expected.items() <= data.items()
    assert (data.get("proxy"), data.get("rsc"), data.get("l2miss"), data.get("l3miss")) in (
        (False,) * 4,
        (None,) * 4,
    )
    addresses = node.netns.json("ip -j -4 address show flannel.1")[0]["addr_info"]
    [address] = [{k: v for k, v in a.items() if "life" not in k} for a in addresses]
    plain = {"family": "inet", "local": str(node.v4[0]), "prefixlen": 32, "scope": "global", "label": "flannel.1"}
    assert address == plain
    [route] = node.netns.json("ip -d -j route show 10.5.50.0/24")
    assert route == {
        "type": "unicast",
        "dst": "10.5.50.0/24",
        "gateway": "10.5.50.0",
        "dev": "flannel.1",
        "protocol": "165",
        "scope": "global",
        "flags": ["onlink"],
    }


@pytest.mark.spec("flannel.md §6.3/route-check")
@pytest.mark.parametrize("family", [DUAL, ONLY_V6], ids=["dual", "v6"])
def test_host_gw_routes_are_put_back_at_once(cluster: Cluster, family):
    cluster.configure(HOST_GW, family)
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[-1])
    for subnet in two.subnets:
        version = f"-{subnet.version}"
        before = one.ip(f"{version} route show {subnet}")
        for change in (f"route del {subnet}", f"route replace {subnet} dev cni0 proto 165"):
            one.ip(f"{version} {change}")
            eventually(lambda v=version, s=subnet, b=before: one.ip(f"{v} route show {s}") == b)
    eventually(lambda: len(one.lines("ROUTE-001: put back")) >= 2 * len(two.subnets))


@pytest.mark.spec("flannel.md §6.3/route-check")
@pytest.mark.parametrize("seconds", [0, 1.5], ids=["flap", "outage"])
@pytest.mark.parametrize("backend", [HOST_GW, VXLAN], ids=["host-gw", "vxlan"])
def test_an_uplink_that_goes_and_comes_takes_nothing_along_for_good(cluster: Cluster, backend, seconds):
    """The kernel drops all IPv4 routes of a link that goes down, without a word about them."""
    cluster.configure(backend)
    cluster.peers(range(50, 80), BackendType=backend["Backend"]["Type"])
    one, two = cluster.nodes(1, 2)
    here, there = one.pod(), two.pod()
    assert reaches(here, there.ips[0], seconds=20)
    before = one.ip("route show proto 165")
    one.netns.run(f"ip link set eth0 down; sleep {seconds}; ip link set eth0 up")
    eventually(lambda: one.ip("route show proto 165") == before)
    one.netns.run(
        "ip neighbour replace 172.31.0.254 lladdr 02:31:00:00:00:fe dev eth0 nud permanent"
        "; ip route replace default via 172.31.0.254"
    )
    assert reaches(here, there.ips[0], seconds=20)
    assert len(one.lines(" (WARN|ERROR) ")) < 40, "not a line for each peer"


def test_a_fight_is_fought_less_and_said_once(cluster: Cluster):
    cluster.configure()
    cluster.peer(50)
    node = cluster.node(1).start()
    for _ in range(30):
        node.netns.run("ip route del 10.5.50.0/24 2>/dev/null || true; sleep 0.01")
    node.says("ROUTE-001: someone keeps changing route 10.5.50.0/24")
    assert len(node.lines("someone keeps changing")) == 1
    assert 15 <= len(node.lines("ROUTE-001: put back")) <= 22
    # It is not given up, and other objects are repaired at once.
    node.ip("neigh del 10.5.50.0 dev flannel.1")
    node.says("FDB-001: put back neighbour")
    node.sees("ip route", "10.5.50.0/24", seconds=5)


@pytest.mark.parametrize("setting", ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"])
def test_forwarding_that_is_turned_off_is_turned_on_at_once_and_named(cluster: Cluster, setting: str):
    cluster.configure(VXLAN, DUAL)
    node = cluster.node(1).start()
    node.netns.run(f"sysctl -qw {setting}=0")
    node.sees(f"sysctl -n {setting}", "^1$")
    node.says(f"KERN-002: put back sysctl {setting.replace('.', '/')}=1")
    eventually(lambda: node.ready)


def test_forwarding_is_needed_from_the_time_on_that_it_was_on(cluster: Cluster):
    """A machine without pods need be no router: the first pod's plugin turns it on."""
    cluster.configure()
    node = cluster.node(1)
    node.netns.run("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
    node.start()
    cluster.peer(50)
    node.sees("ip route", "10.5.50.0/24")
    assert node.netns.run("sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding") == "0\n0\n"
    node.netns.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
    eventually(lambda: node.netns.run("sysctl -qw net.ipv4.ip_forward=0") or node.lines("KERN-002"))
    node.sees("sysctl -n net.ipv4.ip_forward", "^1$")
    node.netns.run("sysctl -qw net.ipv6.conf.all.forwarding=0")
    cluster.peer(51)
    node.sees("ip route", "10.5.51.0/24")
    assert node.netns.run("sysctl -n net.ipv6.conf.all.forwarding") == "0\n", "no pod has IPv6"


def test_a_node_is_not_ready_while_another_program_keeps_forwarding_off(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start()

    def off() -> bool:
        node.netns.run("sysctl -qw net.ipv4.ip_forward=0")
        # Not ready it is also for the moment until a repair.
        return bool(node.lines("KERN-002: someone keeps changing sysctl net/ipv4/ip_forward=1")) and not node.ready

    eventually(off, seconds=20)
    node.sees("sysctl -n net.ipv4.ip_forward", "^1$", seconds=20)
    eventually(lambda: node.ready)
