"""Which links, routes and IPsec policies a clean-up takes for weft's."""

from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from pathlib import Path

import pytest

from weft.daemon.backends.backend import Left
from weft.daemon.backends.ipsec import judged
from weft.daemon.commands import ours
from weft.daemon.disk import memory
from weft.daemon.disk.memory import Memory
from weft.daemon.world import Moment
from weft.desired.backends.ipsec.objects import Policy
from weft.model.kernel.objects import Route
from weft.model.kernel.reported import LinkInfo

KEY = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "kind, alias, is_ours",
    [
        ("vxlan", "weft:vtep", True),
        ("bridge", "weft:bridge", True),
        ("veth", "weft:gateway", True),
        ("veth", f"weft:pod:{KEY}", True),
        ("ifb", f"weft:ifb:{KEY}", True),
        ("veth", "weft:retired", True),
        ("ifb", "weft:retired", True),
        ("bridge", "weft:vtep", False),
        ("vxlan", "weft:bridge", False),
        ("veth", "weft:pod:", False),
        ("veth", f"weft:pod:{KEY}0", False),
        ("veth", f"weft:pod:{KEY[:-1]}g", False),
        ("veth", f"x-weft:pod:{KEY}", False),
        ("bridge", "weft:bridge0", False),
        ("", "weft:vtep", False),
        ("bridge", "bridge", False),
    ],
)
def test_a_link_is_known_by_alias_and_kind(kind: str, alias: str, is_ours: bool):
    assert ours.is_link(LinkInfo(index=7, name="x", kind=kind, alias=alias)) == is_ours


NETWORKS = (ip_network("10.5.0.0/16"), ip_network("fd05::/48"))
VTEP = LinkInfo(index=7, name="flannel.1", kind="vxlan", alias="weft:vtep")


def route(dst: str, dev: str = "eth0", **more: int) -> Route:
    return Route(dst=ip_network(dst), via=ip_address("172.31.0.2"), dev=dev, **more)


@pytest.mark.parametrize(
    "thing, networks, why",
    [
        (route("10.5.1.0/24"), NETWORKS, ""),
        (route("10.6.1.0/24", "flannel.1"), NETWORKS, ""),
        (route("10.6.1.0/24", "flannel.1"), (), ""),
        (route("10.5.1.0/24", table=77), NETWORKS, "weft has none in table 77"),
        (route("10.6.1.0/24", "flannel.1", table=77), NETWORKS, "weft has none in table 77"),
        (
            route("10.6.1.0/24"),
            NETWORKS,
            "it leads to no device of weft, and into none of the networks 10.5.0.0/16, fd05::/48",
        ),
        (
            route("10.6.1.0/24", "other"),
            NETWORKS[:1],
            "it leads to no device of weft, and into none of the networks 10.5.0.0/16",
        ),
        (route("10.6.1.0/24"), (), "no network of weft's is known any more, so nothing tells whose it is"),
    ],
)
def test_a_route_is_known_by_its_device_or_its_network(thing: Route, networks, why: str):
    bare = LinkInfo(index=8, name="other", kind="vxlan", alias="weft:bridge")
    assert ours.route_is_foreign(thing, (bare, VTEP), networks) == why


@pytest.mark.parametrize(
    "dst, networks, where",
    [
        ("10.5.2.0/24", NETWORKS, "ours"),
        ("10.6.2.0/24", NETWORKS[:1], "foreign"),
        ("10.5.2.0/24", (), "unknown"),
    ],
)
def test_a_policy_is_known_by_its_networks(dst: str, networks, where: str):
    node = IPv4Address("192.168.0.1")
    ends = {"src": IPv4Network("10.5.1.0/24"), "dst": IPv4Network(dst)}
    policy = Policy(direction="in", tunnel_src=node, tunnel_dst=node, **ends)
    said = {
        "ours": Left(ours=("charon, process 7", str(policy))),
        "foreign": Left(ours=("charon, process 7",), foreign=(f"{policy}: it is not between subnets of 10.5.0.0/16",)),
        "unknown": Left(ours=("charon, process 7",), unknown=(policy,)),
    }
    assert judged([policy], networks, ("charon, process 7",)) == said[where]


def test_the_networks_of_all_instances_are_read_from_what_they_remember(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    now = Moment(unix=1e9, now=1.0, boot="this")
    end = '"Backend": {"Type": "vxlan"}}'
    configurations = {
        "b-2": f'{{"Network": "10.6.0.0/16", "EnableIPv6": true, "IPv6Network": "fd06::/48", {end}',
        "a-1": f'{{"Network": "10.5.0.0/16", {end}',
        "c-3": f'{{"Network": "nonsense", {end}',
        "cni": f'{{"Network": "10.7.0.0/16", {end}',
    }
    for name, text in configurations.items():
        (tmp_path / name).mkdir()
        memory.file(tmp_path / name, lambda text=text: Memory(net_conf=text), lambda: now).write_now()
    (tmp_path / "d-4").mkdir()
    (tmp_path / "cni-directories.json").write_text("{}")
    assert [str(net) for net in ours.networks(tmp_path)] == ["10.5.0.0/16", "10.6.0.0/16", "fd06::/48"]
    assert "STATE-001" not in caplog.text, "beside the instances lies a file of the plugins"
