"""Links, against other tools, both ways: what we make they see, what they make we see."""

import errno
from ipaddress import ip_address

import pytest

from tests.support.netns import Netns, wire
from tests.support.weftd import eventually
from weft.desired.tunnels.vxlan import VxlanLink
from weft.kernel.rtnetlink import codec
from weft.kernel.rtnetlink.bridgeport import set_port
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.net import Mac
from weft.model.value import replace

MAC = Mac.parse("02:00:00:00:01:07")


def ip_link(netns: Netns, name: str) -> dict:
    [link] = netns.json(f"ip -d -j link show {name}")
    return link


def test_a_bridge_that_we_make(netns: Netns) -> None:
    made = netns.rtnl.add_bridge("br0", mtu=1400, mac=MAC, alias="weft:pods", up=True)
    seen = ip_link(netns, "br0")
    assert (seen["ifindex"], seen["mtu"], seen["address"], seen["ifalias"]) == (made.index, 1400, str(MAC), "weft:pods")
    assert (seen["linkinfo"]["info_kind"], seen["linkinfo"]["info_data"]["mcast_snooping"]) == ("bridge", 1)
    assert "UP" in seen["flags"]
    assert (made.kind, made.mtu, made.mac, made.alias, made.up) == ("bridge", 1400, MAC, "weft:pods", True)


def test_a_bridge_that_floods_what_is_for_many(netns: Netns) -> None:
    netns.rtnl.add_bridge("br0", mcast_snooping=False)
    assert ip_link(netns, "br0")["linkinfo"]["info_data"]["mcast_snooping"] == 0


def test_a_veth_pair_that_we_make(netns: Netns) -> None:
    other_mac = Mac.parse("02:00:00:00:00:02")
    made = netns.rtnl.add_veth(
        "v0", peer="v1", mtu=1400, mac=MAC, peer_mac=other_mac, alias="weft:pod", peer_alias="weft:end"
    )
    one, other = ip_link(netns, "v0"), ip_link(netns, "v1")
    assert (one["address"], other["address"]) == (str(MAC), str(other_mac))
    assert (one["ifalias"], other["ifalias"]) == ("weft:pod", "weft:end")
    assert (one["link"], other["link"], made.link) == ("v1", "v0", other["ifindex"])
    # A length of 0 would stay when a shaper is added later, and let nothing through.
    assert (one["txqlen"], other["txqlen"], made.queue_length) == (1000, 1000, 1000)


def test_an_ifb_device_that_we_make(netns: Netns) -> None:
    made = netns.rtnl.add_ifb("ifb7", mtu=1400, alias="weft:ifb:x")
    seen = ip_link(netns, "ifb7")
    assert (seen["ifindex"], seen["mtu"], seen["ifalias"]) == (made.index, 1400, "weft:ifb:x")
    assert (seen["linkinfo"]["info_kind"], "UP" in seen["flags"], "txqlen" in seen) == ("ifb", True, False)
    assert (made.kind, made.up, made.queue_length) == ("ifb", True, 0)


def test_what_tuning_changes(netns: Netns) -> None:
    made = netns.rtnl.add_veth("v0", peer="v1")
    netns.rtnl.set_link(made.index, allmulti=True, promisc=True, queue_length=20000)
    seen = ip_link(netns, "v0")
    assert ({"ALLMULTI", "PROMISC"} <= set(seen["flags"]), seen["txqlen"]) == (True, 20000)
    link = netns.rtnl.link("v0")
    assert link is not None
    assert (link.allmulti, link.promisc, link.queue_length) == (True, True, 20000)
    netns.rtnl.set_link(made.index, allmulti=False)
    link = netns.rtnl.link("v0")
    assert link is not None
    assert (link.allmulti, link.promisc) == (False, True)


def test_a_veth_pair_into_another_namespace(netns: Netns, make_netns) -> None:
    pod = make_netns()
    made = netns.rtnl.add_veth("veth0", peer="eth0", peer_netns_fd=pod.fd, alias="weft:pod")
    end = pod.rtnl.link("eth0")
    assert end is not None
    assert (end.index, end.link) == (made.link, made.index)
    another = netns.rtnl.add_veth("veth2", peer="eth0", peer_netns_fd=make_netns().fd)
    assert (made.peer_netns, another.peer_netns) == (0, 1)
    assert (netns.rtnl.netns_number(pod.fd), netns.rtnl.netns_number(make_netns().fd)) == (0, -1)
    assert (netns.rtnl.link("eth0"), netns.rtnl.index_of("eth0")) == (None, None)
    with pytest.raises(ValueError, match="another namespace"):
        netns.rtnl.add_veth("veth1", peer="eth1", peer_netns_fd=pod.fd, peer_alias="x")
    netns.rtnl.set_link(made.index, netns_fd=pod.fd, name="moved")
    assert pod.rtnl.link("moved") is not None


@pytest.mark.parametrize("local", ["10.0.0.1", "fd00::1"])
@pytest.mark.spec("flannel.md §6.2/device")
def test_a_vtep_that_we_make(netns: Netns, eth0: int, local: str) -> None:
    wanted = VxlanLink(
        name="flannel.1", vni=7, port=4789, local=ip_address(local), parent=eth0, mac=MAC, mtu=1400, gbp=True
    )
    made = netns.rtnl.add_link(
        "vxlan", codec.encode_data(wanted), name="flannel.1", mtu=1400, mac=MAC, alias="weft:vtep"
    )
    seen = ip_link(netns, "flannel.1")
    data = seen["linkinfo"]["info_data"]
    assert (data["id"], data["port"], data["link"], data["learning"]) == (7, 4789, "eth0", False)
    assert "gbp" in data, "true, or null from newer iproute2"
    assert data.get("local", data.get("local6")) == local
    assert (seen["address"], seen["mtu"], seen["txqlen"], seen["ifalias"]) == (str(MAC), 1400, 1000, "weft:vtep")
    own = {"vni": 7, "port": 4789, "local": ip_address(local), "parent": eth0, "learning": False, "gbp": True}
    assert codec.decode_data(VxlanLink, made.data) == own
    netns.rtnl.change_link(made.index, "vxlan", codec.encode_data(replace(wanted, learning=True), live=True))
    assert ip_link(netns, "flannel.1")["linkinfo"]["info_data"]["learning"] is True


def test_links_that_others_make(netns: Netns, eth0: int) -> None:
    netns.run(
        "ip link add vx type vxlan id 5 dstport 8472 local 10.0.0.1 dev eth0 nolearning gbp\n"
        "ip link add ext type vxlan external dstport 4790\n"
        "ip link add grp type vxlan id 6 remote 10.0.0.9 dev eth0 dstport 4791\n"
        "ip link add br9 type bridge vlan_default_pvid 0\n"
        "ip tuntap add tun0 mode tun\n"
        "ip link add p0 type veth peer name p1\n"
        "ip link set p0 master br9 promisc on alias 'ünï code'\n"
        "bridge link set dev p0 hairpin on isolated on"
    )
    links = {link.name: link for link in netns.rtnl.links()}
    vx = codec.decode_data(VxlanLink, links["vx"].data)
    assert vx is not None
    assert (vx["vni"], vx["learning"], vx["gbp"]) == (5, False, True)
    assert codec.decode_data(VxlanLink, links["ext"].data) is None
    assert codec.decode_data(VxlanLink, links["grp"].data) is None
    assert (links["br9"].kind, links["br9"].mtu) == ("bridge", 1500)
    assert links["br9"].bridge is not None
    assert (links["tun0"].kind, links["tun0"].mac, links["tun0"].point_to_point) == ("tun", None, True)
    assert (links["p0"].master, links["p0"].promisc, links["p0"].alias) == (links["br9"].index, True, "ünï code")
    assert links["p0"].port is not None
    assert (links["p0"].port.hairpin, links["p0"].port.isolated) == (True, True)
    assert links["lo"].loopback
    for link in links.values():
        assert netns.rtnl.link(link.name) == netns.rtnl.link(link.index)
        assert (netns.rtnl.index_of(link.name), netns.rtnl.name_of(link.index)) == (link.index, link.name)
        assert (
            link.operstate
            == {"UNKNOWN": 0, "DOWN": 2, "LOWERLAYERDOWN": 3, "UP": 6}[ip_link(netns, link.name)["operstate"]]
        )


def test_a_link_that_we_change(netns: Netns) -> None:
    br0 = netns.rtnl.add_bridge("br0").index
    v0 = netns.rtnl.add_veth("v0", peer="v1").index
    netns.rtnl.set_link(v0, mtu=1300, master=br0, name="new0", mac=MAC, alias="weft:x", promisc=True, up=True)
    netns.rtnl.request(set_port(v0, hairpin=True, isolated=True))
    seen = ip_link(netns, "new0")
    assert (seen["mtu"], seen["master"], seen["address"], seen["ifalias"]) == (1300, "br0", str(MAC), "weft:x")
    assert {"UP", "PROMISC"} <= set(seen["flags"])
    assert seen["linkinfo"]["info_slave_data"]["hairpin"] is True
    assert seen["linkinfo"]["info_slave_data"]["isolated"] is True
    netns.rtnl.request(set_port(v0, hairpin=False, isolated=None))
    assert ip_link(netns, "new0")["linkinfo"]["info_slave_data"]["isolated"] is True
    netns.rtnl.set_link(v0, master=0, alias="", promisc=False, up=False)
    seen = ip_link(netns, "new0")
    assert "master" not in seen
    assert "ifalias" not in seen
    assert not {"UP", "PROMISC"} & set(seen["flags"])
    netns.rtnl.delete_link(v0)
    assert [link["ifname"] for link in netns.json("ip -j link")] == ["lo", "br0"]


def test_a_link_that_is_not_there(netns: Netns) -> None:
    assert [netns.rtnl.link(which) for which in ("nope", "", "a-name-too-long-for-a-link", "a/b", 4711)] == [None] * 5
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.delete_link(4711)
    assert refused.value.errno == errno.ENODEV


def test_wire_joins_two_namespaces(netns: Netns, make_netns) -> None:
    other = make_netns()
    one_end, other_end = wire(netns, other)
    for there, index, ip in ((netns, one_end, "10.0.0.1"), (other, other_end, "10.0.0.2")):
        there.rtnl.add_address(index, ip_address(ip), 24)
        eventually(lambda there=there, index=index: there.rtnl.link(index).operstate == 6)
