"""A node in namespaces, with pods at the addresses that drawn worlds give, and all other addresses behind its uplink.

The pod in place N has the addresses of `worlds.pod`'s number N. Objects are put into the node's kernel in the order of
the daemon; packets are sent by those who have their sources, and it is seen which of them arrive. Each address of the
pod network has a Service (`service_of`), which the node translates as kube-proxy does.
"""

import asyncio
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import count

from tests.support.netns import Netns, wire
from tests.support.policy.packets import first_packet, number_of
from tests.support.policy.worlds import STRANGERS
from tests.support.waiting import looks
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netfilter.policies import PolicyTables
from weft.kernel.tools import Tools
from weft.model.kernel.objects import Key, Object
from weft.plan.diff import Delete, Put, diff

PLACES = 8
GATEWAYS = ("10.244.1.1", "fd00:244:0:1::1")
SERVICES = {"10.244.": "10.96.", "fd00:244:": "fd00:96:"}
ALL = 3  # ETH_P_ALL (linux/if_ether.h)
LATE = 0.05  # seconds for what is not to come

Flow = tuple[str, str, str, int]
_numbers = count(1)


def pod_ips(place: int, node: int = 1) -> tuple[str, str]:
    return f"10.244.{node}.{place + 2}", f"fd00:244:0:{node}::{place + 2:x}"


PLACE = {ip: place for place in range(PLACES) for ip in pod_ips(place)}
SERVED = [
    *PLACE,
    *(ip for place in range(PLACES) for ip in pod_ips(place, 2)),
    *(ip for ips in STRANGERS for ip in ips if ip.startswith(tuple(SERVICES))),
]


def service_of(ip: str) -> str:
    [(network, service)] = [each for each in SERVICES.items() if ip.startswith(each[0])]
    return service + ip.removeprefix(network)


class Site:
    """Pods on a bridge, or each on a link of its own (`ptp`)."""

    def __init__(self, links: str, stack: ExitStack) -> None:
        """`stack` is what it ends with."""
        self.links = links
        self.node, self.beyond, *self.pods = (stack.enter_context(Netns()) for _ in range(2 + PLACES))
        all_of = (self.node, self.beyond, *self.pods)
        for netns in all_of:
            netns.run(
                "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0"
                " net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.icmp_ratelimit=0"
            )
        self._outside()
        self._services()
        if links == "bridge":
            self.node.bridge("cni0", f"{GATEWAYS[0]}/24", f"{GATEWAYS[1]}/64")
        for place in range(PLACES):
            self._plug(place)
        self._senders = {id(netns): netns.call(_raws) for netns in all_of}
        self._sniffers = [netns.call(lambda: _sniffer("eth0")) for netns in all_of[1:]]
        for sock in (*self._sniffers, *(each for pair in self._senders.values() for each in pair)):
            stack.enter_context(sock)
        self._have: dict[Key, Object] = {}
        self._meet()

    def _outside(self) -> None:
        wire(self.node, self.beyond, names=("eth0", "eth0"))
        self.node.run("ip addr add 172.31.0.1/24 dev eth0; ip addr add fd31::1/64 dev eth0 nodad")
        self.beyond.run("ip addr add 172.31.0.2/24 dev eth0; ip addr add fd31::2/64 dev eth0 nodad")
        self.node.run("ip route add default via 172.31.0.2; ip -6 route add default via fd31::2")
        for net in ("10.244.0.0/16", "10.96.0.0/16", "fd00:244::/48", "fd00:96::/48"):
            self.beyond.run(f"ip route add {net} via {'fd31::1' if ':' in net else '172.31.0.1'}")
        for net in ("192.0.2.0/24", "10.244.2.0/24", "2001:db8::/32", "fd00:244:0:2::/64"):
            self.beyond.run(f"ip route add local {net} dev lo")

    def _services(self) -> None:
        lines = ["table inet services {"]
        lines.append("chain prerouting { type nat hook prerouting priority dstnat; policy accept;")
        for word, is_family in (("ip", lambda ip: ":" not in ip), ("ip6", lambda ip: ":" in ip)):
            pairs = ", ".join(f"{service_of(ip)} : {ip}" for ip in SERVED if is_family(ip))
            lines.append(f"dnat {word} to {word} daddr map {{ {pairs} }};")
        lines.append("}\nchain postrouting { type nat hook postrouting priority srcnat; policy accept;")
        for word, is_family in (("ip", lambda ip: ":" not in ip), ("ip6", lambda ip: ":" in ip)):
            pairs = ", ".join(f"{ip} . {ip}" for ip in PLACE if is_family(ip))
            lines.append(f"{word} saddr . {word} daddr {{ {pairs} }} masquerade;")
        self.node.run(["nft", "-f", "-"], input="\n".join((*lines, "}", "}", "")))

    def _plug(self, place: int) -> None:
        pod, port, (v4, v6) = self.pods[place], f"veth-pod{place}", pod_ips(place)
        at, _ = wire(self.node, pod, names=(port, "eth0"))
        if self.links == "bridge":
            bridge = self.node.rtnl.link("cni0")
            assert bridge is not None
            self.node.rtnl.set_link(at, master=bridge.index)
            self.node.run(f"bridge link set dev {port} hairpin on")  # as flannel's delegate has it
            pod.run(f"ip addr add {v4}/24 dev eth0; ip addr add {v6}/64 dev eth0 nodad")
        else:
            self.node.run(
                f"ip addr add {GATEWAYS[0]}/32 dev {port}; ip addr add {GATEWAYS[1]}/128 dev {port} nodad;"
                f"ip route add {v4}/32 dev {port}; ip -6 route add {v6}/128 dev {port}"
            )
            pod.run(f"ip addr add {v4}/32 dev eth0; ip addr add {v6}/128 dev eth0 nodad")
            pod.run(f"ip route add {GATEWAYS[0]} dev eth0; ip -6 route add {GATEWAYS[1]} dev eth0")
        pod.run(f"ip route add default via {GATEWAYS[0]}; ip -6 route add default via {GATEWAYS[1]}")

    def _meet(self) -> None:
        """Pass a packet between neighbours that have to ask for each other first: the kernel holds back few."""
        for v6 in (False, True):
            ends = [*(pod_ips(place)[v6] for place in range(PLACES)), STRANGERS[v6][0]]
            for source in ends:
                flows = [(source, target, "UDP", 9) for target in ends if target != source]
                assert all(self.arrive(flows, [True] * PLACES)), "the trial itself is not right"

    # Rules

    def hold(self, wanted: dict[Key, Object]) -> None:
        """Have the node's tables hold these objects, whatever they hold."""
        steps = diff(wanted, self._have)
        self._have = dict(wanted)

        async def apply() -> None:
            with closing(NfSocket.open()) as nf:
                tables = PolicyTables(nf, Tools())
                for kind in (Put, Delete):
                    refused = await tables.apply([step for step in steps if isinstance(step, kind)])
                    assert not refused, refused
                assert await tables.look(wanted) == wanted

        self.node.call(lambda: asyncio.run(apply()))

    # Packets

    def can_send(self, flow: Flow, *, service: bool) -> bool:
        """Tell whether the flow would pass the node, and its target would be seen to get it."""
        source, target, *_ = flow
        sender, receiver = self._at(source), self._at(target)
        if sender is None or receiver is None or (service and target not in SERVED):
            return False
        return service if source == target else sender is not receiver

    def _at(self, ip: str) -> Netns | None:
        if ip in PLACE:
            return self.pods[PLACE[ip]]
        return None if ip.startswith(("10.244.1.", "fd00:244:0:1:")) else self.beyond

    def arrive(
        self,
        flows: Sequence[Flow],
        expected: Sequence[bool],
        *,
        service: bool = False,
        seconds: float = 2,
        by: Netns | None = None,
    ) -> list[bool]:
        """Send the first packet of each flow; which of them have arrived. Those that are expected are waited for.

        All are sent `by` somebody, or each by who has its source.
        """
        numbers = {next(_numbers): flow for flow in flows}
        for number, (source, target, protocol, port) in numbers.items():
            to, at = service_of(target) if service else target, by or self._at(source)
            assert at is not None
            with suppress(PermissionError):  # what hook output refuses, its sender is told
                self._senders[id(at)][":" in source].sendto(first_packet(source, to, protocol, port, number), (to, 0))
        missing = {number for number, right in zip(numbers, expected, strict=True) if right}
        came: set[int] = set()
        for _ in looks(seconds):
            came |= self._seen()
            if missing <= came:
                break
        time.sleep(LATE)
        came |= self._seen()
        return [number in came for number in numbers]

    def _seen(self) -> set[int]:
        return {number for sniffer in self._sniffers for number in _heard(sniffer)}


def _raws() -> tuple[socket.socket, socket.socket]:
    """To send whole packets of IPv4, and of IPv6."""
    v4, v6 = (
        socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) for family in (socket.AF_INET, socket.AF_INET6)
    )
    return v4, v6


def _sniffer(link: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL))
    made.bind((link, ALL))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    made.setblocking(False)
    return made


def _heard(sniffer: socket.socket) -> Iterator[int]:
    """The numbers of the packets that came for this end itself."""
    with suppress(BlockingIOError):
        while True:
            packet, (_, _, kind, *_) = sniffer.recvfrom(4096)
            number = number_of(packet) if kind == socket.PACKET_HOST else None
            if number is not None:
                yield number
