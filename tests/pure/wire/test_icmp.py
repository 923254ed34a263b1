"""The echo requests of `weft lab ping`, against scapy's echo requests."""

import pytest
from scapy.layers.inet import ICMP
from scapy.layers.inet6 import ICMPv6EchoRequest

from weft.wire.icmp import echo_request


@pytest.mark.parametrize("number", [0, 1, 0x0102030405060708, (1 << 64) - 1, 0xFFFE_0001, 0xF0F0_F0F1_0E0E])
def test_a_probe_is_an_echo_request_with_a_mark_and_its_number(number: int):
    data = b"weft lab" + number.to_bytes(8)
    ours = echo_request(4, number)
    assert ours == bytes(ICMP(type=8, code=0, id=number & 0xFFFF, seq=1) / data)
    # The kernel adds the checksum of ICMPv6.
    six = bytes(ICMPv6EchoRequest(id=number & 0xFFFF, seq=1, cksum=0, data=data))
    assert echo_request(6, number)[:2] + echo_request(6, number)[4:] == six[:2] + six[4:]
    assert echo_request(6, number)[2:4] == b"\0\0"
