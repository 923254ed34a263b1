"""Echo requests, against scapy's."""

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6

from weft.wire.icmp import NO_NUMBER, REPLY, behind_ip, echo_request, marked_request, read_marked


@pytest.mark.parametrize("number", [0, 1, 0x0102030405060708, (1 << 64) - 1, 0xFFFE_0001, 0xF0F0_F0F1_0E0E])
def test_a_probe_is_an_echo_request_with_a_mark_and_its_number(number: int):
    data = b"weft lab" + number.to_bytes(8)
    ours = marked_request(4, number)
    assert ours == bytes(ICMP(type=8, code=0, id=number & 0xFFFF, seq=1) / data)
    # The kernel adds the checksum of ICMPv6.
    six = bytes(ICMPv6EchoRequest(id=number & 0xFFFF, seq=1, cksum=0, data=data))
    assert marked_request(6, number)[:2] + marked_request(6, number)[4:] == six[:2] + six[4:]
    assert marked_request(6, number)[2:4] == b"\0\0"


@pytest.mark.parametrize("size", [0, 1, 36, 1423])
def test_an_echo_request_may_carry_any_bytes(size: int):
    data = (bytes(range(256)) * 6)[:size]
    assert echo_request(4, 0xFFFF, 2, data) == bytes(ICMP(type=8, id=0xFFFF, seq=2) / data)


def test_a_larger_one_is_filled_with_zeros():
    assert len(marked_request(4, 7, size=100)) == len(marked_request(6, 7, size=100)) == 100
    assert marked_request(4, 7, size=100).rstrip(b"\0") == marked_request(4, 7)


def test_a_number_is_read_from_marked_requests_and_answers_alone():
    asked = marked_request(4, 7)
    for header in (bytes(IP(src="10.0.0.1", dst="10.0.0.2", proto=1)), b"\x47" + bytes(27)):  # the second has options
        assert read_marked(4, header + asked) == (8, 7)
    answer = bytes(IPv6() / ICMPv6EchoReply(data=marked_request(6, 9)[8:]))
    assert read_marked(6, behind_ip(6, answer)) == (REPLY[6], 9)
    assert read_marked(6, echo_request(6, 1, 1, bytes(16))) == (128, NO_NUMBER)
    assert read_marked(6, asked[:-1]) == (8, NO_NUMBER)
    assert read_marked(6, b"") == (0, NO_NUMBER)
    assert behind_ip(4, b"") == b""
