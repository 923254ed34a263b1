"""Leases that change, are spoilt or get lost: who is served, and who keeps what."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.pure.desired.rosters import OURS, changed, data, listed, nonsense, peer, roster
from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.decide import Decider
from weft.desired.roster import Roster
from weft.model.lease import Lease
from weft.model.value import replace


def test_an_older_nodes_change_takes_nothing_from_a_younger_one():
    """As one annotation of an older node did: it claims the younger one's address, or its MAC."""
    old, young = peer(2, created=1), peer(3, created=2)
    for claim in ({"public_ip": builders.public_v4(3)}, {"data": data(builders.mac(3))}):
        peers = roster()
        listed(peers, [old, young])
        thief = replace(old, attrs=replace(old.attrs, **claim))
        assert changed(peers, put=[thief]) == set()
        assert peers.believed == {old.id: old, young.id: young}
        doubt = peers.doubt(old.id)
        assert doubt is not None
        assert "like lease 10.5.3.0-24, which had it first" in doubt.seen
        assert changed(peers, gone=[young.id]) == {old.id, young.id}
        assert peers.believed == {old.id: thief}
        assert peers.doubt(old.id) is None


def test_a_node_that_joins_as_another_claims_loses_whatever_its_age():
    young, late = peer(3, created=200), peer(2, public_ip=builders.public_v4(3), created=1)
    peers = roster()
    listed(peers, [young])
    assert changed(peers, put=[late]) == set()
    assert peers.believed == {young.id: young}


def test_two_nodes_that_change_places_one_after_the_other_are_both_served():
    """The first one's new address is the other's until that moves; what it had before is free for the other."""
    one, other = peer(2), peer(3)
    moved = replace(one, attrs=replace(one.attrs, public_ip=builders.public_v4(3)))
    away = replace(other, attrs=replace(other.attrs, public_ip=builders.public_v4(2)))
    peers = roster()
    listed(peers, [one, other])
    assert changed(peers, put=[moved]) == set()
    assert changed(peers, put=[away]) == {one.id, other.id}
    assert peers.believed == {one.id: moved, other.id: away}


def test_what_a_change_left_is_anothers_who_claims_it():
    one, other = peer(2), peer(3)
    thief = replace(one, attrs=replace(one.attrs, public_ip=builders.public_v4(3)))
    peers = roster()
    listed(peers, [one, other])
    changed(peers, put=[thief])
    new = peer(4, public_ip=builders.public_v4(2))
    assert changed(peers, put=[new]) == {one.id, new.id}
    assert peers.believed == {other.id: other, new.id: new}
    assert peers.refused.keys() == {one.id}
    assert peers.known(one.id)[0] == thief


@pytest.mark.parametrize("node_ip", [builders.public_v4(1), IPv4Address("127.0.0.1"), IPv4Address("224.0.0.1")])
def test_a_peer_that_would_do_harm_is_served_as_before(node_ip):
    peers = roster()
    listed(peers, [peer(2)])
    assert changed(peers, put=[peer(2, public_ip=node_ip)]) == set()
    assert peers.believed[peer(2).id] == peer(2)
    assert changed(peers, put=[peer(2, public_ip=node_ip, created=77)]) == {peer(2).id}, "that is another lease"
    assert not peers.believed


@pytest.mark.parametrize(
    "said", [None, "text", {}, {"VtepMAC": "zz"}, {"VtepMAC": 7}, {"VtepMAC": "01:00:5e:00:00:01"}]
)
def test_a_peer_whose_data_become_nonsense_is_served_as_before(said):
    own = builders.inputs(1)
    peers = Roster(OURS, claiming=vxlan.claims, usable=Decider(own, {}).trouble)
    listed(peers, [peer(2), peer(3, data=said)])
    assert changed(peers, put=[peer(2, data=said)]) == set()
    assert peers.believed[peer(2).id] == peer(2)
    assert peers.doubt(peer(2).id) is not None
    moved = peer(2, data=data(builders.mac(22)))
    assert changed(peers, put=[moved]) == {moved.id}
    assert peers.believed[moved.id] == moved
    assert peers.doubt(moved.id) is None


@pytest.mark.parametrize(
    "bent",
    [
        peer(2, data={"VtepMAC": "zz"}),
        peer(2, backend="nonsense"),
        peer(2, public_ip=IPv4Address("127.0.0.1")),
        peer(2, public_ip=builders.public_v4(3)),
        None,
    ],
    ids=["data", "back-end", "harm", "another's", "unreadable"],
)
def test_a_peer_that_is_served_as_before_is_kept_as_that_when_the_store_has_lost_it(bent: Lease | None):
    peers = Roster(OURS, claiming=vxlan.claims, usable=Decider(builders.inputs(1), {}).trouble)
    listed(peers, [peer(2), peer(3), peer(5)])
    never = peer(4, public_ip=IPv4Address("127.0.0.1"))
    changed(
        peers, put=[never, *([] if bent is None else [bent])], malformed=[nonsense(peer(2))] if bent is None else []
    )
    assert peers.doubt(peer(2).id) is not None
    peers.note_list([peer(3)], keep_until=100.0)
    assert peers.judge() == set()
    assert peers.unproven == {peer(2).id: 100.0, peer(5).id: 100.0}
    assert peers.believed == {each.id: each for each in (peer(2), peer(3), peer(5))}
    assert peers.doubt(peer(2).id) is None
    assert not peers.refused
    back = peer(2, data=data(builders.mac(22)), created=1000)
    assert changed(peers, put=[back]) == {back.id}
    assert peers.believed[back.id] == back
    assert not peers.refused


def test_ours_may_come_to_lie_where_a_peer_was_before():
    peers = roster()
    listed(peers, [peer(2), peer(3)])
    changed(peers, put=[peer(2, public_ip=IPv4Address("127.0.0.1"))])
    peers.judge_by(replace(OURS, subnets=(builders.subnet_v4(2),)))
    assert peers.judge() == {peer(2).id}
    assert peers.believed.keys() == {peer(3).id}


def test_our_own_lease_is_no_peers_whether_it_can_be_read_or_not():
    peers = roster()
    assert changed(peers, put=[peer(1)], malformed=[nonsense(peer(1))]) == set()
    assert not peers.refused


def test_what_a_store_has_lost_and_cannot_be_read_is_there():
    peers = roster()
    listed(peers, [peer(2), peer(3)])
    peers.note_list([], keep_until=100.0, malformed=[nonsense(peer(2))])
    assert peers.judge() == set()
    assert peers.unproven == {peer(3).id: 100.0}
    changed(peers, malformed=[nonsense(peer(3))])
    assert not peers.unproven
    assert peers.believed.keys() == {peer(2).id, peer(3).id}


def test_what_a_store_has_lost_is_served_until_its_time_is_over():
    peers = roster()
    listed(peers, [peer(2), peer(3), peer(4), peer(5, public_ip=builders.public_v4(2))])
    peers.note_list([peer(3)], keep_until=100.0, own=[peer(4)])
    assert peers.judge() == {"10.5.4.0-24"}, "what is ours now is not lost"
    assert peers.believed.keys() == {"10.5.2.0-24", "10.5.3.0-24"}
    assert peers.refusals == 0
    assert peers.unproven == {"10.5.2.0-24": 100.0}
    assert listed(peers, [peer(3)]) == set(), "the next list proves as little"
    peers.note_list([], keep_until=200.0)
    assert peers.judge() == set()
    assert peers.unproven == {"10.5.2.0-24": 100.0, "10.5.3.0-24": 200.0}
    peers.expire(100.0)
    assert peers.judge() == {"10.5.2.0-24"}
    assert peers.superseded() == [("10.5.2.0-24", "its time is over")]
    assert changed(peers, put=[peer(3)]) == set(), "the node came back as it was"
    assert not peers.unproven
    assert listed(peers, []) == {"10.5.3.0-24"}


@pytest.mark.parametrize(
    "claim",
    [
        replace(peer(9), v4=builders.subnet_v4(2)),
        replace(peer(9), v4=IPv4Network("10.5.2.128/25")),
        peer(9, public_ip=builders.public_v4(2)),  # the same node with another subnet
    ],
    ids=["subnet", "part-of-it", "address"],
)
def test_what_a_store_has_lost_goes_for_good_when_another_claims_what_is_its(claim: Lease):
    peers = roster()
    listed(peers, [peer(2), peer(3)])
    peers.note_list([replace(claim, created=1000)], keep_until=100.0)
    assert peers.judge() == {"10.5.2.0-24", claim.id}
    assert [name for name, _ in peers.superseded()] == ["10.5.2.0-24"]
    assert changed(peers, gone=[claim.id]) == {claim.id}
    assert peers.believed.keys() == {"10.5.3.0-24"}
    assert not peers.refused


@pytest.mark.parametrize("came", ["event", "list"])
@pytest.mark.parametrize(
    "back",
    [peer(2, created=1000), peer(2, data=data(builders.mac(22)), created=1000), peer(2, data=data(builders.mac(22)))],
    ids=["as-a-new-key", "with-another-mac", "changed"],
)
def test_what_a_store_has_lost_is_proven_once_its_node_writes_it_again(back: Lease, came: str):
    peers = roster()
    listed(peers, [peer(2), peer(3)])
    peers.note_list([peer(3)], keep_until=100.0)
    if came == "event":
        changed(peers, put=[back])
    else:
        listed(peers, [peer(3), back])
    assert not peers.unproven
    peers.expire(100.0)
    assert peers.judge() == set()
    assert peers.believed["10.5.2.0-24"] == back
    assert listed(peers, [peer(3)]) == {"10.5.2.0-24"}, "a list that lacks it proves that it is gone"


def test_what_a_store_has_lost_goes_when_it_is_ours_now():
    peers = roster()
    listed(peers, [peer(2), peer(3)])
    peers.note_list([], keep_until=100.0)
    peers.judge_by(replace(OURS, subnets=(builders.subnet_v4(2),)))
    assert peers.judge() == {"10.5.2.0-24"}
    assert not peers.refused


def test_what_is_remembered_as_lost_is_served_until_a_list_says_otherwise():
    peers = roster()
    peers.note_unproven([(peer(2), 100.0), (peer(3), 100.0)])
    peers.note_list([peer(3)])
    assert peers.judge() == {"10.5.2.0-24", "10.5.3.0-24"}
    assert peers.unproven.keys() == {"10.5.2.0-24"}


def test_who_waits_takes_from_nobody_what_he_came_to_have_meanwhile():
    """The second claims what the first has, the third what the second has."""
    first, second, third = (
        replace(peer(node), created=node, attrs=peer(shared, data=data(builders.mac(mac))).attrs)
        for node, shared, mac in ((2, 20, 30), (3, 20, 40), (4, 21, 40))
    )
    peers = roster()
    listed(peers, [first, second, third])
    assert peers.believed.keys() == {first.id, third.id}
    assert changed(peers, gone=[first.id]) == {first.id}
    assert peers.believed.keys() == {third.id}, "who has it keeps it"
    assert changed(peers, gone=[third.id]) == {second.id, third.id}
    assert changed(peers, put=[first]) == set()
    assert changed(peers, gone=[second.id]) == {first.id, second.id}
