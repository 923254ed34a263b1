"""sbr in real namespaces, beside Debian's binary: rules, tables, and what leaves by which interface."""

from collections.abc import Callable

import pytest

from tests.support.netns import Netns

DUAL = {
    "setup": "ip addr add 192.168.1.209/24 dev net1; ip -6 addr add fd00::2/64 dev net1 nodad\n"
    "ip route add 1.2.3.0/24 via 192.168.1.5; ip route add 5.5.5.0/24 dev net1 mtu 1300 advmss 1200\n"
    "ip route add default via 192.168.1.1 metric 5; ip -6 route add default via fd00::1",
    "ips": [
        {"address": "192.168.1.209/24", "gateway": "192.168.1.1", "interface": 1},
        {"address": "fd00::2/64", "gateway": "fd00::1", "interface": 1},
        {"address": "9.9.9.9/24", "interface": 0},
    ],
}
SEVERAL = {
    "setup": "ip addr add 192.168.1.209/24 dev net1; ip addr add 192.168.1.210/24 dev net1\n"
    "ip addr add 192.168.101.209/24 dev net1; ip rule add from 7.7.7.7 table 101",
    "ips": [
        {"address": "192.168.1.209/24", "interface": 1},
        {"address": "192.168.1.210/24", "gateway": "192.168.1.1", "interface": 1},
        {"address": "192.168.101.209/24", "gateway": "192.168.101.1"},
    ],
}


@pytest.fixture
def make_pod(make_netns: Callable[[], Netns], netns: Netns):
    """Make a container with eth0, whose default route is the main table's, and net1."""

    def make(setup: str) -> Netns:
        pod = make_netns()
        for name in ("net1", "eth0"):
            made = pod.rtnl.add_veth(name, peer=f"v{pod.fd}{name}", peer_netns_fd=netns.fd, up=True)
            netns.rtnl.set_link(made.link, up=True)
        pod.run("ip addr add 10.1.0.2/24 dev eth0; ip route add default via 10.1.0.1")
        pod.run(setup)
        return pod

    return make


@pytest.fixture
def pod(make_pod):
    return make_pod(DUAL["setup"])


def config(pod, world=DUAL, **more):
    interfaces = [{"name": "veth0"}, {"name": "net1", "sandbox": pod.path}]
    previous = {"cniVersion": "1.0.0", "interfaces": interfaces, "ips": world["ips"]}
    return {"cniVersion": "1.0.0", "name": "net", "type": "sbr", "prevResult": previous, **more}


def call(site, command, conf, pod, *, by="weft", **more):
    plugin = site.via(by)
    return plugin("sbr", command, conf, container=pod, **{"ifname": "net1", **more})


def rules(pod):
    """Return the rules that are not the kernel's own, of both families."""
    lines = (pod.run("ip rule") + pod.run("ip -6 rule")).splitlines()
    return [line for line in lines if not line.startswith(("0:", "32766:", "32767:"))]


def tables(pod):
    """Return the tables that rules point to, each with the routes of the rule's family."""
    found = {}
    for family in (4, 6):
        for rule in pod.json(f"ip -j -{family} rule"):
            if rule["src"] != "all":
                shown = pod.run(f"ip -{family} route show table {rule['table']}", check=False)
                found[rule["src"]] = (rule["table"], sorted(shown.splitlines()))
    return found


def main(pod):
    return sorted((pod.run("ip route") + pod.run("ip -6 route")).splitlines())


@pytest.mark.parametrize("world", [DUAL, SEVERAL], ids=["dual", "several"])
@pytest.mark.parametrize("first, second", [("weft", "debian"), ("debian", "weft")])
def test_the_same_rules_and_tables_as_upstreams_and_either_removes_them(site, make_pod, world, first, second):
    seen = []
    for by, other in ((first, second), (second, first)):
        container = make_pod(world["setup"])
        conf = config(container, world)
        before = rules(container)
        result = call(site, "ADD", conf, container, by=by).result
        assert result["ips"] == world["ips"] or [one["address"] for one in result["ips"]] == [
            one["address"] for one in world["ips"]
        ]
        # Upstream's moves a link-local route even where no table for IPv6 is made.
        seen.append((rules(container), tables(container), [one for one in main(container) if "fe80" not in one]))
        assert call(site, "CHECK", conf, container, by=other).exit == 0
        for _ in range(2):
            assert call(site, "DEL", conf, container, by=other).exit == 0
        assert rules(container) == before
    assert seen[0] == seen[1]


def test_what_a_route_carries_moves_with_it(site, pod):
    pod.run("ip route add 6.6.6.0/24 nexthop via 192.168.1.7 weight 2 nexthop via 192.168.1.8")
    pod.run("ip route add 7.7.7.0/24 via 172.16.0.1 dev net1 onlink src 192.168.1.209")
    assert call(site, "ADD", config(pod), pod).exit == 0
    shown = "\n".join(tables(pod)["192.168.1.209"][1])
    hops = pod.run("ip route show table 100 6.6.6.0/24")
    assert ("192.168.1.7 dev net1 weight 2" in hops, "192.168.1.8 dev net1 weight 1" in hops) == (True, True)
    assert "5.5.5.0/24 dev net1 scope link mtu 1300 advmss 1200" in shown
    assert "7.7.7.0/24 via 172.16.0.1 dev net1 src 192.168.1.209 onlink" in shown


def test_packets_leave_by_the_interface_of_their_source(site, pod):
    assert call(site, "ADD", config(pod), pod).exit == 0

    def way(source, target):
        [route] = pod.json(f"ip -j route get {target} from {source}")
        return route["dev"], route.get("gateway")

    assert way("192.168.1.209", "8.8.8.8") == ("net1", "192.168.1.1")
    assert way("192.168.1.209", "1.2.3.4") == ("net1", "192.168.1.5")
    assert way("fd00::2", "2001:db8::1") == ("net1", "fd00::1")
    assert way("10.1.0.2", "8.8.8.8") == ("eth0", "10.1.0.1")


def test_a_table_of_the_operators(site, pod):
    before = main(pod)
    conf = config(pod, table=5000)
    assert call(site, "ADD", conf, pod).exit == 0
    assert [line.partition(":\t")[2] for line in rules(pod)] == [
        "from 192.168.1.209 lookup 5000",
        "from fd00::2 lookup 5000",
    ]
    assert main(pod) == before
    assert call(site, "CHECK", conf, pod).exit == 0
    assert call(site, "CHECK", config(pod, table=5001), pod).exit == 1
    assert call(site, "DEL", conf, pod).exit == 0
    assert rules(pod) == []


def test_gateways_of_the_operators(site, pod):
    conf = config(pod, gateways=["192.168.1.77", "fd00::77"])
    assert call(site, "ADD", conf, pod).exit == 0
    found = tables(pod)
    assert "default via 192.168.1.77 dev net1 " in found["192.168.1.209"][1]
    assert any("default via fd00::77 dev net1" in line for line in found["fd00::2"][1])
    assert call(site, "CHECK", conf, pod).exit == 0


def test_hints_keep_the_way_to_the_subnet(site, pod):
    assert call(site, "ADD", config(pod, addSourceHints=True), pod).exit == 0
    shown = "\n".join(main(pod))
    assert "192.168.1.0/24 dev net1 proto kernel scope link src 192.168.1.209" in shown
    assert "fd00::/64 dev net1 proto kernel src fd00::2 metric 256" in shown
    assert "1.2.3.0/24" not in shown
    assert any("fd00::/64" in line for line in tables(pod)["fd00::2"][1])


def test_what_upstreams_refuses_too(site, make_pod):
    pod = make_pod("ip link del net1")
    for ips, ifname in (([], "net1"), (DUAL["ips"], "net1")):
        conf = config(pod, {"ips": ips})
        ours, theirs = (call(site, "ADD", conf, pod, by=by, ifname=ifname) for by in ("weft", "debian"))
        assert (ours.exit, ours.json) == (theirs.exit, theirs.json)
    without = {key: value for key, value in config(pod).items() if key != "prevResult"}
    ours, theirs = (call(site, "ADD", without, pod, by=by) for by in ("weft", "debian"))
    assert ours.msg == theirs.msg == "This plugin must be called as chained plugin"
    assert call(site, "CHECK", without, pod).exit == 1


def test_an_add_that_fails_leaves_no_rule(site, pod):
    conf = config(pod, gateways=["172.30.0.1"])
    assert call(site, "ADD", conf, pod).msg.startswith("Failed to add default route to 172.30.0.1: ")
    assert rules(pod) == []


def test_del_without_the_link_or_the_namespace(site, pod):
    conf = config(pod)
    assert call(site, "ADD", conf, pod).exit == 0
    pod.run("ip link del net1")
    assert call(site, "DEL", conf, pod).exit == 0
    assert rules(pod) == []
    assert call(site, "DEL", conf, None, netns="").exit == 0
    assert call(site, "DEL", conf, None, netns="/run/netns/gone").exit == 0
    assert call(site, "DEL", {**conf, "prevResult": {"ips": 5}}, pod).exit == 0


@pytest.mark.parametrize(
    "damage, message, details",
    [
        (
            "ip rule del from 192.168.1.209",
            "Failed to find rule for source 192.168.1.209",
            "expected a table of its own, there is no rule",
        ),
        (
            "ip route flush table 100",
            "Failed to find default route for source 192.168.1.209",
            "expected a default route by 192.168.1.1 in table 100, there is none",
        ),
    ],
)
def test_check_names_what_is_wrong(site, pod, damage, message, details):
    conf = config(pod)
    assert call(site, "ADD", conf, pod).exit == 0
    pod.run(damage)
    answer = call(site, "CHECK", conf, pod)
    assert (answer.msg, answer.json["details"]) == (message, details)
