"""The back end ipip in the virtual machine, whose kernel has it: the device, what is mended, and packets."""

from contextlib import ExitStack
from ipaddress import IPv4Address, ip_network

from tests.support.netns import Netns
from weft.desired.backends.ipip import IpipLink
from weft.kernel.rtnetlink.apply import apply
from weft.kernel.rtnetlink.observe import observe
from weft.model.kernel.objects import Address, Object, Route
from weft.plan.diff import Put

DEVICES = {"flannel.ipip": IpipLink}


def wanted(own: int, other: int) -> list[Object]:
    """What node `own` wants of itself, and for node `other`."""
    via = IPv4Address(f"192.168.0.{other}")
    return [
        IpipLink(name="flannel.ipip", mtu=1480, local=IPv4Address(f"192.168.0.{own}")),
        Address(dev="flannel.ipip", ip=IPv4Address(f"10.5.{own}.0"), prefixlen=32),
        Route(dst=ip_network(f"10.5.{other}.0/24"), via=via, dev="flannel.ipip", onlink=True),
    ]


def put(netns: Netns, things: list[Object]) -> None:
    assert netns.call(lambda: apply(netns.rtnl, [Put(thing) for thing in things])) == []
    assert observe(netns.rtnl, devices=DEVICES).ours == {thing.key: thing for thing in things}


def check_the_device_is_made_mended_and_carries_packets() -> None:
    with ExitStack() as stack:
        one, two = stack.enter_context(Netns()), stack.enter_context(Netns())
        one.rtnl.add_veth("eth0", peer="eth0", peer_netns_fd=two.fd)
        for number, netns in ((1, one), (2, two)):
            netns.run(f"ip address add 192.168.0.{number}/24 dev eth0; ip link set eth0 up")
        put(one, wanted(1, 2))
        put(two, wanted(2, 1))
        [link] = one.json("ip -d -j link show flannel.ipip")
        data = link["linkinfo"]["info_data"]
        assert (data["proto"], data["remote"], data["local"], data["ttl"], data["pmtudisc"]) == (
            *("any", "any", "192.168.0.1"),
            *(0, False),
        ), data
        assert "1 received" in one.run("ping -c1 -W2 -I 10.5.1.0 10.5.2.0")
        index = link["ifindex"]
        one.run("ip link set flannel.ipip mtu 1400 down")
        put(one, wanted(1, 2))
        assert one.json("ip -j link show flannel.ipip")[0]["ifindex"] == index
        one.run("ip link del flannel.ipip; ip link add flannel.ipip type ipip local 192.168.0.1 remote 192.168.0.9")
        put(one, wanted(1, 2))
        assert "1 received" in one.run("ping -c1 -W2 -I 10.5.1.0 10.5.2.0")
