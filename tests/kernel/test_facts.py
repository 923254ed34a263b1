"""Interface selection on a real kernel: the vectors of flannel.md 11.9, with a bridge named dummy0."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from tests.kernel.netthread import Namespace, namespace, run
from weft.config.flags import parse_flags
from weft.desired.facts import select
from weft.desired.inputs import Facts
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.observe import observe
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.reported import RouteInfo
from weft.model.net import Ip

ADDRESSES = ("1.10.100.1", "192.168.200.128", "172.16.30.18", "172.16.31.200", "172.16.32.100")


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[Namespace]:
    """A node with one interface: no dummy driver here, so a bridge with a port stands in."""
    with namespace() as made:
        made.do(_build)
        yield made


def _build() -> None:
    run("ip", "link", "add", "dummy0", "type", "bridge")
    run("ip", "link", "add", "port", "type", "veth", "peer", "name", "far")
    run("ip", "link", "set", "port", "master", "dummy0", "up")
    run("ip", "link", "set", "far", "up")
    run("ip", "link", "set", "dummy0", "up")
    for address in ADDRESSES:
        run("ip", "address", "add", f"{address}/24", "dev", "dummy0")
    run("ip", "address", "add", "2001:db8::1/64", "dev", "dummy0", "nodad")
    # The kernel takes no address of its own as a gateway, so the vector's route names its source instead.
    run("ip", "route", "add", "172.16.32.254", "dev", "dummy0", "src", "172.16.32.100")


def look(node: Namespace, *flags: str, v4: bool = True, v6: bool = False) -> tuple[Facts, str]:
    options = parse_flags(flags, {})

    def in_namespace() -> tuple[Facts, str]:
        with Rtnl.open() as rtnl:
            reach = None if options.iface_can_reach is None else _reach(rtnl, options.iface_can_reach)
            return select(options, observe(rtnl), v4=v4, v6=v6, reach=reach)

    return node.do(in_namespace)


def _reach(rtnl: Rtnl, target: Ip) -> RouteInfo | None:
    try:
        return rtnl.route_to(target)
    except NetlinkError:
        return None


@pytest.mark.parametrize(
    "flags, address",
    [
        pytest.param(*row[1:], marks=pytest.mark.spec(f"flannel.md 11.9/{row[0]}"))
        for row in [
            ("regex-address", [r"--iface-regex=192\.168\.200\.\d+"], "192.168.200.128"),
            ("regex-name", [r"--iface-regex=dummy\d+"], "1.10.100.1"),
            ("name", ["--iface=dummy0"], "1.10.100.1"),
            ("address", ["--iface=172.16.30.18"], "172.16.30.18"),
            ("regex-public-ip", [r"--iface-regex=172\.16\.30\.\d+", "--public-ip=172.16.31.200"], "172.16.30.18"),
            ("can-reach", ["--iface-can-reach=172.16.32.254"], "172.16.32.100"),
        ]
    ],
)
def test_vectors(node, flags, address):
    facts, line = look(node, *flags)
    assert (facts.uplink.name, facts.uplink.v4) == ("dummy0", IPv4Address(address))
    public = "172.16.31.200" if "--public-ip=172.16.31.200" in flags else address
    assert facts.public_v4 == IPv4Address(public)
    assert "lo 127.0.0.1/8" in line


@pytest.mark.spec("flannel.md 11.9/address-dual")
def test_dual_stack_by_an_ipv4_address(node):
    facts, _ = look(node, "--iface=172.16.30.18", v6=True)
    assert (facts.uplink.v4, facts.uplink.v6) == (IPv4Address("172.16.30.18"), IPv6Address("2001:db8::1"))


@pytest.mark.spec("flannel.md §7.2/dual-v6-literal", "flannel.md §7.3/preference")
def test_dual_stack_by_an_ipv6_address_which_comes_before_link_local(node):
    facts, _ = look(node, "--iface=2001:db8::1", v6=True)
    assert (facts.uplink.v4, facts.uplink.v6) == (IPv4Address("1.10.100.1"), IPv6Address("2001:db8::1"))
    assert look(node, "--iface=dummy0", v4=False, v6=True)[0].uplink.v6 == IPv6Address("2001:db8::1")


def test_connected_prefixes_are_on_link(node):
    facts, _ = look(node, "--iface=dummy0")
    assert {IPv4Network("172.16.32.0/24"), IPv4Network("1.10.100.0/24"), IPv6Network("2001:db8::/64")} <= set(
        facts.onlink
    )


@pytest.mark.spec("flannel.md §7.2/default-route")
def test_of_several_default_routes_the_kernels_is_taken():
    def build() -> tuple[str, str]:
        for name, address, metric in (("one", "10.1.0.1", "200"), ("two", "10.2.0.1", "100")):
            run("ip", "link", "add", name, "type", "bridge")
            run("ip", "link", "set", name, "up")
            run("ip", "address", "add", f"{address}/24", "dev", name)
            run("ip", "route", "add", "default", "via", f"{address}00", "dev", name, "metric", metric)
        with Rtnl.open() as rtnl:
            by_metric = select(parse_flags([], {}), observe(rtnl), v4=True, v6=False)[0].uplink.name
            run("ip", "route", "del", "default", "metric", "100")
            run("ip", "route", "del", "default", "metric", "200")
            hops = ("nexthop", "via", "10.1.0.100", "weight", "7", "nexthop", "via", "10.2.0.100")
            run("ip", "route", "add", "default", *hops)
            by_weight = select(parse_flags([], {}), observe(rtnl), v4=True, v6=False)[0].uplink.name
        return by_metric, by_weight

    with namespace() as made:
        assert made.do(build) == ("two", "one")
