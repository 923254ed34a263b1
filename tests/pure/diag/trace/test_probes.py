"""The probes of a lab, against scapy's packets: what is sent, and what is found in frames."""

from ipaddress import ip_address

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6PacketTooBig, IPv6
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from weft.diag.trace import probes
from weft.wire.icmp import marked, marked_request

PAIRS = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")]
NUMBERS = [0x0102030405060708, 0x010203040506070A]


def test_how_many_are_sent_and_no_number_is_the_next_ones():
    assert probes.numbers(7, 1) == [7, 9, 11]
    assert [len(probes.numbers(0, ends)) for ends in (0, 1, 2, 8, 100)] == [3, 3, 12, 48, 48]


def ip(source, target):
    return IPv6(src=source, dst=target) if ":" in source else IP(src=source, dst=target)


def wrapped(packet):
    """As on a link; and inside VXLAN on another one."""
    ethernet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")  # scapy asks the network for what is not told
    outer = ethernet / IP(src="172.31.0.11", dst="172.31.0.12") / UDP(dport=8472) / VXLAN(vni=1)
    return [bytes(ethernet / packet), bytes(outer / ethernet / packet)]


@pytest.mark.parametrize("source, target", PAIRS)
def test_a_syn_is_one_of_scapys(source, target):
    ours = probes.syn(NUMBERS[0], source=ip_address(source), target=ip_address(target), port=80)
    tcp = TCP(sport=probes.source_port(NUMBERS[0]), dport=80, flags="S", seq=0x05060708, window=1024)
    whole = ip(source, target) / tcp
    assert ours == bytes(whole)[-20:]


def answers(kind, source, target):
    """A packet with a probe's number, one with the answer, and one in which it is refused."""
    there, back = ip(source, target), ip(target, source)
    refusal = ICMPv6DestUnreach(code=4) if ":" in source else ICMP(type=3, code=3)
    number = NUMBERS[1]
    if kind == "tcp":
        ask = there / Raw(probes.syn(number, source=ip_address(source), target=ip_address(target), port=80))
        ask[type(there)].__setattr__("nh" if ":" in source else "proto", 6)
        return ask, back / TCP(sport=80, dport=4, flags="SA", ack=(number & 0xFFFFFFFF) + 1), back / refusal / ask
    if kind == "udp":
        ask = there / UDP(sport=5000, dport=53) / marked(number)
        return ask, back / UDP(sport=53, dport=5000) / marked(number), back / refusal / ask
    ask, answer = there, back
    if ":" in source:
        ask.nh = answer.nh = 58
        answer = answer / Raw(bytes([129, 0, 0, 0]) + marked_request(6, number)[4:])
        ask = ask / Raw(marked_request(6, number))
    else:
        ask.proto = answer.proto = 1
        answer = answer / Raw(bytes([0, 0, 0, 0]) + marked_request(4, number)[4:])
        ask = ask / Raw(marked_request(4, number))
    return ask, answer, back / refusal / ask


@pytest.mark.parametrize("source, target", PAIRS)
@pytest.mark.parametrize("kind", ["icmp", "udp", "tcp"])
def test_probes_and_answers_are_found_in_frames(kind, source, target):
    ask, answer, refused = answers(kind, source, target)
    for packet, is_answer in ((ask, False), (answer, True)):
        for frame in wrapped(packet):
            found = probes.find(frame, kind, NUMBERS, ports=(53,))
            assert found is not None
            assert (found.number, found.answer) == (NUMBERS[1], is_answer)
            assert found.target.endswith(ip_address(source if is_answer else target).packed)
            assert found.source == ip_address(target if is_answer else source).packed
            assert probes.find(frame, kind, [0x3A5B6C7D]) is None
    # Only a program's host itself says that nothing listens for datagrams.
    by_target = probes.Sighting(number=NUMBERS[1], answer=True, denies=True) if kind == "udp" else None
    assert {probes.find(frame, kind, NUMBERS) for frame in wrapped(refused)} == {by_target}
    refused.src = "fd00::9" if ":" in source else "10.0.0.9"
    assert {probes.find(frame, kind, NUMBERS) for frame in wrapped(refused)} == {None}


@pytest.mark.parametrize("source, target", PAIRS)
@pytest.mark.parametrize("kind", ["icmp", "udp"])
@pytest.mark.parametrize("quoted", [2000, 548])
def test_who_says_that_a_probe_is_too_large(kind, source, target, quoted):
    """As routers say it, who quote all of the packet, or as much as they must."""
    ask = bytes(answers(kind, source, target)[0]) + bytes(1400)
    by, six = ("fd00::9", True) if ":" in source else ("10.0.0.9", False)
    error = ICMPv6PacketTooBig(mtu=1380) if six else ICMP(type=3, code=4, nexthopmtu=1380)
    for frame in wrapped(ip(by, source) / error / Raw(ask[:quoted])):
        found = probes.find(frame, kind, NUMBERS, ports=(53,))
        assert found == probes.Sighting(number=NUMBERS[1], answer=False, mtu=1380, by=ip_address(by).packed)
    # Other errors name no MTU, even where other things stand in its place.
    other = ICMPv6DestUnreach(code=1) if six else ICMP(type=3, code=1, nexthopmtu=1380)
    for frame in wrapped(ip(by, source) / other / Raw(ask[:quoted])):
        assert probes.find(frame, kind, NUMBERS) is None


def test_a_datagram_of_a_size():
    assert marked(NUMBERS[0], size=99) == marked(NUMBERS[0]) + bytes(83)
    assert marked(NUMBERS[0], size=3) == marked(NUMBERS[0])


def test_behind_options_no_source_is_known():
    packet = IP(src="10.0.0.1", dst="10.0.0.2", proto=1, options=[IPOption(b"\x94\x04\x00\x00")])
    found = probes.find(bytes(packet / Raw(marked_request(4, NUMBERS[0]))), "icmp", NUMBERS)
    assert (found.number, found.source) == (NUMBERS[0], b"")


@pytest.mark.parametrize("source, target", PAIRS)
@pytest.mark.parametrize("flags, denies", [("SA", False), ("RA", True)])
def test_a_reset_says_that_nothing_listens(source, target, flags, denies):
    answer = ip(target, source) / TCP(sport=80, dport=4, flags=flags, ack=(NUMBERS[0] & 0xFFFFFFFF) + 1)
    for frame in wrapped(answer):
        found = probes.find(frame, "tcp", NUMBERS)
        assert found is not None
        assert (found.answer, found.denies) == (True, denies)


@pytest.mark.parametrize("kind", ["icmp", "udp", "tcp"])
def test_what_is_no_probe_is_none(kind):
    for frame in (
        b"",
        b"weft lab",
        b"12345678weft lab",
        bytes(64),
        NUMBERS[0].to_bytes(8),
        bytes(4) + b"\5\6\7\10" + bytes(9),
    ):
        assert probes.find(frame, kind, NUMBERS) is None
