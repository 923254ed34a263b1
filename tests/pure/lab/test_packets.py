"""The decoder and the writer of captures, against scapy's."""

import io
import json
from ipaddress import IPv4Network, IPv6Network, ip_network
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, IPv6
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.utils import PcapNgReader

from weft.lab.commands.capture import comment, programs, tunnels
from weft.lab.commands.packets.levels import Filter, levels, line, places
from weft.lab.commands.packets.reader import Order, Packet
from weft.lab.commands.packets.recording import Writer
from weft.wire.packet import layers_of

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
    layers = layers_of(bytes(frame))
    assert [layer.name for layer in layers] == names
    assert layers[-1].text == last


MACS = "02:00:00:00:00:0a -> 02:00:00:00:00:0b"
ETHERNET = {"source": A, "target": B, "type": 0x800}


def told(frame):
    return [(layer.name, layer.text, layer.fields) for layer in layers_of(bytes(frame))]


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
        ("ICMP", "echo request", {"type": 8, "code": 0, "sequence": 0}),
    ]
    [*_, last] = told(outer / UDP(dport=8472) / VXLAN(flags=0) / INNER)
    assert last == ("data", "50 bytes", {"length": 50})


SIX = ("fd00::1", "fd00::2")
IPV6 = Ether(src=A, dst=B) / IPv6(src=SIX[0], dst=SIX[1], hlim=7)
OUTER = Ether() / IP(src="172.31.0.11", dst="172.31.0.12")
PACKET = IP(src="10.244.1.2", dst="10.244.2.2") / ICMP(type=8, seq=3)
WAY, INNER_WAY = "172.31.0.11 > 172.31.0.12", "10.244.1.2 > 10.244.2.2"


@pytest.mark.parametrize(
    "frame, names, said",
    [
        (
            OUTER / UDP(dport=8472) / VXLAN(vni=1) / Ether() / PACKET,
            [("IPv4", "UDP", "VXLAN"), ("IPv4", "ICMP")],
            f"{WAY} VXLAN 1 | {INNER_WAY} ICMP echo request 3",
        ),
        (
            OUTER / UDP(sport=8285, dport=8285) / PACKET,
            [("IPv4", "UDP"), ("IPv4", "ICMP")],
            f"172.31.0.11:8285 > 172.31.0.12:8285 UDP | {INNER_WAY} ICMP echo request 3",
        ),
        (OUTER / PACKET, [("IPv4",), ("IPv4", "ICMP")], f"{WAY} IPIP | {INNER_WAY} ICMP echo request 3"),
        (
            OUTER / IPv6(src="fd00::1", dst="fd00::2") / TCP(sport=1, dport=80, flags="SA"),
            [("IPv4",), ("IPv6", "TCP")],
            f"{WAY} IPIP | [fd00::1]:1 > [fd00::2]:80 TCP SYN ACK",
        ),
        (
            OUTER / UDP(sport=51820, dport=51820) / b"\4\0\0\0sealed",
            [("IPv4", "UDP", "WireGuard")],
            f"{WAY} WireGuard encrypted packet",
        ),
        (
            OUTER / UDP(sport=1, dport=51820) / b"\4\0\1\0",
            [("IPv4", "UDP", "data")],
            "172.31.0.11:1 > 172.31.0.12:51820 UDP, 4 bytes",
        ),
        (OUTER / ESP(spi=0xC0FFEE, seq=9), [("IPv4", "ESP")], f"{WAY} ESP SPI 0x00c0ffee, sequence 9"),
        (
            OUTER / IP(proto=99) / b"abc",
            [("IPv4",), ("IPv4", "data")],
            f"{WAY} IPIP | 127.0.0.1 > 127.0.0.1 protocol 99, 3 bytes",
        ),
        (OUTER / ICMP(type=3, code=4), [("IPv4", "ICMP")], f"{WAY} ICMP type 3, code 4"),
        (
            Ether() / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2"),
            [("ARP",)],
            "ARP who has 10.0.0.2? tell 10.0.0.1",
        ),
        (
            Ether(src=A, dst=B, type=0x88CC) / b"xy",
            [("Ethernet", "data")],
            f"Ethernet {MACS}, carries type 0x88cc, data 2 bytes",
        ),
        (b"short", [("data",)], "data 5 bytes"),
    ],
)
def test_a_packet_is_told_on_one_line(frame, names, said):
    found = levels(layers_of(bytes(frame)))
    assert [level.names for level in found] == names
    assert line(found) == said


def test_the_rest_of_a_datagram_is_not_taken_for_its_header():
    assert told(OUTER / IP(frag=100, proto=17) / (b"\0" * 8))[-1] == ("data", "8 bytes", {"length": 8})
    assert told(Ether() / IP(flags="MF") / UDP(sport=1, dport=2))[-1][0] == "UDP"


def test_a_header_of_esp_that_is_cut_short_is_data():
    assert told(OUTER / IP(proto=50) / bytes(7))[-1] == ("data", "7 bytes", {"length": 7})


def test_a_packet_without_a_frame_is_told_by_its_version():
    def alone(data: bytes) -> list[str]:
        return [layer.name for layer in layers_of(data, ethernet=False)]

    assert alone(bytes(PACKET)) == ["IPv4", "ICMP"]
    assert alone(bytes(IPv6() / ICMPv6EchoRequest())) == ["IPv6", "ICMPv6"]
    assert (alone(b"abc"), alone(b"")) == (["data"], [])


def test_ports_of_tunnels_are_those_of_the_labs_network():
    frame = bytes(OUTER / UDP(sport=1, dport=4789) / VXLAN(vni=9) / INNER)
    assert line(levels(layers_of(frame))) == "172.31.0.11:1 > 172.31.0.12:4789 UDP, 50 bytes"
    own = tunnels('{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "Port": 4789}}')
    assert own == {4789: "VXLAN"}
    assert line(levels(layers_of(frame, tunnels=own))) == f"{WAY} VXLAN 9 | {INNER_WAY} ICMP echo request 0"


COMMENTS = "What is in a tunnel is the comment of its packet."
PROGRAMS = "Wireshark shows it after Decode As…, or with -d udp.port==8472,vxlan; tcpdump with -T vxlan."


@pytest.mark.parametrize(
    "backend, known, said, tried",
    [
        (
            {"Type": "vxlan"},
            {8472: "VXLAN"},
            f"UDP port 8472 carries VXLAN. {PROGRAMS} {COMMENTS}",
            ("wireshark -d udp.port==8472,vxlan -r", "tcpdump -n -T vxlan -r"),
        ),
        (
            {"Type": "udp", "Port": 9},
            {9: "IP"},
            f"UDP port 9 carries IP. {COMMENTS}",
            ("wireshark -r", "tcpdump -n -r"),
        ),
        (
            {"Type": "wireguard", "ListenPort": 7},
            {7: "WireGuard", 51821: "WireGuard"},
            f"UDP port 7 carries WireGuard. UDP port 51821 carries WireGuard. {COMMENTS}",
            ("wireshark -r", "tcpdump -n -r"),
        ),
        ({"Type": "host-gw"}, {}, "", ("wireshark -r", "tcpdump -n -r")),
        ({"Type": "none such"}, {}, "", ("wireshark -r", "tcpdump -n -r")),
    ],
)
def test_what_a_file_says_of_its_tunnels(backend, known, said, tried):
    own = tunnels(json.dumps({"Network": "10.244.0.0/16", "Backend": backend}))
    assert own == known
    assert comment("weft", ["node1", "pod1-1"], own) == f"Captured in lab weft, on node1, pod1-1. {said}".strip()
    assert programs(own) == tried


NODES = ["node1", "node2"]


@pytest.mark.parametrize(
    "words, found",
    [
        ("", [("node1", ""), ("node2", "")]),
        ("node2", [("node2", "")]),
        ("eth0", [("node1", "eth0"), ("node2", "eth0")]),
        ("node1 pod eth0", [("node1", "eth0"), ("pod", "eth0")]),
        ("node1 eth0 cni0 node2", [("node1", "eth0"), ("node1", "cni0"), ("node2", "")]),
        ("node1 eth0 node1 eth0", [("node1", "eth0")]),
    ],
)
def test_words_mean_places_and_links_of_the_places_before(words, found):
    assert places(words.split(), names={*NODES, "pod"}, nodes=NODES) == found


def nets(*addresses: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, addresses))


TUNNELLED = OUTER / UDP(dport=8472) / VXLAN(vni=1) / Ether() / IP(src="10.244.1.2", dst="10.244.2.2") / TCP(dport=80)


@pytest.mark.parametrize(
    "frame, wanted, wants",
    [
        (TUNNELLED, Filter(), True),
        (Ether(type=0x88CC), Filter(), True),
        (TUNNELLED, Filter(protocol="vxlan"), True),
        (TUNNELLED, Filter(protocol="tcp", port=80), True),
        (TUNNELLED, Filter(protocol="udp", port=8472), True),
        (TUNNELLED, Filter(protocol="udp", port=80), False),  # the one is outside, the other inside
        (TUNNELLED, Filter(protocol="icmp"), False),
        (OUTER / ICMP(), Filter(protocol="icmp"), True),
        (IPV6 / ICMPv6EchoRequest(), Filter(protocol="icmp"), True),
        (Ether() / ARP(psrc="10.0.0.1", pdst="10.0.0.2"), Filter(protocol="arp", ends=(nets("10.0.0.2"),)), True),
        (TUNNELLED, Filter(ends=(nets("10.244.2.0/24"),)), True),
        (TUNNELLED, Filter(ends=(nets("fd00::1", "10.244.1.2"), nets("10.244.2.2"))), True),
        (TUNNELLED, Filter(ends=(nets("10.244.1.2"), nets("172.31.0.12"))), False),
        (TUNNELLED, Filter(ends=(nets("10.244.3.0/24"),)), False),
        (Ether(type=0x88CC), Filter(port=80), False),
        (OUTER / ESP(), Filter(protocol="esp"), True),
        (OUTER / UDP(dport=51820) / b"\1\0\0\0", Filter(protocol="wireguard"), True),
    ],
)
def test_a_filter_holds_on_one_level_of_a_packet(frame, wanted, wants):
    assert wanted.wants(levels(layers_of(bytes(frame)))) == wants


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30))))
def test_packets_come_in_the_order_of_their_times_and_none_is_lost(given_):
    order = Order()
    released = []
    for number, (time, before) in enumerate(given_):
        order.hold(Packet(place="n", link="l", data=bytes([number]), nanoseconds=time, inbound=True, ethernet=True))
        batch = list(order.release(before))
        assert [packet.nanoseconds for packet in batch] == sorted(packet.nanoseconds for packet in batch)
        assert all(packet.nanoseconds < before for packet in batch)
        released += batch
    released += order.release(100)
    assert sorted(packet.data for packet in released) == [bytes([number]) for number in range(len(given_))]
    assert len(order) == 0


@pytest.mark.parametrize(
    "carried, length, protocol, name, text, fields",
    [
        (ICMPv6EchoRequest(), 48, (58, "ICMPv6"), "ICMPv6", "echo request", {"type": 128, "code": 0, "sequence": 0}),
        (ICMPv6EchoReply(seq=7), 48, (58, "ICMPv6"), "ICMPv6", "echo reply", {"type": 129, "code": 0, "sequence": 7}),
        (ICMPv6ND_NS(), 64, (58, "ICMPv6"), "ICMPv6", "neighbour solicitation", {"type": 135, "code": 0}),
        (ICMPv6ND_NA(), 64, (58, "ICMPv6"), "ICMPv6", "neighbour advertisement", {"type": 136, "code": 0}),
        (ICMPv6DestUnreach(code=4), 48, (58, "ICMPv6"), "ICMPv6", "type 1, code 4", {"type": 1, "code": 4}),
        (
            TCP(sport=1, dport=80, flags="FSRPAU", seq=9),
            60,
            (6, "TCP"),
            "TCP",
            "port 1 -> 80, FIN SYN RST PSH ACK URG, sequence 9",
            {"source": 1, "target": 80, "sequence": 9, "flags": "FIN SYN RST PSH ACK URG"},
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
        (Ether() / IP() / ICMP(type=0), ("ICMP", "echo reply", {"type": 0, "code": 0, "sequence": 0})),
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
    assert all(layer.name for layer in layers_of(bytes(data)))


@given(
    st.lists(
        st.tuples(st.sampled_from(["eth0", "cni0", "veth1234"]), st.binary(min_size=1, max_size=99), st.booleans())
    )
)
def test_a_capture_is_read_back_by_scapy(frames):
    file = io.BytesIO()
    writer = Writer(file, snaplen=1000, comment="all")
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
    writer = Writer(file, snaplen=0x40000, comment="tale")
    writer.packet("eth0", b"abcde", nanoseconds=0x1_0000_0002, inbound=False)
    writer.packet("eth0", b"", nanoseconds=0, inbound=True, ethernet=False, comment="x")
    section = pack("=IHHq", 0x1A2B3C4D, 1, 0, -1) + pack("=HH4s", 1, 4, b"tale")
    section += pack("=HH16s", 4, 16, b"weft lab capture") + bytes(4)
    link = pack("=HHI", 1, 0, 0x40000) + pack("=HH4sHHB3xHH", 2, 4, b"eth0", 9, 1, 9, 0, 0)
    packet = pack("=IIIII8s", 0, 1, 2, 5, 5, b"abcde") + pack("=HHIHH", 2, 4, 2, 0, 0)
    raw = pack("=HHI", 101, 0, 0x40000) + link[8:]
    commented = pack("=IIIII", 1, 0, 0, 0, 0) + pack("=HHB3x", 1, 1, ord("x")) + pack("=HHIHH", 2, 4, 1, 0, 0)
    blocks = ((0x0A0D0D0A, section), (1, link), (6, packet), (1, raw), (6, commented))
    sized = [(pack("=I", kind), pack("=I", len(body) + 12), body) for kind, body in blocks]
    assert file.getvalue() == b"".join(kind + size + body + size for kind, size, body in sized)
