"""The decoder and the writer of captures, against scapy's."""

import io
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, IPv6
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


MACS = "02:00:00:00:00:0a -> 02:00:00:00:00:0b"
ETHERNET = {"source": A, "target": B, "type": 0x800}


def told(frame):
    return [(layer.name, layer.text, layer.fields) for layer in decode.layers(bytes(frame))]


def test_a_tunnelled_frame_is_told_layer_by_layer():
    outer = Ether(src=A, dst=B) / IP(src="172.31.0.11", dst="172.31.0.12")
    assert told(outer / UDP(sport=4242, dport=8472) / VXLAN(vni=0x10203) / INNER) == [
        ("Ethernet", f"{MACS}, carries IPv4", ETHERNET),
        (
            "IPv4",
            "172.31.0.11 -> 172.31.0.12, TTL 64, 78 bytes, carries UDP",
            {"source": "172.31.0.11", "target": "172.31.0.12", "protocol": 17, "ttl": 64, "length": 78},
        ),
        ("UDP", "port 4242 -> 8472, 58 bytes", {"source": 4242, "target": 8472, "length": 58}),
        ("VXLAN", "VNI 66051, a whole frame follows", {"vni": 66051}),
        ("Ethernet", f"{MACS}, carries IPv4", ETHERNET),
        (
            "IPv4",
            "10.244.1.2 -> 10.244.2.2, TTL 63, 28 bytes, carries ICMP",
            {"source": "10.244.1.2", "target": "10.244.2.2", "protocol": 1, "ttl": 63, "length": 28},
        ),
        ("ICMP", "echo request", {"type": 8, "code": 0}),
    ]
    [*_, last] = told(outer / UDP(dport=8472) / VXLAN(flags=0) / INNER)
    assert last == ("data", "50 bytes", {"length": 50})


SIX = ("fd00::1", "fd00::2")
IPV6 = Ether(src=A, dst=B) / IPv6(src=SIX[0], dst=SIX[1], hlim=7)


@pytest.mark.parametrize(
    "carried, length, protocol, name, text, fields",
    [
        (ICMPv6EchoRequest(), 48, (58, "ICMPv6"), "ICMPv6", "echo request", {"type": 128, "code": 0}),
        (ICMPv6EchoReply(), 48, (58, "ICMPv6"), "ICMPv6", "echo reply", {"type": 129, "code": 0}),
        (ICMPv6ND_NS(), 64, (58, "ICMPv6"), "ICMPv6", "neighbour solicitation", {"type": 135, "code": 0}),
        (ICMPv6ND_NA(), 64, (58, "ICMPv6"), "ICMPv6", "neighbour advertisement", {"type": 136, "code": 0}),
        (ICMPv6DestUnreach(code=4), 48, (58, "ICMPv6"), "ICMPv6", "type 1, code 4", {"type": 1, "code": 4}),
        (
            TCP(sport=1, dport=80, flags="FSRPAU", seq=9),
            60,
            (6, "TCP"),
            "TCP",
            "port 1 -> 80, FIN SYN RST PSH ACK URG, sequence 9",
            {"source": 1, "target": 80, "sequence": 9},
        ),
    ],
)
def test_what_ipv6_carries(carried, length, protocol, *, name, text, fields):
    number, called = protocol
    assert told(IPV6 / carried) == [
        ("Ethernet", f"{MACS}, carries IPv6", ETHERNET | {"type": 0x86DD}),
        (
            "IPv6",
            f"fd00::1 -> fd00::2, TTL 7, {length} bytes, carries {called}",
            {"source": SIX[0], "target": SIX[1], "protocol": number, "ttl": 7, "length": length},
        ),
        (name, text, fields),
    ]


@pytest.mark.parametrize(
    "frame, last",
    [
        (Ether() / IP() / ICMP(type=0), ("ICMP", "echo reply", {"type": 0, "code": 0})),
        (Ether() / IP() / ICMP(type=3, code=4), ("ICMP", "type 3, code 4", {"type": 3, "code": 4})),
        (
            Ether() / ARP(op=2, hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2"),
            ("ARP", f"10.0.0.1 is at {A}", {"operation": 2, "source": "10.0.0.1", "target": "10.0.0.2"}),
        ),
        (
            Ether() / ARP(op=1, hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2"),
            (
                "ARP",
                "who has 10.0.0.2? tell 10.0.0.1",
                {"operation": 1, "source": "10.0.0.1", "target": "10.0.0.2"},
            ),
        ),
        (Ether() / IP(proto=99, options=[IPOption_NOP()] * 4) / b"abc", ("data", "3 bytes", {"length": 3})),
        (Ether(type=0x88CC), ("Ethernet", "00:00:00:00:00:00 -> ff:ff:ff:ff:ff:ff, carries type 0x88cc", None)),
        (
            Ether() / IP(proto=99, src="10.0.0.1", dst="10.0.0.2"),
            ("IPv4", "10.0.0.1 -> 10.0.0.2, TTL 64, 20 bytes, carries protocol 99", None),
        ),
    ],
)
def test_what_comes_last(frame, last):
    if ARP in frame:
        assert told(frame)[0][1].endswith(", carries ARP")
    name, text, fields = told(frame)[-1]
    assert (name, text, last[2] and fields) == last


@pytest.mark.parametrize(
    "frame, name, start, size",
    [
        (Ether(type=0x88CC), "Ethernet", 0, 14),
        (Ether() / ARP(), "ARP", 14, 28),
        (Ether() / IP(), "IPv4", 14, 20),
        (Ether() / IPv6(), "IPv6", 14, 40),
        (Ether() / IP() / UDP(dport=1), "UDP", 34, 8),
        (Ether() / IP() / ICMP(), "ICMP", 34, 8),
        (Ether() / IP() / TCP(), "TCP", 34, 20),
        (Ether() / IP() / UDP(dport=8472) / VXLAN(flags=8), "VXLAN", 42, 8),
    ],
)
def test_a_header_that_is_cut_off_is_data(frame, name, start, size):
    whole, cut = (told(bytes(frame)[: start + length]) for length in (size, size - 1))
    assert [layer[0] for layer in whole].count(name) == 1
    assert name not in [layer[0] for layer in cut]
    assert cut[-1] == ("data", f"{size - 1} bytes", {"length": size - 1})


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


def test_a_capture_is_the_drafts_bytes():
    """draft-ietf-opsawg-pcapng: a section (1.0, length unknown), a link (Ethernet, nanoseconds), a packet."""
    file = io.BytesIO()
    Writer(file, snaplen=0x40000).packet("eth0", b"abcde", nanoseconds=0x1_0000_0002, inbound=False)
    section = pack("=IHHq", 0x1A2B3C4D, 1, 0, -1) + pack("=HH16s", 4, 16, b"weft lab capture") + bytes(4)
    link = pack("=HHI", 1, 0, 0x40000) + pack("=HH4sHHB3xHH", 2, 4, b"eth0", 9, 1, 9, 0, 0)
    packet = pack("=IIIII8s", 0, 1, 2, 5, 5, b"abcde") + pack("=HHIHH", 2, 4, 2, 0, 0)
    blocks = ((0x0A0D0D0A, section), (1, link), (6, packet))
    sized = [(pack("=I", kind), pack("=I", len(body) + 12), body) for kind, body in blocks]
    assert file.getvalue() == b"".join(kind + size + body + size for kind, size, body in sized)
