"""What `weft trace` predicts in random worlds, against what the kernel does with a packet there."""

import os
import random
import socket
from collections.abc import Callable
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.support.netns import Netns, wire
from weft.diag.look import Places, look
from weft.diag.matching import Packet
from weft.diag.trace import Entry, follow

PORT = 7000
MACS = {1: "02:00:00:00:01:07", 2: "02:00:00:00:02:07"}
# What may be wrong, on either node. The first are nothing: some worlds shall work.
HARM = (
    *(("true",) * 6),
    "sysctl -qw net.ipv4.ip_forward=0",
    "ip link set cni0 down",
    "ip link set flannel.1 down",
    "ip link set eth0 down",
    "ip route delete 10.244.0.0/16 via 10.244.{other}.0",
    "ip route add blackhole 10.244.{other}.2/32",
    "ip route add 10.244.{other}.0/25 via 192.168.0.{other} dev eth0",
    "ip route add 10.244.{own}.2/32 dev eth0",
    "ip neigh delete 10.244.{other}.0 dev flannel.1",
    "bridge fdb delete {mac} dev flannel.1 dst 192.168.0.{other} self",
    "nft 'add chain inet t f {{ policy drop; }}'",
    "nft add rule inet t f ip saddr 10.244.1.0/24 udp dport 7000 drop",
    "nft add rule inet t f udp dport 7000 accept; nft 'add chain inet t f {{ policy drop; }}'",
    "nft add rule inet t f oifname flannel.1 ip daddr 10.244.2.2 reject",
    "nft add rule inet t i udp dport 8472 drop",
    "nft add rule inet t i ip saddr 192.168.0.{other} tcp dport 8472 drop",
)  # fmt: skip


class World:
    """Two nodes with a pod each."""

    def __init__(self, make_netns: Callable[[], Netns], folder: Path) -> None:
        self.folder = folder
        self.nodes = {1: make_netns(), 2: make_netns()}
        self.pods = {1: make_netns(), 2: make_netns()}
        wire(self.nodes[1], self.nodes[2])
        for own, other in ((1, 2), (2, 1)):
            self._settle(own, other)

    def _settle(self, own: int, other: int) -> None:
        node, pod = self.nodes[own], self.pods[own]
        wire(node, pod, names=("veth0", "eth0"))
        node.run(
            f"ip address add 192.168.0.{own}/24 dev eth0; ip link add cni0 type bridge; ip link set veth0 master cni0;"
            f"ip address add 10.244.{own}.1/24 dev cni0; ip link set cni0 up;"
            f"ip link add flannel.1 address {MACS[own]} type vxlan id 1 dstport 8472 local 192.168.0.{own} dev eth0"
            f" nolearning; ip address add 10.244.{own}.0/32 dev flannel.1; ip link set flannel.1 up;"
            "sysctl -qw net.ipv4.ip_forward=1;"
            f"ip route add 10.244.0.0/16 via 10.244.{other}.0 dev flannel.1 onlink;"
            f"ip neigh add 10.244.{other}.0 lladdr {MACS[other]} dev flannel.1 nud permanent;"
            f"bridge fdb add {MACS[other]} dev flannel.1 dst 192.168.0.{other} self permanent;"
            "nft add table inet t; nft 'add chain inet t f { type filter hook forward priority 0; }';"
            "nft 'add chain inet t i { type filter hook input priority 0; }'"
        )
        pod.run(f"ip address add 10.244.{own}.2/24 dev eth0; ip route add default via 10.244.{own}.1")
        env = (
            f"FLANNEL_NETWORK=10.244.0.0/15\nFLANNEL_SUBNET=10.244.{own}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
        )
        (self.folder / f"{own}.env").write_text(env)

    def harm(self, number: int, what: str) -> None:
        other = 3 - number
        self.nodes[number].run(what.format(own=number, other=other, mac=MACS[other]), check=False)

    def predicted(self) -> bool | None:
        """Whether a datagram from the pod of node 1 to that of node 2 arrives."""
        packet = Packet(
            source=ip_address("10.244.1.2"),
            target=ip_address("10.244.2.2"),
            protocol="udp",
            source_port=5000,
            target_port=PORT,
        )
        entry = Entry(kind="pod")
        for number, node in self.nodes.items():
            places = Places(subnet_file=self.folder / f"{number}.env", conf_dir=self.folder)
            sight = node.call(lambda places=places: look(places))
            assert not {"links", "routes", "rules", "settings"} & sight.unseen.keys(), sight.unseen
            way = follow(sight, packet, entry)
            if way.end == "undecided":
                return None
            if way.end == "dropped":
                return False
            entry = Entry(kind="remote", remote=ip_address("192.168.0.1"), wrapped=bool(way.carried))
        return way.end == "delivered"

    def arrives(self) -> bool:
        kind = (socket.AF_INET, socket.SOCK_DGRAM)
        with closing(self.pods[2].call(lambda: socket.socket(*kind))) as there:
            there.bind(("10.244.2.2", PORT))
            there.settimeout(0.1)
            with closing(self.pods[1].call(lambda: socket.socket(*kind))) as here:
                here.bind(("10.244.1.2", 5000))
                for _ in range(3):  # the first may wait for a neighbour
                    here.sendto(b"x", ("10.244.2.2", PORT))
                    try:
                        return bool(there.recv(9))
                    except TimeoutError:
                        continue
        return False


@pytest.mark.timeout(300)
def test_the_prediction_is_what_the_kernel_does(make_netns: Callable[[], Netns], tmp_path: Path):
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    rng, arrived = random.Random(seed), []
    for _ in range(12):
        world = World(make_netns, tmp_path)
        harms = [(rng.choice((1, 2)), rng.choice(HARM)) for _ in range(rng.choice((1, 1, 2, 3)))]
        for number, what in harms:
            world.harm(number, what)
        predicted = world.predicted()
        assert predicted is world.arrives(), harms
        arrived.append(predicted)
    assert set(arrived) == {True, False}
