"""Ways round policies: messages of IPv6 neighbours that are sent elsewhere, and what IPVS sends from hook output."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_address

import pytest

from tests.support.policy.deciding import SETTINGS
from tests.support.policy.packets import MARK
from tests.support.policy.site import ALL, GATEWAYS, LATE, PLACES, Site, pod_ips
from tests.support.policy.worlds import STRANGERS
from weft.desired.policy.decide import PolicyDecider
from weft.desired.policy.inputs import Attached
from weft.model.kernel.objects import Key, Object
from weft.model.policy import EVERYTHING, NAME_LABEL, Namespace, Pod, Policy
from weft.model.value import replace

FAR = "2001:db8::7"
KINDS = (*range(130, 138), 143)


@pytest.fixture(scope="module", params=["bridge", "ptp"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(request.param, stack)


def shut(site: Site, *, ipvs: bool = False) -> dict[Key, Object]:
    """All of the namespace's pods: nothing leaves them."""
    made = PolicyDecider(replace(SETTINGS, ipvs=ipvs))
    made.change([Namespace(name="a", labels={NAME_LABEL: "a"})])
    made.change([Policy(namespace="a", name="shut", pods=EVERYTHING, egress=())])
    for place in range(PLACES):
        ips, port = tuple(map(ip_address, pod_ips(place))), f"veth-pod{place}"
        made.change([Pod(namespace="a", name=f"pod{place}", labels={}, ips=ips)])
        link = "cni0" if site.links == "bridge" else port
        made.attached(f"{place}", Attached(pod=f"a/pod{place}", ips=ips, port=port, link=link))
    return made.wanted


def told(site: Site, hops: int) -> set[int]:
    """Send a message of each kind to somebody beyond the node; return those that are heard there."""

    def listening() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL))
        made.bind(("eth0", ALL))
        made.setblocking(False)
        return made

    def say() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as sock:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
            for kind in KINDS:
                sock.sendto(bytes((kind, 0, 0, 0)) + bytes(20) + MARK, (FAR, 0))

    with site.beyond.call(listening) as ear:
        site.pods[0].call(say)
        time.sleep(LATE)
        found = set[int]()
        with suppress(BlockingIOError):
            while True:
                packet = ear.recv(4096)
                if packet[6] == socket.IPPROTO_ICMPV6 and MARK in packet:
                    found.add(packet[40])
        return found


@pytest.mark.parametrize("hops", [255, 64, 2])
def test_who_may_send_nothing_tells_nobody_elsewhere_as_a_neighbour(site, hops):
    site.hold({})
    assert told(site, hops) == set(KINDS), "the trial itself is not right"
    site.hold(shut(site))
    assert told(site, hops) == set()


@pytest.mark.parametrize("site", ["bridge"], indirect=True)
def test_neighbours_of_one_bridge_find_each_other_whatever_they_may_send(site):
    site.hold(shut(site))
    other = pod_ips(1)[1]
    site.pods[0].run(f"ip -6 neigh flush dev eth0; ping -6 -c 1 -W 1 {other} || true")
    assert "lladdr" in site.pods[0].run(f"ip -6 neigh show {other}")


def test_what_the_node_sends_on_for_others_as_ipvs_does_is_judged_by_its_sender(site):
    """Packets of pods that leave by hook output, made by hand, since few kernels have IPVS."""
    site.hold(shut(site, ipvs=True))
    flows = [(pod_ips(0)[v6], to, "TCP", 80) for v6 in (0, 1) for to in (pod_ips(1)[v6], STRANGERS[v6][0])]
    flows += [(GATEWAYS[v6], pod_ips(1)[v6], "TCP", 80) for v6 in (0, 1)]
    assert site.arrive(flows, [False] * 4 + [True] * 2, by=site.node) == [False] * 4 + [True] * 2
    site.hold({})
    assert all(site.arrive(flows, [True] * 6, by=site.node)), "the trial itself is not right"


@pytest.mark.parametrize("family", [4, 6])
def test_who_goes_on_answering_on_a_connection_that_was_cut_keeps_it_shut(site, family):
    site.hold(shut(site))
    source, target, cut = pod_ips(0)[family == 6], STRANGERS[family == 6][0], f"cut{family}"
    ends = f"{source} . {target} . udp . 5000 . 53"
    site.node.run(f"nft add element inet weft-policy {cut} '{{ {ends} timeout 3h expires 1m }}'")

    def answer() -> None:
        with socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("", 5000))
            sock.sendto(MARK, (target, 53))

    site.pods[0].call(answer)
    assert "expires 2h59m" in site.node.run(f"nft list set inet weft-policy {cut}")
