"""A lab's link that delays packets, in the virtual machine, whose kernel has netem."""

from contextlib import ExitStack

from tests.support.netns import Netns
from weft.lab.inside.changes.switch import shape
from weft.lab.links import Link


def check_a_link_delays_packets_both_ways_and_keeps_its_rate() -> None:
    with ExitStack() as stack:
        lab, node = stack.enter_context(Netns()), stack.enter_context(Netns())
        lab.rtnl.add_veth("port1", peer="eth0", peer_netns_fd=node.fd)
        lab.run("ip address add 192.168.0.1/24 dev port1; ip link set port1 up")
        node.run("ip address add 192.168.0.2/24 dev eth0; ip link set eth0 up")
        for link, kinds in (
            (Link(delay=100.0), ["netem"]),
            (Link(delay=100.0, rate=1_000_000), ["netem", "tbf"]),
        ):
            shape(lab.rtnl, "port1", link)
            for device in ("port1", "port1-in"):
                queues = {each["kind"]: each for each in lab.json(f"tc -j qdisc show dev {device}")}
                assert [kind for kind in ("netem", "tbf") if kind in queues] == kinds, queues
                assert queues["netem"]["options"]["delay"]["delay"] == 0.1, queues
            assert all("rate" not in str(each) for each in node.json("tc -j qdisc show dev eth0"))
            said = node.run("ping -c3 -i0.2 -W5 -s1000 192.168.0.1")
            assert float(said.rpartition(" = ")[2].partition("/")[0]) >= 200, said
        shape(lab.rtnl, "port1", Link())
        assert "netem" not in lab.run("tc qdisc show")
        assert lab.rtnl.index_of("port1-in") is None
