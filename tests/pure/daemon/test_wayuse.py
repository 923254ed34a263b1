"""Which paths pods use: packets by vxlan's entries and WireGuard's counters, without echoes and what WireGuard says."""

from ipaddress import IPv4Address, IPv4Network

from weft.daemon.ways import Use
from weft.desired.tunnels.wireguard import LivePeer, Peer
from weft.model.lease import Lease, LeaseAttrs, Tunnel, Way

REMOTE = IPv4Address("192.168.7.2")
LEASE = Lease(
    id="n2",
    v4=IPv4Network("10.32.2.0/24"),
    v6=None,
    attrs=LeaseAttrs(public_ip=REMOTE),
    way=Way(kind="vxlan", remotes=(REMOTE,), tunnel=Tunnel(key="k")),
)


class Counted:
    """A peer's counter, which is looked at each second."""

    def __init__(self) -> None:
        self.use = Use()
        self.now = 0.0
        self.sent = 0

    def looks(self, sent: int = 0) -> bool:
        """Tell whether the path is in use, after so many bytes more have been sent."""
        self.now += 1
        self.sent += sent
        live = LivePeer(peer=Peer(key="k", endpoint=None), networks=frozenset(), handshake=0, sent=self.sent)
        return self.use.look([LEASE], {}, {"k": live}, self.now) == {"n2"}

    def echo(self) -> None:
        self.use.echoed(LEASE, "direct", self.now, sent=44)  # 80 bytes in WireGuard


def test_what_goes_to_a_peer_by_wireguard_is_use_for_three_seconds():
    counted = Counted()
    assert not counted.looks(10_000)  # of before
    assert counted.looks(80)
    assert [counted.looks() for _ in range(4)] == [True, True, False, False]


def test_echoes_keepalives_and_answers_to_a_peer_s_echoes_are_no_use():
    counted = Counted()
    counted.looks()
    for _ in range(20):
        counted.echo()
        assert not counted.looks(80 + 32)


def test_an_echo_that_is_counted_sooner_or_later_than_its_packet_is_no_use():
    counted = Counted()
    counted.looks()
    counted.echo()
    assert not counted.looks(0)
    assert not counted.looks(80)
    assert not counted.looks(0)


def test_a_packet_that_was_no_echo_is_use_of_a_forwarding_entry():
    use = Use()
    use.echoed(LEASE, "vxlan", 10.0)
    assert use.look([LEASE], {REMOTE: 1.0}, {}, 11.0) == set()
    assert use.look([LEASE], {REMOTE: 0.5}, {}, 11.0) == {"n2"}
