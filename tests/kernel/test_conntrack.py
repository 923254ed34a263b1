"""UDP entries of connection tracking: found by their first packet's port, deleted one by one."""

import socket
from ipaddress import ip_address

import pytest

from tests.support.netns import Netns
from weft.kernel.netfilter.conntrack import forget_udp, sources_of_udp
from weft.kernel.netfilter.nfnetlink import NfSocket

TRACKED = "".join(
    f"add table {family} t\nadd chain {family} t o {{ type filter hook output priority 0; }}\n"
    f"add rule {family} t o ct state new accept\n"
    for family in ("ip", "ip6")
)
LOOPBACK = {4: "127.0.0.1", 6: "::1"}


@pytest.fixture
def nf(netns: Netns) -> NfSocket:
    netns.run(["nft", "-f", "-"], input=TRACKED)
    sock = netns.call(NfSocket.open)
    netns.closing.callback(sock.close)
    return sock


def send(netns: Netns, family: int, port: int, *, source: int = 0) -> None:
    def inside() -> None:
        with socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind((LOOPBACK[family], source))
            sock.sendto(b"?", (LOOPBACK[family], port))

    netns.call(inside)


def ports(netns: Netns) -> list[tuple[str, int]]:
    """Source address and original destination port of each UDP entry."""
    listed = netns.run("conntrack -L -p udp -f ipv4; conntrack -L -p udp -f ipv6").splitlines()
    fields = [dict(word.split("=") for word in reversed(line.split()) if "=" in word) for line in listed]
    return sorted((each["src"], int(each["dport"])) for each in fields)


@pytest.mark.parametrize("family", [4, 6])
def test_only_this_port_of_this_family(netns, nf, family):
    for each in (4, 6):
        for port in (53, 53, 54):
            send(netns, each, port)
    assert forget_udp(nf, family, {53}) == 2
    other = LOOPBACK[10 - family]
    assert ports(netns) == sorted([(LOOPBACK[family], 54), (other, 53), (other, 53), (other, 54)])
    assert forget_udp(nf, family, {53}) == 0


def test_several_ports_in_one_walk(netns, nf):
    for port in (53, 54, 54, 55):
        send(netns, 4, port)
    assert forget_udp(nf, 4, {53, 54}) == 3
    assert ports(netns) == [("127.0.0.1", 55)]


def test_only_what_leads_to_an_address(netns, nf):
    send(netns, 4, 53)
    assert forget_udp(nf, 4, {53}, leading_to=ip_address("192.0.2.1")) == 0
    assert forget_udp(nf, 4, {53}, leading_to=ip_address("127.0.0.1")) == 1


def test_more_than_are_deleted_at_once(netns, nf):
    for number in range(150):
        send(netns, 4, 53, source=20000 + number)
    assert forget_udp(nf, 4, {53}) == 150
    assert ports(netns) == []


def test_tcp_entries_stay(netns, nf):
    def inside() -> None:
        with socket.create_server(("127.0.0.1", 53)) as server:
            socket.create_connection(server.getsockname()).close()

    netns.call(inside)
    assert forget_udp(nf, 4, {53}) == 0
    assert "tcp" in netns.run("conntrack -L")


@pytest.mark.parametrize("family", [4, 6])
def test_where_flows_to_a_port_came_from(netns, nf, family):
    for port in (53, 53, 54):
        send(netns, family, port)
    own = {ip_address(LOOPBACK[family])}
    assert sources_of_udp(nf, family, {53}) == sources_of_udp(nf, family, {53, 54}) == own
    assert sources_of_udp(nf, family, {55}) == sources_of_udp(nf, 10 - family, {53}) == set()
