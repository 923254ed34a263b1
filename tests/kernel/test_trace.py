"""What `weft trace` predicts in random worlds, against what the kernel does with a packet there, and its answer."""

import os
import random
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from ipaddress import ip_address
from pathlib import Path

from tests.support.netns import Netns, wire
from weft.diag.rules.matching import Packet
from weft.diag.sight.look import Places, look
from weft.diag.sight.node import Sight
from weft.diag.trace.predict import Entry, follow
from weft.kernel.icmp import never_fragment
from weft.model.value import replace

PORT = 7000
WORLDS = 16
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
    "ip route add blackhole 10.244.{own}.2/32",
    "ip route delete 10.244.{own}.0/24",
    "ip neigh delete 10.244.{other}.0 dev flannel.1",
    "bridge fdb delete {mac} dev flannel.1 dst 192.168.0.{other} self",
    "nft 'add chain inet t f {{ policy drop; }}'",
    "nft add rule inet t f ip saddr 10.244.1.0/24 udp dport 7000 drop",
    "nft add rule inet t f udp dport 7000 accept; nft 'add chain inet t f {{ policy drop; }}'",
    "nft add rule inet t f oifname flannel.1 ip daddr 10.244.2.2 reject",
    "nft add rule inet t i udp dport 8472 drop",
    "nft add rule inet t i ip saddr 192.168.0.{other} tcp dport 8472 drop",
)  # fmt: skip


SIZE = 700
# What is too narrow for packets of that size, or just not, on either node.
NARROW = (
    "true",
    f"ip link set {{device}} mtu {SIZE}",
    f"ip link set {{device}} mtu {SIZE - 1}",
    f"ip route replace 10.244.0.0/16 via 10.244.{{other}}.0 dev flannel.1 onlink mtu {SIZE - 1}",
    f"ip route replace 10.244.0.0/16 via 10.244.{{other}}.0 dev flannel.1 onlink mtu {SIZE}",
    f"nft add rule inet t f meta length \\> {SIZE - 1} drop",
    f"nft add rule inet t f meta length \\> {SIZE} drop",
    f"nft add rule inet t i udp dport 8472 meta length {SIZE + 50} drop",
    f"ip link set eth0 mtu {SIZE + 50}",
)


# To where the pod of node 1 sends: to that of node 2, or to an address that node 1 translates into it.
DIRECT, SERVICE = ("10.244.2.2", PORT), ("10.96.0.9", 7001)
NAT = "type nat hook prerouting priority"
TO_POD = "dnat to 10.244.2.2:7000"
SERVICES = (
    # Each for itself: by rule, by maps as kube-proxy's and as portmap's, by iptables as kube-proxy's.
    f"nft 'add chain ip n p {{ {NAT} -100; }}'; nft add rule ip n p ip daddr 10.96.0.9 udp dport 7001 {TO_POD}",
    f"""nft -f - <<E
    table ip n {{
      chain mark {{
        meta mark set meta mark | 0x4000
      }}
      chain end {{
        ip saddr 10.244.1.2 jump mark
        udp dport 7001 {TO_POD}
      }}
      chain s {{
        numgen random mod 2 vmap {{ 0 : goto end, 1 : goto end }}
      }}
      map m {{ type ipv4_addr . inet_proto . inet_service : verdict
        elements = {{ 10.96.0.9 . udp . 7001 : goto s }}
      }}
      chain p {{ {NAT} -100;
        ip daddr . meta l4proto . th dport vmap @m
      }}
      chain q {{ type nat hook postrouting priority 90;
        meta mark & 0x4000 == 0 return
        meta mark set meta mark ^ 0x4000
        masquerade
      }}
    }}
E""",
    f"""nft -f - <<E
    table ip n {{
      map m {{ type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
        elements = {{ 10.96.0.9 . udp . 7001 comment "c" : 10.244.2.2 . 7000 }}
      }}
      chain ports {{
        meta mark set meta mark | 0x1000
        meta l4proto {{ tcp, udp }} dnat ip to ip daddr . meta l4proto . th dport map @m
        meta mark set meta mark & 0xffffefff
      }}
      chain p {{ {NAT} -90;
        fib daddr type != local jump ports
      }}
    }}
E""",
    ("iptables -t nat -N SVC; iptables -t nat -N SEP; iptables -t nat -N MARK-MASQ; iptables -t nat -N MASQ;"
    "iptables -t nat -A MARK-MASQ -j MARK --set-xmark 0x4000/0x4000;"
    "iptables -t nat -A SEP -s 10.244.1.2/32 -j MARK-MASQ;"
    "iptables -t nat -A SEP -p udp -m udp -j DNAT --to-destination 10.244.2.2:7000;"
    "iptables -t nat -A SVC -m statistic --mode random --probability 0.5 -j SEP; iptables -t nat -A SVC -j SEP;"
    "iptables -t nat -A PREROUTING -d 10.96.0.9/32 -p udp -m udp --dport 7001 -j SVC;"
    "iptables -t nat -A MASQ -m mark ! --mark 0x4000/0x4000 -j RETURN;"
    "iptables -t nat -A MASQ -j MARK --set-xmark 0x4000/0x0; iptables -t nat -A MASQ -j MASQUERADE;"
    "iptables -t nat -A POSTROUTING -j MASQ"),
    # Two that differ, of one priority and of two.
    (f"nft 'add chain ip n p {{ {NAT} -100; }}'; nft add rule ip n p ip daddr 10.96.0.9 {TO_POD.replace(':7000', '')};"
    f"nft 'add chain ip n r {{ {NAT} -100; }}'; nft add rule ip n r ip daddr 10.96.0.9 udp dport 7001 {TO_POD}"),
    (f"nft 'add chain ip n p {{ {NAT} -101; }}'; nft add rule ip n p ip daddr 10.96.0.9 accept;"
    f"nft 'add chain ip n r {{ {NAT} -100; }}'; nft add rule ip n r ip daddr 10.96.0.9 udp dport 7001 {TO_POD}"),
    # Ones that do not do.
    f"nft 'add chain ip n p {{ {NAT} -100; }}'; nft add rule ip n p ip daddr 10.96.0.9 tcp dport 7001 {TO_POD}",
    (f"nft 'add chain ip n p {{ {NAT} -100; }}'; nft add rule ip n p ip daddr 10.96.0.9 udp dport 7001 return;"
    f"nft add rule ip n p ip daddr 10.96.0.9 udp dport 7001 {TO_POD}"),
    f"nft 'add chain ip n p {{ {NAT} -100; }}'; nft add rule ip n p udp dport 7001 dnat to 10.244.2.9",
)  # fmt: skip
# What may be translated and chosen beside, on node 1.
BESIDE = (
    *(("true",) * 4),
    "nft 'add chain ip n o { type nat hook postrouting priority 100; }'; nft add rule ip n o oif flannel.1 masquerade",
    "nft 'add chain ip n o { type nat hook postrouting priority 100; }'; nft add rule ip n o snat to 10.244.1.1",
    ("ip rule add from 10.244.1.0/24 table 100 priority 100;"
    "ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink table 100"),
    "ip rule add to 10.244.2.0/24 priority 90 prohibit",
    "ip rule add to 10.96.0.9 priority 90 prohibit",
    "ip rule add iif cni0 table 101 priority 80; ip route add blackhole 10.244.0.0/15 table 101",
    "ip rule add iif lo priority 80 prohibit; ip rule add oif eth0 priority 81 prohibit",
    ("ip rule add not from 10.244.9.0/24 table 102 priority 70; ip route add throw 10.244.0.0/16 table 102;"
    "ip route add blackhole default table 102"),
    "ip rule add fwmark 0x4000/0x4000 table 103 priority 60; ip route add unreachable default table 103",
    "ip rule add ipproto udp table 104 priority 50; ip route add blackhole default table 104",
    "ip route add default via 192.168.0.2; ip rule add from all table 105 priority 40",
)  # fmt: skip


class World:
    """Two nodes with a pod each. The pod of node 1 sends to `target`."""

    target, size = DIRECT, 0

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
            "nft add table ip n; nft add table inet t;"
            "nft 'add chain inet t f { type filter hook forward priority 0; }';"
            "nft 'add chain inet t i { type filter hook input priority 0; }'"
        )
        pod.run(f"ip address add 10.244.{own}.2/24 dev eth0; ip route add default via 10.244.{own}.1")
        env = (
            f"FLANNEL_NETWORK=10.244.0.0/15\nFLANNEL_SUBNET=10.244.{own}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
        )
        (self.folder / f"{own}.env").write_text(env)

    def harm(self, number: int, what: str) -> None:
        other = 3 - number
        device = "flannel.1" if number == 1 else "cni0"
        text = what.format(own=number, other=other, mac=MACS[other], device=device) if what in HARM + NARROW else what
        self.nodes[number].run(text, check=False)

    def packet(self, source: str, target: str, ports: tuple[int, int], state: str = "new") -> Packet:
        return Packet(
            source=ip_address(source),
            target=ip_address(target),
            protocol="udp",
            source_port=ports[0],
            target_port=ports[1],
            state=state,
        )

    def sight(self, number: int) -> Sight:
        places = Places(subnet_file=self.folder / f"{number}.env", conf_dir=self.folder)
        sight = self.nodes[number].call(lambda: look(places))
        assert not {"links", "routes", "rules", "settings"} & sight.unseen.keys(), sight.unseen
        return sight

    def predicted(self) -> tuple[str, bool] | None:
        """From where a datagram of the pod of node 1 comes to that of node 2, "" if not; and whether it is answered."""
        sights = {number: self.sight(number) for number in self.nodes}
        packet, entry = self.packet("10.244.1.2", self.target[0], (5000, self.target[1])), Entry(kind="pod")
        packet = replace(packet, size=self.size)
        came = {}
        for number, sight in sights.items():
            came[number] = packet
            way = follow(sight, packet, entry)
            if way.end == "undecided":
                return None
            if way.end == "dropped":
                return "", False
            assert way.packet is not None
            packet = self.packet(way.packet.source, way.packet.target, (way.packet.source_port, way.packet.target_port))
            packet = replace(packet, size=self.size)
            entry = Entry(kind="remote", remote=ip_address("192.168.0.1"), wrapped=bool(way.carried))
        if way.end != "delivered" or str(packet.target) != "10.244.2.2" or packet.target_port != PORT:
            return "", False
        seen, entry = str(packet.source), Entry(kind="pod")
        for number in (2, 1):
            answer = self.packet(
                str(packet.target), str(packet.source), (packet.target_port, packet.source_port), "established"
            )
            way = follow(sights[number], answer, entry, original=came[number])
            if way.end == "undecided":
                return None
            if way.end == "dropped":
                return seen, False
            packet, entry = (
                came[number],
                Entry(kind="remote", remote=ip_address("192.168.0.2"), wrapped=bool(way.carried)),
            )
        return seen, way.end == "delivered"

    def happens(self) -> tuple[str, bool]:
        """The same, tried."""
        kind = (socket.AF_INET, socket.SOCK_DGRAM)
        with closing(self.pods[2].call(lambda: socket.socket(*kind))) as there:
            there.bind(("10.244.2.2", PORT))
            there.settimeout(0.1)
            with closing(self.pods[1].call(lambda: socket.socket(*kind))) as here:
                here.bind(("10.244.1.2", 5000))
                here.settimeout(0.1)
                if self.size:
                    never_fragment(here, 4)
                for _ in range(3):  # the first may wait for a neighbour
                    here.sendto(bytes(max(1, self.size - 28)), self.target)
                    try:
                        _, sender = there.recvfrom(SIZE)
                        there.sendto(b"y", sender)
                    except TimeoutError:
                        continue
                    try:
                        return sender[0], here.recvfrom(9)[1] == self.target
                    except TimeoutError:
                        there.sendto(b"y", sender)
                        with suppress(TimeoutError):
                            return sender[0], here.recvfrom(9)[1] == self.target
                        return sender[0], False
        return "", False


def test_the_prediction_is_what_the_kernel_does(make_netns: Callable[[], Netns], tmp_path: Path):
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    rng, seen = random.Random(seed), []
    for _ in range(WORLDS):
        world = World(make_netns, tmp_path)
        made = [(rng.choice((1, 2)), rng.choice(HARM)) for _ in range(rng.choice((0, 1, 1, 2)))]
        if rng.random() < 0.6:
            world.target = SERVICE
            made.append((1, rng.choice(SERVICES)))
        made += [(1, rng.choice(BESIDE)) for _ in range(rng.choice((0, 1, 2)))]
        if rng.random() < 0.5:
            world.size = SIZE
            made.append((rng.choice((1, 2)), rng.choice(NARROW)))
        for number, what in made:
            world.harm(number, what)
        predicted = world.predicted()
        if predicted is not None:
            happens = world.happens()
            assert predicted == happens, f"trace is wrong: {predicted} is predicted, and {happens} happens: {made}"
        seen.append(predicted)
    assert {None if each is None else bool(each[0]) for each in seen} >= {True, False}
    assert seen.count(None) < WORLDS / 3
