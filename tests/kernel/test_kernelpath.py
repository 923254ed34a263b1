"""The kernel's own path of back end udp: what it carries past the relay, what it leaves, and what is attached.

That both do the same to a packet, test_relay.py shows.
"""

import errno
import json
import os
import socket
import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from tests.support.netns import Netns, wire
from tests.support.relay.relaysite import DEVICE, LOCAL, PEER, POD, PORT, THERE, Site, packet
from tests.support.weftd import eventually
from weft.forward import kernelpath
from weft.forward.build import PATH
from weft.forward.control import Change
from weft.forward.kernelpath import Forward, Job, Programs
from weft.kernel.rtnetlink import tc

NET = IPv4Network("10.5.2.0/24")
CLSACT = "clsact"


@pytest.fixture
def site(make_netns: Callable[[], Netns]) -> Site:
    return Site(make_netns(), make_netns(), in_kernel=True)


def path(site: Site) -> Programs:
    assert site.path
    return site.path


def carried(site: Site) -> tuple[int, int, int, int]:
    """Packets that the kernel has sent and received, and the same of the relay."""
    here, state = path(site).packets(), site.call.state()
    return here["sent"], here["received"], state.sent[0], state.received[0]


def test_packets_of_known_peers_pass_the_relay_by(site: Site):
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    pod.sendto(b"there", (THERE, 7))
    assert site.peer.recv(100)[28:] == b"there"
    assert carried(site) == (1, 0, 0, 0)
    site.peer.sendto(packet(b"back"), (LOCAL, PORT))
    assert pod.recv(100) == b"back"
    assert carried(site) == (1, 1, 0, 0)


def test_a_checksum_that_runs_over_when_a_hop_is_taken_is_right(site: Site):
    """The only one that does, ff ff, which is as good as 00 00: the rest of the header adds up to ff ff as well."""
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    whole = bytearray(packet(b"over"))
    whole[4:6] = whole[10:12] = b"\0\0"
    words = sum(struct.unpack(">10H", whole[:20]))
    words = (words & 0xFFFF) + (words >> 16)
    struct.pack_into(">H", whole, 4, 0xFFFF - words)  # its identification
    struct.pack_into(">H", whole, 10, 0xFFFF)
    site.peer.sendto(whole, (LOCAL, PORT))
    assert pod.recv(100) == b"over"
    assert carried(site) == (0, 1, 0, 0)


def test_a_peer_that_is_a_program_gets_all_from_the_relay(site: Site):
    path(site).change({NET: Forward(IPv4Address(PEER), kernel=False)})
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    pod.sendto(b"there", (THERE, 7))
    assert site.peer.recv(100)[28:] == b"there"
    site.peer.sendto(packet(b"back"), (LOCAL, PORT))
    assert pod.recv(100) == b"back"
    assert carried(site) == (0, 1, 1, 0)


@pytest.mark.parametrize(
    "routed",
    [
        "ip route add {peer}/32 dev other",
        "ip route add default dev other table 100; ip rule add to {peer} lookup 100",
        "ip route add default dev other table 100; ip rule add iif lo to {peer} lookup 100",
    ],
    ids=["a route", "a rule", "a rule for what the node sends"],
)
def test_a_peer_that_another_link_leads_to_gets_all_from_the_relay(site: Site, routed: str):
    """As IPsec or a tunnel of the operator's may: by the uplink it would leave in the clear."""
    site.here.run("ip link add other type veth peer name behind; ip link set behind up; ip link set other up arp off")
    site.here.run(routed.format(peer=PEER))
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    before = sent(site, "other")
    pod.sendto(b"there", (THERE, 7))
    eventually(lambda: carried(site)[2] + carried(site)[0] == 1)
    assert carried(site) == (0, 0, 1, 0)
    eventually(lambda: sent(site, "other") > before)


def sent(site: Site, link: str) -> int:
    """How many datagrams to the peer a link has sent."""
    [told] = json.loads(site.here.run(f"ip -j -s link show {link}"))
    return int(told["stats64"]["tx"]["packets"])


def test_a_peer_that_is_gone_gets_nothing_more_by_the_kernel(site: Site):
    path(site).change({NET: None, IPv4Network("10.5.7.0/24"): None})
    assert path(site).forwards() == {}
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    site.peer.sendto(packet(b"by the relay"), (LOCAL, PORT))
    assert pod.recv(100) == b"by the relay"
    assert carried(site) == (0, 0, 0, 1)


def test_a_packet_from_another_subnet_than_the_peers_is_the_relays(site: Site):
    """The relay takes it: its sender is a node, which has other addresses than its pods'."""
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    site.peer.sendto(packet(b"from a node", source=PEER), (LOCAL, PORT))
    site.here.run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.flannel0.rp_filter=0", check=False)
    eventually(lambda: carried(site) == (0, 0, 0, 1))
    del pod


def test_a_datagram_whose_checksum_a_device_would_make_is_the_relays(site: Site):
    """As a program sends it over a veth: NAT of the packet inside would make a wrong checksum of a right one."""
    site.there.run("ethtool -K eth0 tx on")
    site.here.run("ip addr add 10.5.1.3/32 dev lo; nft add table ip t")
    site.here.run("nft 'add chain ip t p { type nat hook prerouting priority -100; }'")
    site.here.run(f"nft add rule ip t p ip daddr {POD} udp dport 9 dnat to 10.5.1.3")
    pod = site.bound(site.here, socket.SOCK_DGRAM, "10.5.1.3", 9)
    site.peer.sendto(packet(b"by the relay"), (LOCAL, PORT))
    assert pod.recv(100) == b"by the relay"
    assert carried(site) == (0, 0, 0, 1)
    site.there.run("ethtool -K eth0 tx off")
    site.peer.sendto(packet(b"by the kernel"), (LOCAL, PORT))
    assert pod.recv(100) == b"by the kernel"
    assert carried(site) == (0, 1, 0, 1)


def test_a_packet_with_options_is_the_relays(site: Site):
    """The peer's program takes none with options, and its relay may not be able to read what was left unfinished."""
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    pod.setsockopt(socket.SOL_IP, 4, b"\x01" * 4)  # IP_OPTIONS: four times "no operation"
    pod.sendto(b"there", (THERE, 7))
    assert site.peer.recv(100)[32:] == b"there"
    eventually(lambda: carried(site) == (0, 0, 1, 0))


def test_a_datagram_in_pieces_is_the_relays(site: Site):
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    site.there.run(f"ip route replace {LOCAL}/32 dev eth0 mtu 600")
    site.peer.setsockopt(socket.SOL_IP, 10, 0)  # IP_MTU_DISCOVER: IP_PMTUDISC_DONT
    content = os.urandom(1200)
    site.peer.sendto(packet(content), (LOCAL, PORT))
    assert pod.recv(2000) == content
    assert carried(site) == (0, 0, 0, 1)


def test_what_only_looks_like_a_datagram_for_the_relay_is_none(site: Site):
    """Another address of the node, another port, and the later piece of a datagram with the content of a whole one."""
    site.here.run("ip addr add 172.31.0.9/24 dev eth0")
    site.peer.sendto(packet(b"another address"), ("172.31.0.9", PORT))
    site.peer.sendto(packet(b"another port"), (LOCAL, PORT + 1))
    whole = bytes(UDP(sport=PORT, dport=PORT) / Raw(packet(b"piece")))
    piece = bytes(IP(src=PEER, dst=LOCAL, frag=100, proto=17) / Raw(whole))

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.sendto(piece, (LOCAL, 0))

    site.there.call(send)
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    site.peer.sendto(packet(b"right"), (LOCAL, PORT))
    assert pod.recv(100) == b"right"
    assert carried(site) == (0, 1, 0, 0)


def test_bytes_behind_a_packet_are_not_sent(site: Site):
    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as below:
            below.sendto(packet(b"x", source=POD, destination=THERE) + b"behind", (DEVICE, 0x0800))

    site.here.call(send)
    assert site.peer.recv(100)[28:] == b"x"
    assert carried(site) == (0, 0, 1, 0)


def test_a_peer_whose_link_layer_address_is_unknown_is_found_out_by_the_relay(site: Site):
    site.here.run("ip neigh flush dev eth0")
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD)
    pod.sendto(b"first", (THERE, 9))
    assert site.peer.recv(100)[28:] == b"first"
    assert carried(site) == (0, 0, 1, 0)
    pod.sendto(b"second", (THERE, 9))
    assert site.peer.recv(100)[28:] == b"second"
    assert carried(site) == (1, 0, 1, 0)


def test_a_peer_behind_a_gateway(site: Site):
    """The peer's own address stands for the gateway's."""
    far = "198.51.100.2"
    site.there.run(f"ip addr add {far}/32 dev lo")
    site.here.run(f"ip route add {far}/32 via {PEER}")
    path(site).change({NET: Forward(IPv4Address(far), kernel=True)})
    receiver = site.bound(site.there, socket.SOCK_DGRAM, far, PORT)
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD)
    pod.sendto(b"far", (THERE, 9))
    assert receiver.recv(100)[28:] == b"far"
    assert carried(site) == (1, 0, 0, 0)


def test_a_narrow_way_behind_a_router_is_learnt_and_told(site: Site, make_netns: Callable[[], Netns]):
    """The router's answer is for the relay's socket; what it says the kernel's path minds as well."""
    far, beyond = "198.51.100.2", make_netns()
    wire(site.there, beyond, names=("eth1", "eth0"))
    site.there.run("ip addr add 198.51.100.1/24 dev eth1; ip link set eth1 mtu 1000 up")
    site.there.run("echo 1 > /proc/sys/net/ipv4/ip_forward")
    beyond.run(f"ip addr add {far}/24 dev eth0; ip link set eth0 mtu 1000 up; ip route add default via 198.51.100.1")
    site.here.run(f"ip route add {far}/32 via {PEER}")
    site.call.change([Change(NET, IPv4Address(far))])
    path(site).change({NET: Forward(IPv4Address(far), kernel=True)})
    receiver = site.bound(beyond, socket.SOCK_DGRAM, far, PORT)
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD)
    pod.setsockopt(socket.SOL_IP, 10, 2)  # IP_MTU_DISCOVER: IP_PMTUDISC_DO
    content = bytes(1200)

    def refused() -> bool:
        try:
            pod.sendto(content, (THERE, 9))
        except OSError as error:
            return error.errno == errno.EMSGSIZE
        return False

    eventually(refused)
    pod.connect((THERE, 9))
    assert pod.getsockopt(socket.SOL_IP, 14) == 1000 - 28  # IP_MTU
    pod.send(bytes(1000 - 28 - 28))
    assert len(receiver.recv(2000)) == 1000 - 28


def test_an_uplink_without_link_layer_headers(site: Site):
    """A tunnel as uplink, WireGuard for instance: what it has received begins with the packet."""
    site.here.run("ip tuntap add tun9 mode tun; ip link set tun9 up; ip addr add 172.30.0.1/24 dev tun9")
    job = Job(device=DEVICE, uplink="tun9", local=IPv4Address("172.30.0.1"), port=PORT)

    def attach() -> None:
        with_tun = Programs.attach(job, {})
        try:
            found = Programs.find(DEVICE)
            assert found
            assert found.job == job
            found.close()
        finally:
            with_tun.close()

    site.here.call(attach)
    assert "weft-udp" not in site.here.run("tc filter show dev eth0 ingress")
    assert "weft-udp" in site.here.run("tc filter show dev tun9 ingress")


def test_what_is_attached_is_found_again_with_all_that_it_knows(site: Site):
    more = IPv4Network("10.5.3.0/25")
    path(site).change({more: Forward(IPv4Address("172.31.0.9"), kernel=False)})
    found = site.here.call(lambda: Programs.find(DEVICE))
    assert found
    assert found.job == path(site).job
    assert found.forwards() == {
        NET: Forward(IPv4Address(PEER), kernel=True),
        more: Forward(IPv4Address("172.31.0.9"), kernel=False),
    }
    assert site.here.call(found.is_attached)
    assert site.here.call(lambda: Programs.find("flannel9")) is None
    found.close()


@pytest.mark.parametrize("taken", ["eth0 ingress", f"{DEVICE} egress"])
def test_one_program_alone_is_none(site: Site, taken: str):
    site.here.run(f"tc filter del dev {taken}")
    assert not site.here.call(path(site).is_attached)
    assert site.here.call(lambda: Programs.find(DEVICE)) is None
    assert site.here.call(kernelpath.present) == ["eth0" if taken.startswith(DEVICE) else DEVICE]


def test_another_build_is_replaced(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernelpath, "_build", lambda: "0123456789ab")
    assert site.here.call(lambda: Programs.find(DEVICE)) is None
    assert not site.here.call(lambda: site.attach().close())
    assert site.here.run("tc filter show dev eth0 ingress").count("weft-udp-0123456789ab") == 1
    assert site.here.run("tc filter show dev eth0 ingress").count("weft-udp") == 1


def test_what_is_attached_goes_and_what_others_have_attached_stays(site: Site):
    site.here.run("tc filter add dev eth0 ingress prio 7 protocol ip u32 match u32 0 0 flowid 1:1")
    assert sorted(site.here.call(lambda: kernelpath.detach_all(wholly=True))) == ["eth0", DEVICE]
    assert CLSACT in site.here.run("tc qdisc show dev eth0")
    assert "u32" in site.here.run("tc filter show dev eth0 ingress")
    assert CLSACT not in site.here.run(f"tc qdisc show dev {DEVICE}")
    assert site.here.call(kernelpath.detach_all) == []


def test_with_an_ingress_qdisc_of_somebodys_it_is_attached_and_found(site: Site):
    site.here.call(lambda: kernelpath.detach_all(wholly=True))
    site.here.run("tc qdisc add dev eth0 ingress")
    programs = site.here.call(site.attach)
    site.here.closing.callback(programs.close)
    assert site.here.call(programs.is_attached)
    assert "weft-udp" in site.here.run("tc filter show dev eth0 ingress")
    assert sorted(site.here.call(lambda: kernelpath.detach_all(wholly=True))) == ["eth0", DEVICE]
    assert "weft-udp" not in site.here.run("tc filter show dev eth0 ingress")
    assert "qdisc ingress" in site.here.run("tc qdisc show dev eth0")


OTHERS = {
    "a program": "handle 1 protocol all bpf bytecode '1,6 0 0 0'",
    "another handle": "handle 7 protocol all bpf bytecode '1,6 0 0 0'",
    "another kind": "protocol ip u32 match u32 1 0xffffffff flowid 1:1",
}


@pytest.mark.parametrize("point", ["eth0 ingress", f"{DEVICE} egress"])
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_what_somebody_else_has_at_our_priority_stays_and_is_named(site: Site, point: str, other: str):
    site.here.call(kernelpath.detach_all)
    site.here.run(f"tc filter add dev {point} pref {tc.BPF_PRIORITY} {other}")

    def strangers() -> str:
        shown = site.here.run(f"tc filter show dev {point}").splitlines()
        return "\n".join(line for line in shown if f"pref {tc.BPF_PRIORITY} " in line)

    before = strangers()
    assert before
    for _ in range(2):
        programs = site.here.call(site.attach)
        site.here.closing.callback(programs.close)
        [behind] = programs.behind
        assert behind.startswith(f"{point}: a filter of another program (")
        assert strangers() == before
        assert site.here.run(f"tc filter show dev {point}").count("weft-udp") == 1
        assert site.here.call(programs.is_attached)
    found = site.here.call(lambda: Programs.find(DEVICE))
    assert found is not None
    found.close()
    pod = site.bound(site.here, socket.SOCK_DGRAM, POD, 9)
    pod.sendto(b"there", (THERE, 7))
    assert site.peer.recv(100)[28:] == b"there"
    assert programs.packets()["sent"] == 1, "it leaves the packet to what is behind it"
    site.here.call(lambda: kernelpath.detach_all(wholly=True))
    assert strangers() == before
    assert "weft-udp" not in site.here.run("tc filter show dev eth0 ingress; tc filter show dev flannel0 egress")
    site.here.closing.callback(site.here.call(site.attach).close)
    site.here.run(f"tc filter del dev {point} pref {tc.BPF_PRIORITY}")
    programs = site.here.call(site.attach)
    site.here.closing.callback(programs.close)
    assert programs.behind == (), "nobody is there any more"


def test_where_programs_for_what_is_sent_cannot_be_it_is_said(site: Site):
    site.here.call(lambda: kernelpath.detach_all(wholly=True))
    site.here.run(f"tc qdisc add dev {DEVICE} ingress")
    with pytest.raises(OSError, match="a qdisc that takes no programs for what is sent"):
        site.here.call(site.attach)


def test_a_kernel_that_is_too_old_says_so(monkeypatch: pytest.MonkeyPatch):
    class Old:
        release = "5.10.0-33-amd64"

    monkeypatch.setattr(os, "uname", Old)
    assert kernelpath.missing(attach=False) == "Linux 5.10.0-33-amd64 is older than 5.12, and minds no MTU of a path"


def test_a_trial_leaves_nothing(make_netns: Callable[[], Netns], monkeypatch: pytest.MonkeyPatch):
    netns = make_netns()
    before = netns.run("ip -br link")
    assert netns.call(lambda: kernelpath.missing(attach=True)) == ""
    assert netns.run("ip -br link") == before
    monkeypatch.setattr(type(PATH), "built", lambda _: None)
    assert kernelpath.missing(attach=False) == "this weft was built without clang"


def test_a_machine_that_refuses_says_why(make_netns: Callable[[], Netns]):
    def ask() -> None:
        os.setuid(65534)
        assert "not permitted" in kernelpath.missing(attach=True)

    assert make_netns().fork(ask) == 0


def test_a_file_that_is_no_program(make_netns: Callable[[], Netns], monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "path.o").write_bytes(b"\x7fELF")
    monkeypatch.setattr(type(PATH), "built", lambda _: tmp_path / "path.o")
    assert "path.o: it is no 64-bit ELF file" in kernelpath.missing(attach=False)
