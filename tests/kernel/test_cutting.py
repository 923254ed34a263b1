"""Connections that are open, in a real kernel: which are cut, which stay, and that answers do not bring them back."""

import socket
from ipaddress import ip_address
from itertools import islice

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.sctp import SCTP, SCTPChunkInit

from tests.support.netns import Netns
from weft.kernel.netfilter.conntrack import connections
from weft.kernel.netfilter.cutting import cut, reopen
from weft.kernel.netfilter.nfnetlink import NfSocket

SET = "size 65536; flags dynamic,timeout; timeout 3h;"
RULES = f"""
add table inet weft-policy
add set inet weft-policy cut4 {{ type ipv4_addr . ipv4_addr . inet_proto . inet_service . inet_service; {SET} }}
add set inet weft-policy cut6 {{ type ipv6_addr . ipv6_addr . inet_proto . inet_service . inet_service; {SET} }}
add table inet t
add chain inet t o {{ type nat hook output priority -100; }}
add rule inet t o ip daddr 10.96.0.1 tcp dport 80 dnat ip to 10.1.1.9:8080
add rule inet t o ct state new accept
add chain inet t i {{ type filter hook input priority 0; policy drop; }}
"""
OWN = {4: "10.1.1.9", 6: "fd00::9"}
SOURCE = {4: "10.2.0.1", 6: "fd00:2::1"}


@pytest.fixture
def nf(netns: Netns) -> NfSocket:
    netns.run("ip addr add 10.1.1.9/32 dev lo; ip addr add fd00::9/128 dev lo nodad; ip route add default dev lo")
    netns.run(["nft", "-f", "-"], input=RULES)
    sock = netns.call(NfSocket.open)
    netns.closing.callback(sock.close)
    return sock


def begin(netns: Netns, *packets: IP | IPv6) -> None:
    """As if they were first packets that this node sends on, from whatever address."""

    def inside() -> None:
        for each in packets:
            family, level = (socket.AF_INET, socket.IPPROTO_IP) if each.version == 4 else (socket.AF_INET6, 41)
            with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
                sock.setsockopt(level, 3 if each.version == 4 else 36, 1)  # IP_HDRINCL, IPV6_HDRINCL
                sock.sendto(bytes(each), (each.dst, 0))

    netns.call(inside)


def packet(family: int, body: object, source: str = "") -> IP | IPv6:
    head = IP if family == 4 else IPv6
    return head(src=source or SOURCE[family], dst=OWN[family]) / body


def seen(nf: NfSocket, family: int) -> list[tuple[str, str, int, int, int]]:
    found = connections(nf, family)
    return sorted((str(ip_address(each.source)), str(ip_address(each.target)), *each[2:5]) for each in found)


@pytest.mark.parametrize("family", [4, 6])
def test_each_protocol_is_seen_with_its_ends_and_ports(netns, nf, family):
    echo = ICMP(id=7) if family == 4 else ICMPv6EchoRequest(id=7)
    bodies = TCP(sport=1000, dport=80, flags="S"), UDP(sport=1000, dport=53), echo
    begin(netns, *(packet(family, body) for body in bodies))
    begin(netns, packet(family, SCTP(sport=1000, dport=90) / SCTPChunkInit(init_tag=1)))
    ends = SOURCE[family], OWN[family]
    kinds = [(6, 1000, 80), (17, 1000, 53), (132, 1000, 90), (1 if family == 4 else 58, 0, 0)]
    assert seen(nf, family) == sorted((*ends, *each) for each in kinds)
    assert seen(nf, 10 - family) == []


def test_the_target_is_the_one_behind_dnat(netns, nf):
    begin(netns, IP(src="10.2.0.1", dst="10.96.0.1") / TCP(sport=1000, dport=80, flags="S"))
    assert seen(nf, 4) == [("10.2.0.1", "10.1.1.9", 6, 1000, 8080)]


@pytest.mark.parametrize("family", [4, 6])
def test_what_is_forbidden_goes_its_answers_are_shut_and_all_others_stay(netns, nf, family):
    begin(netns, *(packet(family, UDP(sport=1000, dport=port)) for port in (53, 54)))
    begin(netns, packet(family, UDP(sport=1000, dport=53), "10.2.0.2" if family == 4 else "fd00:2::2"))
    source = ip_address(SOURCE[family]).packed
    gone = cut(nf, lambda sender, _target, _protocol, port: (sender, port) == (source, 53), None)
    assert gone == 1
    assert len(seen(nf, family)) == 2
    shut = netns.run(f"nft -n list set inet weft-policy cut{family}")
    assert f"{OWN[family]} . {SOURCE[family]} . 17 . 53 . 1000" in shut
    again = packet(family, UDP(sport=1000, dport=53))
    begin(netns, again)
    assert cut(nf, lambda *_: True, {source}) == 2, "what is shut already hinders nothing"
    assert len(seen(nf, family)) == 1


@pytest.mark.parametrize("family", [4, 6])
def test_answers_pass_again_where_their_connection_is_allowed(netns, nf, family):
    begin(netns, *(packet(family, UDP(sport=1000, dport=port)) for port in (53, 54)))
    assert cut(nf, lambda *_: True, None) == 2
    assert reopen(nf, lambda *_: True) == 2
    asked = list[tuple[bytes, bytes, int, int]]()
    assert reopen(nf, lambda *ends: bool(asked.append(ends)) or ends[3] == 54) == 1
    ends = ip_address(SOURCE[family]).packed, ip_address(OWN[family]).packed
    assert sorted(asked) == [(*ends, 17, 53), (*ends, 17, 54)]
    shut = netns.run(f"nft -n list set inet weft-policy cut{family}")
    assert " 17 . 54 . 1000" in shut
    assert " 17 . 53 . 1000" not in shut


def test_what_both_ends_have_closed_takes_no_room(netns, nf):
    """A pod may have left ten thousands of these."""

    def over() -> int:
        with socket.create_server((OWN[4], 0)) as server:
            with socket.create_connection(server.getsockname()) as client:
                accepted, _ = server.accept()
                client.shutdown(socket.SHUT_WR)
                accepted.close()
            return server.getsockname()[1]

    netns.run("nft add rule inet t i iifname lo ct state new,established accept")
    port = netns.call(over)
    assert [each.target_port for each in connections(nf, 4)] == [port]
    assert cut(nf, lambda *_: True, None) == 1
    assert reopen(nf, lambda *_: True) == 0


def test_only_connections_of_the_addresses_that_are_concerned_are_asked_about(netns, nf):
    sources = [f"10.2.0.{last}" for last in range(1, 9)]
    begin(netns, *(packet(4, UDP(sport=1000, dport=53), each) for each in sources))
    asked = list[bytes]()
    assert cut(nf, lambda sender, *_: bool(asked.append(sender)), {ip_address("10.2.0.3").packed}) == 0
    assert asked == [ip_address("10.2.0.3").packed]
    assert cut(nf, lambda *_: False, {ip_address(OWN[4]).packed}) == 0


def test_one_of_a_hundred_thousand(netns, nf):
    """One walk, in which nothing is kept but what is to go."""
    many = 100_000

    def inside() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
            head = bytearray(bytes(packet(4, UDP(sport=1000, dport=53))))
            for number in range(many):
                head[12:16] = (0x0A030000 + number % 50_000).to_bytes(4, "big")
                head[20:22] = (1000 + number // 50_000).to_bytes(2, "big")
                head[26:28] = b"\0\0"  # no checksum
                sock.sendto(head, (OWN[4], 0))

    netns.call(inside)
    assert sum(1 for _ in islice(connections(nf, 4), many + 1)) == many
    wanted = (0x0A030000 + 777).to_bytes(4, "big")
    assert cut(nf, lambda *_: True, {wanted}) == 2
    assert sum(1 for _ in connections(nf, 4)) == many - 2
