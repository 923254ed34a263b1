"""What CHECK says, and what it passes over."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from weft.cni.attachment import compare
from weft.cni.attachment.compare import Wrong
from weft.model.attachment import Interface, IpConfig, Result, RouteConfig
from weft.model.kernel.reported import AddressInfo, LinkInfo, NextHop, PortInfo, PortVlans, RouteInfo
from weft.model.net import Mac
from weft.model.value import replace

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
ETH0 = Interface(name="eth0", mac=MAC, sandbox="/ns")
IP = IpConfig(address=ip_interface("10.1.2.2/24"), gateway=ip_address("10.1.2.1"), interface=2)
RESULT = Result(interfaces=(Interface(name="cni0", mac=MAC), Interface(name="veth0", mac=MAC), ETH0), ips=(IP,))
END = LinkInfo(index=5, name="eth0", kind="veth", mac=Mac.parse(MAC), up=True)
BRIDGE = LinkInfo(index=2, name="cni0", kind="bridge", mac=Mac.parse(MAC), up=True)
VETH = LinkInfo(index=7, name="veth0", kind="veth", mac=Mac.parse(MAC), up=True, master=2, port=PortInfo())
THERE = AddressInfo(index=5, ip=ip_address("10.1.2.2"), prefixlen=24)
DIRECT = RouteInfo(dst=ip_network("10.1.2.0/24"), index=5)


def test_the_containers_interface_is_found_by_name_and_namespace():
    assert compare.container_interface(RESULT, "eth0", "/ns") == ETH0
    twice = replace(RESULT, interfaces=(replace(ETH0, sandbox="/other"), ETH0))
    assert compare.container_interface(twice, "eth0", "/ns") == ETH0


@pytest.mark.parametrize(
    "result, sandbox, found",
    [
        (RESULT, "/ns", "prevResult names cni0, veth0, eth0; eth0 in /now is not among them"),
        (Result(), "", "prevResult names no interface; eth0 in /now is not among them"),
    ],
)
def test_a_namespace_that_is_another_one(result, sandbox, found):
    with pytest.raises(Wrong) as caught:
        compare.container_interface(result, "eth0", "/now")
    assert caught.value.msg == f"Sandbox in prevResult {sandbox} doesn't match configured netns: /now"
    assert caught.value.details == f"CHECK-001: {found}"


@pytest.mark.parametrize(
    "link, text",
    [
        (None, "Interface name eth0 not found"),
        (replace(END, kind="macvlan"), "Error: Container interface eth0 not of type veth"),
        (replace(END, kind=""), "Error: Container interface eth0 not of type veth"),
        (
            replace(END, mac=Mac.parse(OTHER)),
            f"Interface eth0 Mac {MAC} doesn't match container Mac: {OTHER}",
        ),
        (replace(END, up=False), "Interface eth0 is down"),
    ],
)
def test_the_containers_end(link, text):
    with pytest.raises(Wrong) as caught:
        compare.check_container_end(ETH0, link, up=True)
    assert caught.value.msg == text


def test_a_containers_end_that_is_as_it_should_be():
    assert compare.check_container_end(ETH0, END, up=True) == END
    down = replace(END, up=False, mac=Mac.parse(OTHER))
    assert compare.check_container_end(replace(ETH0, mac=""), down, up=False) == down


@pytest.mark.parametrize(
    "link, text",
    [
        (None, "Interface name cni0 not found"),
        (replace(BRIDGE, kind="veth"), "Interface cni0 does not have link type of bridge"),
        (replace(BRIDGE, kind=""), "Interface cni0 does not have link type of bridge"),
        (replace(BRIDGE, mac=Mac.parse(OTHER)), f"Bridge interface cni0 Mac doesn't match: {MAC} not found"),
        (
            replace(BRIDGE, promisc=True),
            "Bridge interface cni0 configured Promisc Mode false doesn't match current state: true",
        ),
        (replace(BRIDGE, up=False), "Interface cni0 is down"),
    ],
)
def test_the_bridge(link, text):
    with pytest.raises(Wrong) as caught:
        compare.check_bridge(RESULT, "cni0", link, promisc=False)
    assert caught.value.msg == text


def test_promiscuous_mode_that_somebody_has_switched_off():
    with pytest.raises(Wrong, match="configured Promisc Mode true doesn't match current state: false") as caught:
        compare.check_bridge(RESULT, "cni0", BRIDGE, promisc=True)
    assert caught.value.details == "CHECK-001: promiscuous mode of cni0 was switched off by somebody"


def test_a_result_without_the_bridge():
    with pytest.raises(Wrong, match=r"^Interface name missing; CHECK-001: "):
        compare.check_bridge(RESULT, "br1", BRIDGE, promisc=False)
    inside = Result(interfaces=(Interface(name="cni0", sandbox="/ns"),))
    with pytest.raises(Wrong, match=r"^Interface cni0 should not be in sandbox; CHECK-001: "):
        compare.check_bridge(inside, "cni0", BRIDGE, promisc=False)


def test_a_bridge_that_is_as_it_should_be():
    assert compare.check_bridge(RESULT, "cni0", BRIDGE, promisc=False) == BRIDGE
    bare = Result(interfaces=(Interface(name="cni0"),))
    assert compare.check_bridge(bare, "cni0", replace(BRIDGE, promisc=True), promisc=True).promisc


@pytest.mark.parametrize(
    "link, text",
    [
        (None, "gone"),
        (replace(VETH, name="veth9"), "gone"),
        (replace(VETH, mac=Mac.parse(OTHER)), f"Interface veth0 Mac doesn't match: {MAC} not found"),
        (replace(VETH, up=False), "Interface veth0 is down"),
    ],
)
def test_the_hosts_end(link, text):
    with pytest.raises(Wrong) as caught:
        compare.check_host_end(RESULT, link, "gone")
    assert caught.value.msg == text


def test_a_hosts_end_that_is_as_it_should_be():
    assert compare.check_host_end(RESULT, VETH, "gone") == VETH
    assert compare.check_host_end(Result(interfaces=(Interface(name="veth0"),)), VETH, "gone") == VETH


@pytest.mark.parametrize(
    "link, text, found",
    [
        (
            replace(VETH, master=3),
            "CNI veth created for bridge cni0 was not found",
            "veth0 is no port of cni0 any more",
        ),
        (
            replace(VETH, port=None),
            "CNI veth created for bridge cni0 was not found",
            "veth0 is no port of cni0 any more",
        ),
        (VETH, "Port veth0 of bridge cni0: hairpin mode is off", "the configuration wants it on"),
        (
            replace(VETH, port=PortInfo(hairpin=True, isolated=True)),
            "Port veth0 of bridge cni0: isolation is on",
            "the configuration wants it off",
        ),
    ],
)
def test_a_port(link, text, found):
    with pytest.raises(Wrong) as caught:
        compare.check_port(link, BRIDGE, hairpin=True, isolated=False)
    assert (caught.value.msg, caught.value.details) == (text, f"CHECK-001: {found}")
    compare.check_port(replace(VETH, port=PortInfo(hairpin=True)), BRIDGE, hairpin=True, isolated=False)


def test_the_vlans_of_a_port():
    have = PortVlans(index=7, own=100, untagged=frozenset({100}), tagged=frozenset({101, 102}))
    compare.check_vlans(VETH, have, own=100, tagged=(101,))
    with pytest.raises(Wrong, match=r"^Port veth0 is not in VLAN 1; CHECK-001: ") as caught:
        compare.check_vlans(VETH, have, own=1, tagged=())
    assert caught.value.details == "CHECK-001: its untagged frames belong to VLAN 100"
    with pytest.raises(Wrong) as caught:
        compare.check_vlans(VETH, PortVlans(index=7), own=1, tagged=())
    assert caught.value.details == "CHECK-001: its untagged frames belong to VLAN none"
    with pytest.raises(Wrong, match=r"^Port veth0 does not carry VLAN 103; CHECK-001: ") as caught:
        compare.check_vlans(VETH, have, own=100, tagged=(101, 104, 103))
    assert caught.value.details == "CHECK-001: it carries tagged: 101, 102"
    with pytest.raises(Wrong) as caught:
        compare.check_vlans(VETH, replace(have, tagged=frozenset()), own=100, tagged=(103,))
    assert caught.value.details == "CHECK-001: it carries tagged: none"


@pytest.mark.parametrize(
    "addresses, routes, text, found",
    [
        ([], [DIRECT], "Failed to match addr 10.1.2.2/24 on interface eth0", "eth0 has no address"),
        (
            [replace(THERE, prefixlen=16)],
            [DIRECT],
            "Failed to match addr 10.1.2.2/24 on interface eth0",
            "eth0 has 10.1.2.2/16",
        ),
        (
            [replace(THERE, dad_failed=True)],
            [DIRECT],
            "link eth0 has address 10.1.2.2 in DADFAILED state",
            "another host on this network has 10.1.2.2",
        ),
        (
            [THERE],
            [replace(DIRECT, table=255)],
            "Failed to find Gateway 10.1.2.1 for interface eth0",
            "the container has no route to 10.1.2.0/24",
        ),
    ],
)
def test_addresses(addresses, routes, text, found):
    with pytest.raises(Wrong) as caught:
        compare.check_addresses(RESULT, ETH0, addresses, routes)
    assert (caught.value.msg, caught.value.details) == (text, f"CHECK-001: {found}")
    compare.check_addresses(RESULT, ETH0, [THERE], [DIRECT])


def test_whose_addresses_are_looked_for():
    other = replace(RESULT, ips=(replace(IP, interface=0),))
    compare.check_addresses(other, ETH0, [], [])  # the bridge's own
    for index in (None, 7):
        with pytest.raises(Wrong):
            compare.check_addresses(replace(RESULT, ips=(replace(IP, interface=index),)), ETH0, [], [])


def test_a_single_address_has_no_network():
    for text in ("10.1.2.2/32", "fd00::2/128"):
        address = ip_interface(text)
        result = replace(RESULT, ips=(IpConfig(address=address, interface=2),))
        there = AddressInfo(index=5, ip=address.ip, prefixlen=address.network.prefixlen)
        compare.check_addresses(result, ETH0, [there], [])


def route(dst, gw=None, table=None):
    return RouteConfig(dst=ip_interface(dst), gw=None if gw is None else ip_address(gw), table=table)


HOPS = (NextHop(index=5, via=ip_address("10.1.2.8")), NextHop(index=5, via=ip_address("10.1.2.9")))
ROUTES = [
    RouteInfo(dst=ip_network("0.0.0.0/0"), via=ip_address("10.1.2.1")),
    RouteInfo(dst=ip_network("10.5.0.0/16"), via=ip_address("10.1.2.7")),
    RouteInfo(dst=ip_network("10.6.0.0/16"), hops=HOPS, table=5000),
]


@pytest.mark.parametrize(
    "want",
    [
        route("0.0.0.0/0", "10.1.2.99"),
        route("10.5.0.0/16"),
        route("10.5.9.9/16", "10.1.2.7"),
        route("10.6.0.0/16", "10.1.2.9"),
        route("10.6.0.0/16", "10.1.2.8", table=5000),
    ],
)
def test_routes_that_are_there(want):
    compare.check_routes([want], ROUTES)


@pytest.mark.parametrize(
    "want, text, found",
    [
        (route("10.9.0.0/16"), "{Dst:10.9.0.0/16}", "there is none to 10.9.0.0/16"),
        (
            route("10.5.0.0/16", "10.1.2.1"),
            "{Dst:10.5.0.0/16 GW:10.1.2.1}",
            "there is one via 10.1.2.7 in table 254 to 10.5.0.0/16",
        ),
        (
            route("10.6.0.0/16", table=254),
            "{Dst:10.6.0.0/16}",
            "there is one via 10.1.2.8, 10.1.2.9 in table 5000 to 10.6.0.0/16",
        ),
    ],
)
def test_routes_that_are_not(want, text, found):
    with pytest.raises(Wrong) as caught:
        compare.check_routes([want], ROUTES)
    assert caught.value.msg == f"Expected Route {text} not found in routing table"
    assert caught.value.details == f"CHECK-001: {found}"
