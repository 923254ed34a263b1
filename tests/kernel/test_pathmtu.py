"""A packet that is too large is refused, by the own kernel or by a router on the way, and never fragmented."""

import select
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.netns import wire
from weft.kernel import icmp
from weft.kernel.icmp import Refusal

NARROW = 1400
HEADERS = {4: 28, 6: 48}
NETWORKS = {4: ("10.1.0", "10.2.0", ".", 24), 6: ("fd01", "fd02", "::", 64)}


class Site(NamedTuple):
    """A sender's socket, behind whose `router` the link is narrow that leads to `target`."""

    family: int
    sock: socket.socket
    router: str
    target: str

    def send(self, size: int) -> None:
        self.sock.sendto(bytes(size - HEADERS[self.family]), (self.target, 9))


@pytest.fixture(params=[4, 6])
def site(request: pytest.FixtureRequest, make_netns) -> Iterator[Site]:
    family = int(request.param)
    near, far, point, length = NETWORKS[family]
    start, router, end = make_netns(), make_netns(), make_netns()
    wire(start, router, names=("eth0", "near"))
    wire(router, end, names=("far", "eth0"))
    option = "nodad" if family == 6 else ""
    start.run(f"ip address add {near}{point}1/{length} dev eth0 {option}")
    router.run(f"ip address add {near}{point}2/{length} dev near {option}; ip link set far mtu {NARROW}")
    router.run(f"ip address add {far}{point}1/{length} dev far {option}")
    router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
    end.run(f"ip address add {far}{point}2/{length} dev eth0 {option}")
    start.run(f"ip -{family} route add default via {near}{point}2")
    end.run(f"ip -{family} route add default via {far}{point}1")
    opened = socket.AF_INET if family == 4 else socket.AF_INET6
    with start.call(lambda: socket.socket(opened, socket.SOCK_DGRAM)) as sock:
        icmp.never_fragment(sock, family)
        icmp.keep_errors(sock, family)
        yield Site(family, sock, f"{near}{point}2", f"{far}{point}2")


def test_the_own_kernel_refuses_what_its_link_does_not_carry(site: Site):
    with pytest.raises(OSError, match="Message too long"):
        site.send(1501)
    assert icmp.refusals(site.sock, site.family) == [Refusal(mtu=1500)]
    assert icmp.refusals(site.sock, site.family) == []


def test_a_router_says_what_the_next_link_carries_and_is_asked_each_time(site: Site):
    for _ in range(2):
        site.send(NARROW + 1)
        assert select.select([site.sock], [], [], 10)[0]
        assert icmp.refusals(site.sock, site.family) == [Refusal(mtu=NARROW, by=site.router)]


def test_other_errors_are_no_refusals(site: Site):
    site.send(NARROW)  # arrives, where no socket has the port
    assert select.select([site.sock], [], [], 10)[0]
    assert icmp.refusals(site.sock, site.family) == []
