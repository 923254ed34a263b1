"""What the doctor finds of pods of its own node: bridges, ports, addresses and MTUs."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import (
    ADDRESSES,
    ATTACHED,
    CNI0,
    END,
    ETH0,
    FLANNEL,
    LINKS,
    MAC,
    NETWORK,
    PEER,
    POD_IP,
    ROUTES,
    STATE,
    TROUBLE,
    VXLAN,
    WELL,
    codes,
    find,
    links,
    state,
)
from tests.pure.diag.rules.test_verdict import DROP, field, meta, rules
from weft.diag.checks import CHECKS
from weft.diag.finding import ask
from weft.diag.rules.ruleset import Chain, Ruleset
from weft.diag.sight.node import (
    Configured,
)
from weft.model.kernel.reported import AddressInfo, LinkInfo, NeighbourInfo, PortInfo, RouteInfo
from weft.model.net import Mac
from weft.model.node.nodestate import (
    LeaseState,
    NetworkState,
    RefusedState,
)
from weft.model.value import replace
from weft.wire.subnetenv import PluginEnv


def test_a_port_without_a_carrier_is_disabled_by_that():
    assert not codes(**links("veth1", operstate=2, port=PortInfo(hairpin=True, state=0)))


def test_isolation_that_a_network_asks_for():
    isolated = links("veth1", port=PortInfo(hairpin=True, isolated=True))
    assert not codes(**isolated, networks=(replace(FLANNEL, isolated=True),))


def test_a_pod_that_is_in_the_making_is_not_judged():
    assert not codes(attached=(), pods={"veth1": replace(END, addresses=())})


def test_whose_address_it_is_decides_which_of_two_pods_is_named():
    other = replace(LINKS[3], index=20, name="veth2")
    thief = replace(ATTACHED, container="c" * 64, pod="", hosts=("veth2",), addresses=(ip_address("10.244.1.3"),))
    ends = {"veth1": END, "veth2": replace(END, addresses=(ip_address("10.244.1.3"), POD_IP))}
    [found] = find(links=(*LINKS, other), pods=ends, attached=(ATTACHED, thief))
    assert (found.problem.code, found.problem.where) == ("CHECK-001", "eth0 of container cccccccccccc")
    assert found.problem.seen == "it has 10.244.1.2, which pod web was given"


def test_bridge_netfilter_is_wanted_by_rules_of_services_alone():
    services = Ruleset(chains={("ip6", "nat", "KUBE-SERVICES"): Chain(place=("ip6", "nat", "K"))})
    on = {**WELL.settings, "net/bridge/bridge-nf-call-ip6tables": "1"}
    six = {"addresses": (*ADDRESSES, AddressInfo(index=CNI0, ip=ip_address("fd00::1"), prefixlen=64))}
    assert codes(rules=services, **six) == ["KERN-001"]
    off = {**WELL.settings, "net/bridge/bridge-nf-call-ip6tables": "0"}
    [zero], [absent] = (find(rules=services, **six, **each) for each in ({"settings": off}, {}))
    assert zero.problem.seen == "it is 0"
    assert [str(each).partition(" ")[0] for each in zero.fix] == ["sysctl"]  # the module is loaded
    assert [str(each).partition(" ")[0] for each in absent.fix] == ["modprobe", "sysctl"]
    assert "modprobe" not in zero.problem.hint
    assert not codes(rules=services, settings=on, **six)
    assert not codes(rules=services, networks=(), **six)
    for table in ("kube-proxy", "weft-lab-services"):
        assert codes(rules=Ruleset(chains={("ip6", table, "c"): Chain(place=("ip6", table, "c"))}), **six) == [
            "KERN-001"
        ]
    assert not codes(rules=services)  # kube-proxy writes them for both families, whatever pods have


def test_a_bridge_that_no_network_names_any_more_is_still_pods():
    assert not codes(networks=(), rules=rules(policy="drop"))


def test_forwarding_is_asked_where_there_are_pods_and_peers():
    assert not codes(rules=rules(policy="drop"), networks=())
    assert not codes(rules=rules(policy="drop"), **state(peers=[]))
    host_gw = replace(STATE.network or NetworkState, devices=[])  # type: ignore[type-var]
    routes = (*ROUTES[:2], replace(ROUTES[2], via=ip_address("192.168.0.2"), index=ETH0))
    plain = replace(WELL, links=(LINKS[0], *LINKS[2:]), daemon=replace(STATE, network=host_gw), routes=routes)
    assert codes(plain, rules=rules(policy="drop")) == ["FW-002"]
    [out] = find(plain, rules=rules([meta("oifname", "eth0"), DROP]))
    assert out.problem.where == "forwarding tcp 10.244.1.2 to 10.244.2.2:80"


def test_what_network_policies_refuse_is_no_firewalls_fault():
    def refusing(table: str) -> Ruleset:
        place = ("inet", table, "forward")
        return Ruleset(chains={place: Chain(place=place, hook="forward", kind="filter", policy="drop")})

    assert codes(rules=refusing("somebody")) == ["FW-002"]
    assert not codes(rules=refusing("weft-policy"))


def test_a_program_that_enforces_policies_beside_weft_is_named():
    def beside(*places: tuple[str, str, str]) -> Ruleset:
        return Ruleset(chains={place: Chain(place=place) for place in places})

    ours = ("inet", "weft-policy", "ingress-1")
    theirs = [
        ("ip", "filter", "KUBE-POD-FW-ABC"),
        ("ip", "filter", "KUBE-NWPLCY-X"),
        ("inet", "calico", "cali-FORWARD"),
    ]
    found = find(rules=beside(ours, *theirs))
    assert [each.problem.code for each in found] == ["POL-004", "POL-004"]
    assert [each.problem.where for each in found] == ["chain inet calico cali-FORWARD", "chain ip filter KUBE-NWPLCY-X"]
    assert "kube-router" in found[1].problem.seen
    assert not codes(rules=beside(*theirs)), "weft enforces none"
    assert not codes(rules=beside(ours, ("ip", "filter", "KUBE-FORWARD")))


def test_routes_that_take_nothing_from_pods():
    for text, kind, found in (("0.0.0.0/1", 1, []), ("10.0.0.0/8", 6, []), ("10.0.0.0/8", 1, ["ADDR-001"])):
        route = RouteInfo(dst=ip_network(text), index=ETH0, kind=kind)
        assert codes(routes=(*ROUTES, route)) == found
        assert ask(CHECKS, replace(WELL, routes=(*ROUTES, route))).is_well


def test_a_bridge_of_another_subnet_has_two_causes():
    [found] = find(addresses=(ADDRESSES[0], replace(ADDRESSES[1], ip=ip_address("10.9.0.1"))))
    assert "lease has changed" in found.problem.hint
    assert "another network uses this bridge" in found.problem.hint
    assert "'ip link delete cni0'" in found.problem.hint
    assert not found.fix


def test_ipv6_pods_need_links_that_carry_ipv6():
    six = PluginEnv(
        networks=(ip_network("fd00::/48"),), subnets=(ip_network("fd00:0:0:1::/64"),), mtu=1280, ip_masq=True
    )
    [found] = [each for each in find(subnet_env=six, **links("flannel.1", mtu=1270)) if each.problem.code == "V6-001"]
    assert "Backend" in found.problem.hint


PLAIN = Configured(file="/etc/cni/net.d/20-br.conflist", name="plain", plugins=("bridge", "portmap"), bridges=("br0",))


BRIDGED: Any = {
    "links": (*LINKS, LinkInfo(index=8, name="br0", kind="bridge", mtu=1500, up=True)),
    "addresses": (*ADDRESSES, AddressInfo(index=8, ip=ip_address("10.4.0.1"), prefixlen=24)),
}


@pytest.mark.parametrize(
    "plugins, seen, expected",
    [
        (("bridge", "portmap"), False, ["what its pods send", "what comes to its published ports"]),
        (("bridge",), False, ["what its pods send"]),
        (("bridge", "portmap", "firewall"), False, []),  # its rules are for pods, of which none was seen
        (("bridge", "portmap", "firewall"), True, ["what comes to its published ports"]),
        (("flannel", "portmap"), False, []),
    ],
)
def test_a_policy_that_drops_what_a_bridge_needs_is_warned_of(
    plugins: tuple[str, ...], seen: bool, expected: list[str]
):
    accepted = [field("ip", "saddr", "10.4.0.7"), {"accept": None}]
    there = NeighbourInfo(index=8, ip=ip_address("10.4.0.7"), mac=MAC, state=2)
    found = [
        each
        for each in find(
            networks=(FLANNEL, replace(PLAIN, plugins=plugins)),
            rules=rules(accepted, policy="drop"),
            neighbours=(*WELL.neighbours, *((there,) if seen else ())),
            plugins=frozenset((*plugins, "flannel", "portmap")),
            **BRIDGED,
        )
        if each.problem.where == "network plain, bridge br0"
    ]
    assert [each.problem.seen.partition(" is dropped by ")[0] for each in found] == expected
    assert {(each.problem.code, each.weight) for each in found} <= {("FW-002", "warning")}
    for each in found:
        means = (
            "ctstate DNAT" if "ports" in each.problem.seen else '{"type": "firewall"} after the plugin bridge in /etc'
        )
        assert means in each.problem.hint
    assert not find(networks=(FLANNEL, PLAIN), plugins=frozenset(("bridge", *WELL.plugins)), **BRIDGED)


def test_what_comes_to_published_ports_comes_by_the_uplink():
    accepted = [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}}, {"accept": None}]
    found = find(networks=(FLANNEL, PLAIN), rules=rules(accepted, policy="drop"), plugins=WELL.plugins, **BRIDGED)
    said = [each.problem.seen for each in found if each.problem.where == "network plain, bridge br0"]
    assert [text.partition(" is dropped by ")[0] for text in said] == ["what its pods send"]


def test_a_bridge_of_our_plugin_that_no_configuration_names_is_looked_at():
    ours = replace(BRIDGED["links"][-1], alias="weft:bridge")
    tables = {("inet", "weft-hostport", "m"): []}
    drops = rules(policy="drop")

    def warned(alias: str = "weft:bridge", **changes: Any) -> int:
        given = BRIDGED | {"links": (*LINKS, replace(ours, alias=alias)), "rules": drops} | changes
        return sum(each.problem.where == "a network without a configuration here, bridge br0" for each in find(**given))

    assert warned() == 1
    assert warned(rules=replace(drops, sets=tables)) == 2
    assert warned(alias="somebody's") == 0
    assert warned(networks=(FLANNEL, PLAIN)) == 0  # it has its own name there
    assert warned(rules=Ruleset()) == 0


@pytest.mark.parametrize("program", ["", "dhcpcd", "NetworkManager", "connmand"])
@pytest.mark.parametrize("address", ["192.168.7.9", "169.254.3.4", "fd00:7::9"])
def test_an_address_that_is_not_ours_on_a_device_is_named_with_who_may_have_given_it(program: str, address: str):
    given = AddressInfo(index=VXLAN, ip=ip_address(address), prefixlen=24)
    running = frozenset((program,) if program else ())
    [found] = find(addresses=(*ADDRESSES, given), link_programs=running)
    assert (found.problem.code, found.weight) == ("HOST-001", "warning")
    assert f"it has the address {address}/24, which weft did not set" in found.problem.seen
    assert program in found.problem.seen
    assert found.problem.hint.endswith(f"ip address delete {address}/24 dev flannel.1")
    own = [AddressInfo(index=VXLAN, ip=ip_address(ip), prefixlen=32) for ip in ("10.244.1.0", "fe80::9")]
    assert not find(addresses=(*ADDRESSES, *own), link_programs=running)


@pytest.mark.parametrize(
    "host, pod, said",
    [
        (1450, 1500, "1 pod has MTU 1500 (host end: veth1)"),
        (1500, 1450, ""),
        (1500, None, "1 pod has MTU 1500 (host end: veth1)"),
        (1450, 1400, ""),
    ],
)
def test_the_mtu_of_a_pod_is_that_of_its_own_end(host: int, pod: int | None, said: str):
    own = {} if pod is None else {"veth1": replace(END, link=replace(END.link, mtu=pod))}
    found = find(**links("veth1", mtu=host), pods=own)
    assert [each.problem.seen for each in found] == ([said] if said else [])


def test_several_pods_with_larger_mtus_are_counted():
    more = tuple(
        replace(LINKS[3], index=20 + number, name=f"veth{number}", mtu=1460 + number) for number in range(2, 7)
    )
    [found] = find(links=(*LINKS, *more))
    assert found.problem.seen == "5 pods have MTU 1462 to 1466 (host ends: veth2, veth3, veth4 …)"


def test_forwarding_that_is_off_at_one_link():
    [finding] = find(settings={**WELL.settings, "net/ipv4/conf/cni0/forwarding": "0"})
    assert finding.problem.where == "sysctl net/ipv4/conf/cni0/forwarding"
    assert list(map(str, finding.fix)) == ["sysctl -w net.ipv4.conf.cni0.forwarding=1"]


def test_ipv6_that_is_off_at_a_link_of_ipv6_pods():
    six = replace(STATE, lease=LeaseState(id="x", subnets=["fd00:1::/64"], public=[], confirmed=True))
    [finding] = find(daemon=six, settings={**WELL.settings, "net/ipv6/conf/cni0/disable_ipv6": "1"})
    assert finding.problem.code == "V6-001"
    assert list(map(str, finding.fix)) == ["sysctl -w net.ipv6.conf.cni0.disable_ipv6=0"]
    assert not codes(settings={**WELL.settings, "net/ipv6/conf/cni0/disable_ipv6": "1"})


def test_ipv6_that_is_off_at_a_link_towards_a_peer():
    far = replace(PEER, public=["fd77::2"], subnets=["fd00:2::/64"])
    six = replace(STATE, lease=LeaseState(id="x", subnets=["fd00:1::/64"], public=[], confirmed=True), peers=[far])
    off = {**WELL.settings, "net/ipv6/conf/eth0/disable_ipv6": "1"}
    assert "V6-001" in codes(daemon=six, settings=off, ways={}, probes=())
    assert "V6-001" not in codes(daemon=six, settings=off, ways={"fd77::2": ETH0}, probes=())
    # Without a peer by IPv6, the link towards those by IPv4 is asked, and no other one.
    four = replace(six, peers=[PEER])
    assert "V6-001" in codes(daemon=four, settings=off)
    assert "V6-001" not in codes(daemon=four, settings=off, ways={"192.168.0.2": VXLAN})


def test_subnets_of_both_families_are_counted_apart():
    both = replace(NETWORK, networks=["10.244.0.0/16", "fd00::/62"])
    lease = LeaseState(id="x", subnets=["10.244.1.0/24", "fd00:0:0:1::/64"], public=[], confirmed=True)
    more = [replace(PEER, subnets=["10.244.2.0/24", f"fd00:0:0:{n}::/64"], id=str(n)) for n in (2, 3)]
    assert codes(**state(network=both, lease=lease, peers=more[:1])) == []
    refused = [RefusedState(id="y", trouble=TROUBLE, subnets=["fd00::/64"])]
    found = find(**state(network=both, lease=lease, peers=more, refused=refused))
    assert [each.problem.where for each in found if each.problem.code == "LEASE-003"] == ["network fd00::/62"]


def test_a_link_that_was_taken_off_its_bridge_is_put_back():
    [found] = [each for each in find(**links("veth1", master=0)) if each.problem.code == "CHECK-001"]
    assert found.problem.seen == "the node's end of it, veth1, is on no bridge"
    assert [str(each) for each in found.fix] == ["ip link set veth1 master cni0"]
    plain = replace(ATTACHED, hosts=("veth1",))  # of a plugin without a bridge
    assert not find(**links("veth1", master=0), attached=(plain,))


@pytest.mark.parametrize(
    "mac, state, index, found",
    [(2, 0x80, CNI0, True), (3, 0x80, CNI0, False), (2, 2, CNI0, False), (2, 0x80, ETH0, False)],
)
def test_a_mac_of_a_pod_that_somebody_has_set_wrongly(mac: int, state: int, index: int, found: bool):
    end = replace(END, link=replace(END.link, mac=Mac.parse("0e:00:00:00:00:03")))
    entry = NeighbourInfo(index=index, ip=POD_IP, mac=Mac.parse(f"0e:00:00:00:00:0{mac}"), state=state)
    told = find(pods={"veth1": end}, neighbours=(*WELL.neighbours, entry))
    assert [each.problem.code for each in told] == ["NEIGH-002"] * found


def test_a_bridge_that_is_narrower_than_its_pods():
    [found] = find(**links("cni0", mtu=1400))
    assert (found.problem.code, found.problem.where) == ("MTU-001", "bridge cni0")
    assert [str(each) for each in found.fix] == ["ip link set cni0 mtu 1450"]
