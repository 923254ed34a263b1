"""The decoder and the writer of captures, against scapy's."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.utils import PcapNgReader

from weft.lab.commands import decode
from weft.lab.commands.pcapng import Writer

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
INNER = Ether(src=A, dst=B) / IP(src="10.244.1.2", dst="10.244.2.2", ttl=63) / ICMP(type=8)
FRAMES = {
    "ICMP": (INNER, ["Ethernet", "IPv4", "ICMP"], "echo request"),
    "VXLAN": (
        Ether() / IP(src="172.31.0.11", dst="172.31.0.12") / UDP(sport=4242, dport=8472) / VXLAN(vni=7) / INNER,
        ["Ethernet", "IPv4", "UDP", "VXLAN", "Ethernet", "IPv4", "ICMP"],
        "echo request",
    ),
    "IPv6": (
        Ether() / IPv6(src="fd00::1", dst="fd00::2") / ICMPv6EchoRequest(),
        ["Ethernet", "IPv6", "ICMPv6"],
        "echo request",
    ),
    "ARP": (
        Ether() / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2"),
        ["Ethernet", "ARP"],
        "who has 10.0.0.2? tell 10.0.0.1",
    ),
    "TCP": (
        Ether() / IP() / TCP(sport=1, dport=80, flags="SA", seq=9),
        ["Ethernet", "IPv4", "TCP"],
        "port 1 -> 80, SYN ACK, sequence 9",
    ),
    "UDP": (Ether() / IP() / UDP(sport=5, dport=53) / b"abc", ["Ethernet", "IPv4", "UDP", "data"], "3 bytes"),
    "padded": (Ether() / IP(len=28) / UDP(len=8) / (b"\0" * 18), ["Ethernet", "IPv4", "UDP"], "port 53 -> 53, 8 bytes"),
    "another type": (Ether(type=0x88CC) / b"xy", ["Ethernet", "data"], "2 bytes"),
}


@pytest.mark.parametrize("frame, names, last", FRAMES.values(), ids=FRAMES.keys())
def test_frames_are_taken_apart(frame, names, last):
    layers = decode.layers(bytes(frame))
    assert [layer.name for layer in layers] == names
    assert layers[-1].text == last


def test_what_a_tunnelled_frame_says():
    frame, _, _ = FRAMES["VXLAN"]
    _, outer, udp, vxlan, ethernet, inner, _ = decode.layers(bytes(frame))
    assert outer.text.startswith("172.31.0.11 -> 172.31.0.12, TTL 64")
    assert (udp.fields["source"], udp.fields["target"]) == (4242, 8472)
    assert vxlan.fields == {"vni": 7}
    assert ethernet.text == f"{A} -> {B}, carries IPv4"
    assert (inner.fields["source"], inner.fields["target"], inner.fields["ttl"]) == ("10.244.1.2", "10.244.2.2", 63)


BYTES = {name: bytes(frame) for name, (frame, _, _) in FRAMES.items()}


@given(st.sampled_from(sorted(BYTES)), st.integers(0, 120), st.binary(max_size=8))
def test_no_frame_is_too_short_or_too_odd(name, length, noise):
    data = bytearray(BYTES[name][:length])
    data[-len(noise) :] = noise
    decode.layers(bytes(data))


@given(
    st.lists(
        st.tuples(st.sampled_from(["eth0", "cni0", "veth1234"]), st.binary(min_size=1, max_size=99), st.booleans())
    )
)
def test_a_capture_is_read_back_by_scapy(frames):
    file = io.BytesIO()
    writer = Writer(file, snaplen=1000)
    start = 1_700_000_000_123_456_789
    for number, (link, data, inbound) in enumerate(frames):
        writer.packet(link, data, nanoseconds=start + number, inbound=inbound)
    writer.flush()
    file.seek(0)
    with PcapNgReader(file) as reader:
        seen = [(p.sniffed_on, bytes(p.original), p.direction, int(p.time * 1_000_000_000)) for p in reader]
    assert seen == [
        (link, data, 1 if inbound else 2, start + number) for number, (link, data, inbound) in enumerate(frames)
    ]
