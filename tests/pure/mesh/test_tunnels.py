"""How our WireGuard looks from outside, and where each peer's is tried, by hand and second by second."""

from math import inf
from random import Random

import pytest

from tests.pure.mesh.test_links import ME, RING, hello, key
from weft.mesh.links import Link
from weft.mesh.outside import Outside
from weft.mesh.state import State
from weft.mesh.tunnels import SELDOM, SESSION, SILENT, TURN, Tunnels
from weft.model.lease import WayKind
from weft.model.mesh import effects as do
from weft.model.mesh.records import MANY_PORTS, NO_NAT, ONE_PORT, Member

OWN = "192.168.1.2:51820"
SEEN = "198.51.100.1:4001"
THEIRS = "192.168.7.3:51820"
BEYOND = "203.0.113.9:4002"
OPEN = "203.0.113.1:51820"


class Node:
    """We, with links to peers 1 … `links`."""

    def __init__(self, links: int = 3, own: tuple[str, ...] = (OWN,)) -> None:
        self.state = State(do.Kept(ring=RING), do.Options(key=ME, run=9, name="me"), Random(1).random)
        self.outside = Outside(self.state)
        self.tunnels = Tunnels(self.state, self.outside)
        self.links = {number: self.link(number) for number in range(1, links + 1)}
        self.outside.own(own)
        self.now = 100.0
        self.last = -inf  # when the handshake with peer 5 was

    def link(self, number: int, *, to: int = 0) -> Link:
        made = Link(number=number, hello=hello(to or number), dialled=None, since=0.0, heard=0.0, ring=RING.id)
        self.state.links.up(made, 0.0)
        return made

    def hears(self, *words: tuple[int, str]) -> None:
        for number, text in words:
            self.outside.heard(self.links[number], text)

    @property
    def says(self) -> tuple[int, tuple[str, ...]]:
        return self.outside.nat, self.outside.tunnels

    def put(self, *tunnels: str, nat: int = NO_NAT, number: int = 5) -> None:
        self.tunnels.put(key(number), member(*tunnels, nat=nat, number=number), self.now)

    def met(self, at: str, *, age: float | None = 0.0, number: int = 5) -> None:
        seen = do.TunnelSeen(key=key(number), endpoint=at, handshake=age)
        self.tunnels.saw(do.Sights(tunnels=(seen,)), self.now)
        self.last = -inf if age is None else self.now - age

    def tried(self, seconds: float, *, echoes: bool = False) -> list[str]:
        """Where peer 5 is looked for in turn."""
        places, end = [self.tunnels.endpoint(key(5))], self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.met("", age=self.now - self.last if self.last > -inf else None)
            if echoes:
                self.tunnels.asked(key(5), self.now)
            if self.now >= self.tunnels.due:
                self.tunnels.tick(self.now)
            if (place := self.tunnels.endpoint(key(5))) != places[-1]:
                places.append(place)
        return places


def member(*tunnels: str, nat: int = NO_NAT, number: int = 5) -> Member:
    return Member(key=key(number), run=1, version=1, name=f"n{number}", tunnels=tunnels, nat=nat)


# --- From outside


@pytest.mark.parametrize(
    "words, nat, tunnels",
    [
        ([], NO_NAT, (OWN,)),
        ([(1, OWN)], NO_NAT, (OWN,)),
        ([(1, SEEN)], ONE_PORT, (SEEN, OWN)),
        ([(1, SEEN), (2, SEEN), (3, OWN)], ONE_PORT, (SEEN, OWN)),
        # What one alone has seen counts only where no two have seen the same.
        ([(1, SEEN), (2, SEEN), (3, BEYOND)], ONE_PORT, (SEEN, OWN)),
        ([(1, SEEN), (2, BEYOND)], ONE_PORT, (SEEN, BEYOND, OWN)),
        ([(1, SEEN), (2, "198.51.100.1:4002")], MANY_PORTS, (OWN, SEEN)),
        ([(1, SEEN), (1, BEYOND)], ONE_PORT, (BEYOND, OWN)),
        ([(1, "127.0.0.1:51820"), (2, "300.1.1.1:1"), (3, "10.0.0.1:0")], NO_NAT, (OWN,)),
    ],
)
def test_by_what_neighbours_see_a_node_knows_its_nat(words, nat, tunnels):
    node = Node()
    node.hears(*words)
    assert node.says == (nat, tunnels)


def test_who_is_seen_at_a_public_address_of_its_own_believes_in_a_nat_by_two_words_alone():
    public, six = "1.2.3.4:51820", "[2001:db8::1]:4001"
    node = Node(own=(OWN, public), links=5)
    node.hears((1, public), (2, SEEN))
    assert node.says == (NO_NAT, (OWN, public))
    node.hears((3, SEEN))
    assert node.says == (ONE_PORT, (SEEN, OWN, public))
    node.hears((3, BEYOND), (4, six))
    assert node.says == (ONE_PORT, (six, OWN, public)), "of the other family nobody has said otherwise"


def test_who_has_no_wireguard_is_seen_nowhere():
    node = Node(own=())
    node.hears((1, SEEN))
    assert node.says == (NO_NAT, ())


def test_own_addresses_leave_room_for_what_others_see():
    own = tuple(f"10.0.0.{number}:51820" for number in range(8))
    node = Node(own=own)
    assert node.says == (NO_NAT, own)
    node.hears((1, SEEN))
    assert node.says == (ONE_PORT, (SEEN, *own[:6]))


def test_the_last_word_of_a_neighbour_that_is_lost_counts_while_there_is_no_other():
    node = Node(links=2)
    node.hears((1, SEEN))
    node.state.links.down(1)
    node.outside.own((OWN,))
    assert node.says == (ONE_PORT, (SEEN, OWN))
    node.hears((2, BEYOND))
    assert node.says == (ONE_PORT, (BEYOND, OWN))


def test_a_node_with_other_addresses_is_elsewhere():
    node = Node()
    node.hears((1, SEEN))
    node.outside.own((OPEN,))
    assert node.says == (NO_NAT, (OPEN,))


@pytest.mark.parametrize("nat, tunnels", [(ONE_PORT, (SEEN, OWN)), (MANY_PORTS, (OWN, SEEN))])
def test_after_a_start_the_record_of_before_counts_until_somebody_has_seen_us(nat: int, tunnels: tuple[str, ...]):
    node = Node(own=())
    before = Member(key=ME, run=1, version=1, name="me", tunnels=tunnels, nat=nat)
    node.state.put(before)
    node.outside.begin()
    assert node.says == (nat, tunnels)
    node.outside.own((OWN,))
    assert node.says == (nat, tunnels)
    node.put(BEYOND, nat=ONE_PORT, number=6)
    node.put(SEEN, nat=ONE_PORT)
    assert node.tunnels.doubtful(key(6), "vxlan")
    assert not node.tunnels.doubtful(key(6), "direct")  # who knows whom WireGuard has met before
    assert not node.tunnels.doubtful(key(5), "vxlan")  # it is behind the same
    node.hears((1, OWN))
    assert node.says == (NO_NAT, (OWN,))
    node.outside.own((OPEN,))
    assert node.says == (NO_NAT, (OPEN,))


# --- Where a peer is


def test_an_open_peer_is_where_it_says_and_nothing_has_to_be_kept_open():
    node = Node()
    node.put(OPEN)
    assert (node.tunnels.endpoint(key(5)), node.tunnels.keepalive(key(5))) == (OPEN, False)
    assert node.tried(60, echoes=True) == [OPEN]


def test_who_is_behind_a_nat_keeps_it_open():
    node = Node()
    node.put(OPEN)
    node.hears((1, SEEN))
    assert node.tunnels.keepalive(key(5))


@pytest.mark.parametrize(
    "own, nat, tunnels, order",
    [
        # IPv6 first, if we have it.
        ((OWN, "[2001:db8::2]:51820"), NO_NAT, (OPEN, "[2001:db8::9]:51820"), ["[2001:db8::9]:51820", OPEN]),
        ((OWN,), NO_NAT, ("[2001:db8::9]:51820", OPEN), [OPEN]),
        # What outsiders have seen comes first, but of a peer behind our own NAT what it has itself.
        ((OWN,), ONE_PORT, (BEYOND, THEIRS), [BEYOND, THEIRS]),
        ((OWN,), ONE_PORT, ("198.51.100.1:4009", THEIRS), [THEIRS, "198.51.100.1:4009"]),
        # The port that another one of its NAT has is not ours.
        ((OWN,), MANY_PORTS, (THEIRS, BEYOND), [""]),
        ((OWN,), MANY_PORTS, (THEIRS, "198.51.100.1:4009"), [THEIRS, "198.51.100.1:4009"]),
        ((OWN,), NO_NAT, ("[2001:db8::9]:51820",), [""]),
    ],
)
def test_a_peer_is_looked_for_where_it_is_most_likely(own, nat, tunnels, order):
    node = Node(own=own)
    node.hears((1, SEEN))
    node.put(*tunnels, nat=nat)
    assert node.tried(TURN * (len(order) - 1) + 1, echoes=True) == order


def test_two_behind_nats_are_tried_for_ever_and_a_peer_that_is_asked_once_at_one_further_place():
    node = Node()
    node.put(BEYOND, THEIRS, nat=ONE_PORT)
    node.tunnels.asked(key(5), node.now)
    assert node.tried(60) == [BEYOND, THEIRS]
    node.hears((1, SEEN))
    node.put(BEYOND, THEIRS, nat=ONE_PORT)
    assert node.tried(3 * TURN + 1) == [THEIRS, BEYOND, THEIRS, BEYOND]
    assert len(node.tried(17 * TURN)) >= 17
    assert len(node.tried(5 * SELDOM)) <= 7  # they may never meet


def test_a_peer_that_has_met_us_is_where_it_is_seen_until_its_keys_are_old():
    node = Node()
    node.hears((1, SEEN))
    node.put(BEYOND, THEIRS, nat=ONE_PORT)
    node.tried(2)
    elsewhere = "203.0.113.9:7777"
    node.met(elsewhere)
    node.put(BEYOND, THEIRS, "10.0.0.1:51820", nat=ONE_PORT)
    assert node.tried(SESSION - 1) == [elsewhere]
    assert node.tried(TURN + 2) == [elsewhere, BEYOND]
    node.put(OPEN)
    assert node.tried(TURN) == [OPEN]


def test_a_handshake_is_nothing_when_no_echo_comes_back():
    node = Node()
    node.put(BEYOND, OPEN)
    node.met(BEYOND)
    assert node.tried(SILENT + TURN + 2, echoes=True) == [BEYOND, OPEN]
    node.met(BEYOND)
    assert node.tunnels.endpoint(key(5)) == OPEN
    answers = tuple(
        do.Answer(key=key(number), kind=kind) for number, kind in ((5, "vxlan"), (6, "direct"), (5, "direct"))
    )
    node.tunnels.saw(do.Sights(answered=answers), node.now)
    node.met(BEYOND)
    assert node.tried(TURN) == [BEYOND]


def test_what_is_seen_of_others_changes_nothing():
    node = Node()
    node.tunnels.asked(key(5), node.now)
    node.met(OPEN)
    node.put()
    node.met(OPEN, age=None)
    assert node.tunnels.endpoint(key(5)) == ""
    assert not node.tunnels.keepalive(key(5))
    assert not node.tunnels.doubtful(key(5), "direct")
    assert node.tunnels.reason(key(5)) == ""


def test_a_neighbour_hears_once_where_it_is_seen_and_again_when_that_is_another_place_or_link():
    node = Node(links=1)
    node.put(BEYOND, number=1)
    node.put(BEYOND, number=5)
    for at in (BEYOND, BEYOND, SEEN):
        node.met(at, number=1)
        node.met(at, number=5)  # to which there is no link
    node.state.links.down(1)
    node.met(OPEN, number=1)
    node.link(7, to=1)
    node.met(OPEN, number=1)
    assert [(each.link, each.message.endpoint) for each in node.state.out] == [(1, BEYOND), (1, SEEN), (7, OPEN)]


@pytest.mark.parametrize("gone", [False, True])
def test_of_a_peer_or_a_ring_that_is_gone_nothing_stays(gone):
    node = Node()
    node.hears((1, SEEN))
    node.put(BEYOND, THEIRS, nat=ONE_PORT)
    if gone:
        node.tunnels.put(key(5), None, node.now)
    else:
        node.tunnels.forget()
    assert node.tried(2 * TURN) == [""]


# --- What is in doubt


@pytest.mark.parametrize(
    "ours, theirs, in_doubt, reason",
    [
        (NO_NAT, NO_NAT, (), ""),
        (NO_NAT, ONE_PORT, ("vxlan",), ""),
        (NO_NAT, MANY_PORTS, ("vxlan",), ""),
        (MANY_PORTS, NO_NAT, ("vxlan",), ""),
        (ONE_PORT, ONE_PORT, ("vxlan", "direct"), "nat"),
        (ONE_PORT, MANY_PORTS, ("vxlan", "direct"), "nat-hard"),
        (MANY_PORTS, ONE_PORT, ("vxlan", "direct"), "nat-hard"),
    ],
)
def test_what_crosses_nats_is_in_doubt_before_it_is_proved(ours, theirs, in_doubt: tuple[WayKind, ...], reason):
    node = Node()
    words = {NO_NAT: [(1, OWN)], ONE_PORT: [(1, SEEN)], MANY_PORTS: [(1, SEEN), (2, "198.51.100.1:4002")]}
    node.hears(*words[ours])
    node.put(BEYOND, THEIRS, nat=theirs)
    kinds: tuple[WayKind, ...] = ("vxlan", "direct")
    node.met("", age=None)
    assert [kind for kind in kinds if node.tunnels.doubtful(key(5), kind)] == list(in_doubt)
    assert node.tunnels.reason(key(5)) == reason
    node.met(BEYOND)
    assert not node.tunnels.doubtful(key(5), "direct")
    assert node.tunnels.reason(key(5)) == ""


def test_behind_one_nat_nothing_is_in_doubt():
    node = Node()
    node.hears((1, SEEN))
    node.put("198.51.100.1:4009", THEIRS, nat=ONE_PORT)
    assert not node.tunnels.doubtful(key(5), "vxlan")
    assert not node.tunnels.doubtful(key(5), "direct")
    assert not node.tunnels.keepalive(key(5))


def test_a_peer_of_the_other_family_has_no_address_for_us():
    node = Node()
    node.put("[2001:db8::9]:51820")
    assert node.tunnels.reason(key(5)) == "no-endpoint"


def test_each_peer_is_tried_at_its_own_pace():
    node = Node()
    node.outside.begin()
    node.hears((1, SEEN))
    for number in (5, 6):
        node.put(BEYOND, THEIRS, nat=ONE_PORT, number=number)
        node.met("", age=None, number=number)
        node.now += 2
    node.now += 2.5
    node.tunnels.tick(node.now)
    assert [node.tunnels.endpoint(key(number)) for number in (5, 6)] == [THEIRS, BEYOND]
