"""The socket under rtnetlink: refusals, batches, torn lists, lost answers, other namespaces."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest

from tests.support.netns import MANY_NAMES, Netns
from weft.kernel.rtnetlink import route
from weft.kernel.rtnetlink.link import create, delete_link
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket, Torn
from weft.kernel.rtnetlink.route import RTM_GETROUTE, add_route
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.marks import PROTOCOL


def test_a_refusal_carries_the_kernels_own_words(netns: Netns) -> None:
    with pytest.raises(NetlinkError) as refused:
        netns.rtnl.request(route.add_route(ip_network("10.0.0.0/8"), via=ip_address("192.0.2.1")))
    assert refused.value.errno == errno.ENETUNREACH
    assert refused.value.extended == "Nexthop has invalid gateway"
    assert str(refused.value) == "[Errno 101] Network is unreachable: Nexthop has invalid gateway"


def test_a_bad_message_in_the_middle_stops_no_other(netns: Netns, eth0: int) -> None:
    def to(prefix: str, gateway: str) -> Message:
        via = ip_address(gateway)
        return add_route(ip_network(prefix), via=via, index=eth0, table=254, protocol=PROTOCOL, mode="create")

    refused = netns.rtnl.batch(
        [to("10.1.0.0/24", "10.0.0.9"), to("10.2.0.0/24", "192.0.2.1"), to("10.3.0.0/24", "10.0.0.9")]
    )
    assert {position: error.errno for position, error in refused.items()} == {1: errno.ENETUNREACH}
    assert refused[1].extended == "Nexthop has invalid gateway"
    found = {str(route.dst) for route in netns.rtnl.routes(protocol=PROTOCOL)}
    assert found == {"10.1.0.0/24", "10.3.0.0/24"}
    # The last may be the bad one as well, and the socket is in step afterwards.
    assert netns.rtnl.batch([to("10.4.0.0/24", "10.0.0.9"), delete_link(4711)])[1].errno == errno.ENODEV
    assert netns.rtnl.batch([]) == {}
    assert netns.rtnl.link("lo") is not None


def test_all_of_a_long_batch_may_fail(netns: Netns) -> None:
    refused = netns.rtnl.batch([delete_link(4711 + number) for number in range(64)])
    assert sorted(refused) == list(range(64))


def test_answers_that_do_not_fit_are_reported_and_the_socket_lives_on(netns: Netns) -> None:
    sock = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    with Rtnl(sock) as small:
        with pytest.raises(NetlinkError) as lost:
            small.batch([delete_link(4711 + number) for number in range(64)])
        assert lost.value.errno == errno.ENOBUFS
        assert small.link("lo") is not None


def test_a_socket_of_another_namespace_acts_there(netns: Netns) -> None:
    received: list[Rtnl] = []
    one, other = socket.socketpair()
    with one, other:
        inside = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
        socket.send_fds(one, [b"x"], [inside.fileno()])
        inside.close()
        _, [fd], _, _ = socket.recv_fds(other, 1, 1)
        received.append(Rtnl(socket.socket(fileno=fd)))
    with received[0] as rtnl:
        rtnl.add_bridge("there0")
    assert netns.rtnl.link("there0") is not None
    with Rtnl.open() as own:
        assert own.link("there0") is None


def test_two_sockets_have_ports_of_their_own(netns: Netns) -> None:
    with netns.call(Rtnl.open) as another:
        assert another.port not in (0, netns.rtnl.port)


def test_lists_are_whole_while_links_come_and_go(netns: Netns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that changes while it is read is torn (NLM_F_DUMP_INTR), and is read again."""
    names = {f"b{number}" for number in range(100)}
    netns.rtnl.batch([create("bridge", name) for name in sorted(names)])
    torn = 0
    read = NetlinkSocket.each

    def counted(self: NetlinkSocket, kind: int, body: bytes) -> Iterator[bytes]:
        nonlocal torn
        try:
            yield from read(self, kind, body)
        except Torn:
            torn += 1
            raise

    monkeypatch.setattr(NetlinkSocket, "each", counted)
    stop = threading.Event()

    def churn() -> None:
        with netns.call(Rtnl.open) as other:
            while not stop.is_set():
                other.delete_link(other.add_bridge("churn").index)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        end = time.monotonic() + 20
        while torn < 3:
            assert time.monotonic() < end, "no list was ever torn"
            assert {link.name for link in netns.rtnl.links()} - {"churn"} == {"lo", *names}
    finally:
        stop.set()
        thread.join()


def test_an_unknown_request_is_refused(netns: Netns) -> None:
    with pytest.raises(NetlinkError):
        netns.rtnl.dump(RTM_GETROUTE, b"\xff" * 12)


def test_a_link_whose_description_is_larger_than_64_kib_is_read_alone_and_in_a_list(netns: Netns, eth0: int) -> None:
    netns.run(MANY_NAMES.format(dev="eth0"))
    with netns.call(Rtnl.open) as fresh:
        assert [info.name for info in fresh.links()] == ["lo", "eth0"]
    with netns.call(Rtnl.open) as fresh:
        found = fresh.link("eth0")
        assert found is not None
        assert found.index == eth0
        assert fresh.index_of("eth0") == eth0
        assert found == fresh.link(eth0)
