"""Whose packets were dropped, in which words, and how much of it is told."""

import socket
from ipaddress import ip_address
from struct import pack
from typing import Final

import pytest

from tests.pure.diag.doctor.sights import WELL
from weft.diag.drops.loss import OTHERS, Loss, Whose, losses_of, together, told
from weft.diag.drops.packets import found_in
from weft.diag.reasons import BY_COUNTER, BY_WORD, of_counter
from weft.model.errors import Problem
from weft.model.kernel.dropped import Drop
from weft.model.value import replace
from weft.screen.say import PAGE

WHOSE: Final = Whose(WELL)
POD, PEERS_POD, NODE, PEER = "10.244.1.2", "10.244.2.3", "192.168.0.1", "192.168.0.2"
ECHO = b"\x08" + bytes(7)


def ip(source: str, target: str, protocol: int = 1, body: bytes = ECHO) -> bytes:
    ends = ip_address(source).packed + ip_address(target).packed
    if ":" in source:
        return b"\x60" + bytes(5) + bytes([protocol, 64]) + ends + body
    return b"\x45" + bytes(8) + bytes([protocol]) + bytes(2) + ends + body


def udp(port: int, body: bytes = b"") -> bytes:
    return pack("!HHHH", 40000, port, 8 + len(body), 0) + body


def framed(packet: bytes) -> bytes:
    return bytes(12) + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


def drop(packet: bytes, *, reason: str = "NETFILTER_DROP", device: str = "eth0", bare: bool = False) -> Drop:
    protocol = 0x0800 if packet[:1] and packet[0] >> 4 == 4 else 0x86DD
    frame = packet if bare else bytes(12) + protocol.to_bytes(2, "big") + packet
    return Drop(reason=reason, function="nf_hook_slow", device=device, protocol=protocol, frame=frame)


def loss(of: Drop, problem: Problem | None = None) -> Loss:
    [found] = told([of], WHOSE, lambda _: problem)
    return found


def wrapped(inner: bytes, port: int = 8472) -> bytes:
    return ip(PEER, NODE, socket.IPPROTO_UDP, udp(port, bytes(8) + inner))


def test_a_pods_packet_is_named_with_its_pod_its_peer_and_the_kernels_reason():
    found = loss(drop(ip(POD, PEERS_POD)))
    assert (found.source, found.target, found.protocol, found.port) == (POD, PEERS_POD, "icmp", 0)
    assert (found.pod, found.peer, found.code) == ("web", PEER, "FW-002")
    assert str(found) == (
        f"FW-002 1 packet icmp {POD} to {PEERS_POD}, pod web, peer {PEER}, at eth0:"
        " NETFILTER_DROP in nf_hook_slow: a rule of the packet filter drops them"
    )


@pytest.mark.parametrize("bare", [True, False])
def test_a_link_may_have_no_headers_of_its_own(bare: bool):
    found = loss(drop(ip(PEERS_POD, POD, 6, udp(80)), bare=bare))
    assert (found.protocol, found.port, found.pod) == ("tcp", 80, "web")


def test_what_is_carried_between_nodes_is_told_as_the_pods_packet():
    found = loss(drop(wrapped(framed(ip(PEERS_POD, POD)))))
    assert (found.source, found.target, found.carrier, found.peer) == (PEERS_POD, POD, f"{PEER} to {NODE}", PEER)
    assert f", in {PEER} to {NODE}, " in str(found)
    plain = loss(drop(ip(PEER, NODE, 4, ip(PEERS_POD, POD))))
    assert (plain.source, plain.carrier) == (PEERS_POD, f"{PEER} to {NODE}")
    six = found_in(drop(ip(PEER, NODE, 41, ip("fd00::1", "fd00::2", 58))), [])
    assert six is not None
    assert (str(six.packet.source), six.packet.protocol) == ("fd00::1", "ipv6-icmp")


@pytest.mark.parametrize("inner", [b"", bytes(12) + b"\x08\x06" + bytes(28), framed(ip(POD, PEERS_POD))[:20]])
def test_a_carrier_whose_inside_cannot_be_read_is_told_itself(inner: bytes):
    found = loss(drop(wrapped(inner)))
    assert (found.source, found.target, found.port, found.peer, found.pod) == (PEER, NODE, 8472, PEER, "")


NEIGHBOURS = ip("fd00::1", "fd00::2", 58, b"\x87" + bytes(7))


@pytest.mark.parametrize(
    "packet",
    [b"", b"\x45", b"\x55" + bytes(40), NEIGHBOURS, ip(POD, "224.0.0.1"), ip("fe80::1", "fe80::2", 58)],
)
def test_what_is_no_packet_between_two_is_not_told(packet: bytes):
    assert found_in(drop(packet), [8472]) is None


@pytest.mark.parametrize("reason, is_lost", [("NO_SOCKET", False), ("NOT_SPECIFIED", False), ("ICMP_CSUM", True)])
def test_an_answer_to_a_ping_that_has_arrived_is_not_told(reason: str, is_lost: bool):
    """Debian 12's kernel tells of each; tests/vm/scenarios_drops.py."""
    ended = replace(drop(ip(PEERS_POD, POD)), function="icmp_rcv", reason=reason)
    assert (found_in(ended, []) is not None) is is_lost


def test_of_other_protocols_and_networks_nothing_is_told():
    others = replace(drop(ip(POD, PEERS_POD)), protocol=0x0806), drop(ip(PEER, NODE, socket.IPPROTO_UDP, udp(53)))
    assert told(others, WHOSE, lambda _: None) == []


def test_what_the_kernel_does_not_name_says_where_at_least():
    found = loss(drop(ip(POD, PEERS_POD), reason=""))
    assert (found.reason, found.code, found.words) == ("NOT_SPECIFIED", "", "")
    assert str(found).endswith("NOT_SPECIFIED in nf_hook_slow")


def test_what_is_foretold_names_the_rule():
    problem = Problem("ROUTE-003", "node1", "route blackhole 10.244.2.0/24 drops them")
    found = loss(drop(ip(POD, PEERS_POD), reason=""), problem)
    assert found.code == "ROUTE-003"
    assert str(found).endswith(": node1: route blackhole 10.244.2.0/24 drops them (foretold)")


@pytest.mark.parametrize("foretold, code", [("FW-001", "FW-001"), ("ROUTE-003", "FW-002")])
def test_what_is_foretold_has_the_code_where_it_is_of_the_kernels_kind_of_cause(foretold: str, code: str):
    assert loss(drop(ip(POD, PEERS_POD)), Problem(foretold, "node1", "it drops them")).code == code


def test_a_flood_of_new_addresses_makes_no_more_work_than_is_shown():
    asked = []
    flood = [drop(ip(POD, f"10.244.{high}.{low}", 6, udp(80))) for high in range(8) for low in range(1, 251)]
    often = [drop(ip(POD, PEERS_POD, 6, pack("!HH", port, 443) + bytes(4))) for port in range(1000, 1050)]
    found = told([*flood, *often], WHOSE, asked.append)
    assert (len(found), len(asked)) == (21, 20)
    assert (found[0].target, found[0].port, found[0].count) == (PEERS_POD, 443, 50)
    assert found[-1] == replace(OTHERS, count=2000 - 19)


def test_a_pod_that_no_runtime_knows_is_named_by_its_address():
    nameless = Whose(replace(WELL, attached=()))
    assert nameless.pod(ip_address(PEER), ip_address(POD)) == POD
    assert nameless.pod_at("veth1") == POD
    assert WHOSE.pod_at("veth1") == "web"
    unnamed = replace(WELL.attached[0], pod="", container="c" * 64, hosts=("veth1",))
    assert Whose(replace(WELL, attached=(unnamed,))).pod_at("veth1") == "c" * 12
    assert WHOSE.pod(ip_address(PEER)) == WHOSE.pod_at("eth0") == ""


def test_counters_say_why_or_at_which_link():
    grown = {
        "IpExt.InNoRoutes": 3,
        "XfrmInTmplMismatch": 1,
        "Queue.tbf.veth1": 4,
        "Queue.clsact.eth0": 5,
        "Link.rx.veth1": 6,
        "Link.tx.eth0.7": 7,
        "Ip.InReceives": 9,
    }
    found = {each.reason: each for each in losses_of(grown, WHOSE)}
    assert {name: (each.code, each.count, each.device, each.pod) for name, each in found.items()} == {
        "IpExt.InNoRoutes": ("ROUTE-003", 3, "", ""),
        "XfrmInTmplMismatch": ("XFRM-001", 1, "", ""),
        "Queue.tbf.veth1": ("QDISC-001", 4, "veth1", "web"),
        "Queue.clsact.eth0": ("PROG-001", 5, "eth0", ""),
        "Link.rx.veth1": ("", 6, "veth1", "web"),
        "Link.tx.eth0.7": ("", 7, "eth0.7", ""),
    }
    assert "of all packets of this node" in found["IpExt.InNoRoutes"].words
    assert found["Link.tx.eth0.7"].words == "the link has dropped what was to leave by it, and does not say why"


def test_what_is_alike_is_one_and_of_too_many_there_is_a_number():
    same = Loss(reason="NETFILTER_DROP", source=POD, target=PEERS_POD)
    assert together([same, replace(same, port=80), same]) == [replace(same, count=2), replace(same, port=80)]
    many = together([replace(same, port=port) for port in range(30) for _ in range(2)])
    assert len(many) == 21
    assert str(many[-1]) == "20 packets: other kinds"
    assert together([*many, *many])[-1] == replace(OTHERS, count=40)
    assert together([]) == []


def test_each_code_of_a_reason_has_a_page():
    page = PAGE.read_text(encoding="utf-8")
    codes = {each.code for each in (*BY_COUNTER.values(), *BY_WORD.values())}
    assert {code for code in codes if f"### {code}\n" not in page} == set()
    assert of_counter("Udp.InDatagrams") is None
