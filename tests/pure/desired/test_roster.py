"""Leases are data from strangers: what is believed, what is refused, and what a change touches."""

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

import pytest

from tests.pure.desired.rosters import OURS, changed, data, listed, peer, roster
from tests.support import builders
from weft.desired.backends import wireguard
from weft.desired.claims import Claim
from weft.desired.leasecheck import Judge
from weft.desired.roster import Roster
from weft.model.lease import LeaseAttrs, Tunnel, Way
from weft.model.net import Endpoint
from weft.model.value import replace

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def test_well_behaved_leases_are_believed_and_the_own_is_no_peer():
    peers = roster()
    assert listed(peers, [peer(1), peer(2), peer(3)]) == {"10.5.2.0-24", "10.5.3.0-24"}
    assert peers.believed.keys() == {"10.5.2.0-24", "10.5.3.0-24"}
    assert not peers.refused


def test_nodes_in_a_wide_network_that_holds_the_pods_too_reach_each_other():
    """Nodes in 10.0.0.0/8 on one link, pods in 10.5.0.0/16."""
    peers = Roster(replace(OURS, prefixes=(IPv4Network("10.0.0.0/8"), *OURS.prefixes)), own_ids=["10.5.1.0-24"])
    assert listed(peers, [peer(2), peer(201)]) == {"10.5.2.0-24"}


@pytest.mark.parametrize(
    "changes,reason",
    [
        ({"v4": IPv4Network("10.6.2.0/24")}, "outside the cluster's network"),
        ({"v4": IPv4Network("0.0.0.0/0")}, "outside the cluster's network"),
        ({"v4": IPv4Network("10.5.0.0/16")}, "whole network"),
        ({"v6": IPv6Network("2001:db8::/64")}, "outside the cluster's network"),
        ({"v4": IPv4Network("10.5.1.128/25")}, "overlaps our subnet"),
        ({"v4": IPv4Network("10.5.0.0/23")}, "overlaps our subnet"),
        ({"v4": IPv4Network("10.5.200.0/24")}, "overlaps this node's address 10.5.200.9"),
        ({"v4": IPv4Network("10.5.201.0/24")}, "overlaps a prefix on this node's link"),
        ({"public_ip": builders.public_v4(1)}, "is an address of this node"),
        ({"public_ip": IPv4Address("127.0.0.9")}, "cannot be a node's"),
        ({"public_ip": IPv4Address(0)}, "cannot be a node's"),
        ({"public_ip": IPv4Address("224.0.0.5")}, "cannot be a node's"),
        ({"public_ip": IPv4Address("255.255.255.255")}, "cannot be a node's"),
        ({"public_ip": IPv4Address("192.168.0.255")}, "is the broadcast address of this node's link"),
        ({"public_ip": IPv4Address("10.5.2.9")}, "inside the lease's own subnet"),
        ({"data": data(builders.mac(1))}, "one of the two is a clone"),
    ],
)
def test_a_harmful_lease_is_refused_by_id_and_code(changes: dict[str, object], reason: str):
    peers = roster()
    assert listed(peers, [peer(2, **changes), peer(3)]) == {"10.5.3.0-24"}
    problem = peers.refused["10.5.2.0-24"]
    assert (problem.code, problem.where) == ("ADDR-002", "lease 10.5.2.0-24")
    assert reason in problem.seen


def way(*remotes: str) -> Way:
    return Way(kind="vxlan", remotes=tuple(map(ip_address, remotes)))


def test_nodes_of_two_sites_may_have_the_same_address_if_each_has_a_way():
    """Both have this node's address at home."""
    same = {"public_ip": builders.public_v4(1), "public_ipv6": None, "data_v6": None}
    one, other = peer(2, **same, way=way("198.51.100.7")), peer(3, **same, way=way("198.51.100.7"))
    fourth = peer(5, **same, way=way(str(builders.public_v4(1))))
    third = peer(4, **same, way=Way(kind="vxlan", via="node2", bases=(ip_address("10.5.2.0"),)))
    peers = roster()
    assert listed(peers, [one, other, third, fourth]) == {one.id, other.id, third.id, fourth.id}
    assert changed(peers, put=[replace(one, way=way("198.51.100.8"))]) == {one.id}


def test_what_else_a_lease_with_a_way_says_is_claimed_as_any_other():
    older, newer = peer(2, way=way("198.51.100.7")), peer(3, way=way("198.51.100.8"), data=data(builders.mac(2)))
    peers = roster()
    assert listed(peers, [older, newer]) == {older.id}
    assert "VTEP MAC" in peers.refused[newer.id].seen


@pytest.mark.parametrize(
    "remote, reason",
    [
        ("224.0.0.5", "its way's address 224.0.0.5 cannot be a node's"),
        ("192.168.0.255", "is the broadcast address of this node's link"),
        ("10.5.77.1", "its way's address 10.5.77.1 lies inside the cluster's network"),
        ("fc00:0:0:9::1", "its way's address fc00:0:0:9::1 lies inside the cluster's network"),
    ],
)
def test_a_lease_whose_way_leads_nowhere_is_refused(remote: str, reason: str):
    peers = roster()
    bad = peer(2, way=way(remote))
    tunnel = Tunnel(key=builders.key(2), endpoint=Endpoint(ip_address(remote), 51820))
    sealed = peer(4, way=replace(way("198.51.100.7"), kind="direct", tunnel=tunnel))
    assert listed(peers, [bad, sealed, peer(3)]) == {"10.5.3.0-24"}
    assert all(reason in peers.refused[each.id].seen for each in (bad, sealed))


def test_what_a_lease_says_of_a_family_that_is_off_does_no_harm():
    """Nodes of a dual-stack Kubernetes have podCIDRs of both families, whatever the network is of."""
    peers = Roster(replace(OURS, networks=tuple(net for net in OURS.networks if net.version == 4)))
    both, alone = peer(2, v6=IPv6Network("2001:db8::/64")), peer(3, v4=None, v6=IPv6Network("2001:db8:1::/64"))
    assert listed(peers, [both, alone]) == {both.id}
    assert peers.refused[alone.id].seen == "no subnet of a family that is on"


def test_of_two_leases_with_one_wireguard_key_the_older_is_believed_however_it_is_spelt():
    """The kernel knows a peer by its key: a second one would take the first one's addresses."""
    said = builders.key(7)
    last = _BASE64[_BASE64.index(said[-2]) + 1]  # 256 bits leave two of the last digit free
    of = {"backend": "wireguard", "data_v6": None}
    old = peer(2, **of, data={"PublicKey": said}, created=5)
    new = peer(3, **of, data={"PublicKey": f"{said[:-2]}{last}="}, created=6)
    other = peer(4, **of, data={"PublicKey": builders.key(8)}, created=7)
    peers = roster(wireguard)
    assert listed(peers, [new, old, other]) == {old.id, other.id}
    assert peers.refused[new.id].seen == f"claims key {said} like lease {old.id}, which had it first"
    assert changed(peers, gone=[old.id]) == {old.id, new.id}
    assert new.id in peers.believed


@pytest.mark.parametrize("said", [{"PublicKey": 7}, {"PublicKey": "short"}, {"PublicKey": "*" * 44}, "text", None])
def test_a_key_that_cannot_be_read_is_no_claim(said):
    peers = roster(wireguard)
    both = [peer(number, backend="wireguard", data=said, data_v6=None) for number in (2, 3)]
    assert listed(peers, both) == {lease.id for lease in both}


def test_one_key_for_both_families_is_a_nodes_own():
    said = {"PublicKey": builders.key(7)}
    assert listed(roster(wireguard), [peer(2, backend="wireguard", data=said, data_v6=said)])


def test_a_peer_with_this_nodes_own_key_is_a_clone():
    peers = Roster(replace(OURS, claims=frozenset(keys(7))), claiming=wireguard.claims)
    copy = peer(2, backend="wireguard", data={"PublicKey": builders.key(7)}, data_v6=None)
    listed(peers, [copy])
    said = f"claims key {builders.key(7)}, which is this node's own: one of the two is a clone"
    assert peers.refused[copy.id].seen == said


def keys(number: int) -> tuple[Claim, ...]:
    return wireguard.claims(LeaseAttrs(public_ip=None, data={"PublicKey": builders.key(number)}))


@pytest.mark.parametrize("length, last, believed", [(31, 1, True), (30, 3, False), (30, 2, True)])
def test_the_last_address_of_a_link_is_a_nodes_only_where_there_is_no_broadcast(length, last, believed):
    """RFC 3021: both addresses of a /31 are nodes'."""
    link = IPv4Network(f"192.0.2.0/{length}")
    peers = Roster(replace(OURS, prefixes=(link,)))
    listed(peers, [peer(2, public_ip=link[last])])
    assert bool(peers.believed) is believed


def test_addresses_outside_of_the_networks_cost_a_subnet_nothing():
    """A node that is Service proxy by IPVS has an address for each Service."""
    services = {IPv4Address("10.96.0.0") + number for number in range(5000)}
    judge = Judge(replace(OURS, addresses=OURS.addresses | services))
    assert judge._obstacles == Judge(OURS)._obstacles
    problem = judge.harm(peer(2, public_ip=IPv4Address("10.96.0.7")), ())
    assert problem is not None
    assert "public IP 10.96.0.7 is an address of this node" in problem.seen
    assert "'weft explain ADDR-002'" in problem.hint


@pytest.mark.parametrize(
    "copy",
    [
        {"public_ip": builders.public_v4(2)},
        {"public_ipv6": builders.public_v6(2)},
        {"data": data(builders.mac(2))},
        {"v4": IPv4Network("10.5.2.0/24")},
        {"v4": IPv4Network("10.5.2.128/25")},
        {"v4": IPv4Network("10.5.2.0/23")},
    ],
)
@pytest.mark.parametrize("how", ["together", "older first", "newer first"])
def test_of_two_claims_the_one_that_came_first_is_believed_and_of_those_that_came_together_the_older(
    copy: dict[str, object], how: str
):
    older, newer = peer(2, public_ipv6=builders.public_v6(2)), peer(3, **copy)
    peers = roster()
    batches = {"together": [[newer, older]], "older first": [[older], [newer]], "newer first": [[newer], [older]]}
    for batch in batches[how]:
        changed(peers, put=batch)
    first, second = (newer, older) if how == "newer first" else (older, newer)
    assert peers.believed.keys() == {first.id}
    assert f"lease {first.id}, which had it first" in peers.refused[second.id].seen
    assert changed(peers, gone=[first.id]) == {first.id, second.id}
    assert peers.believed.keys() == {second.id}
    assert not peers.refused


def test_a_refused_lease_takes_nobody_along():
    first, second, third = peer(2), peer(3, public_ip=builders.public_v4(2)), peer(4)
    third = replace(third, attrs=replace(third.attrs, data=second.attrs.data))
    peers = roster()
    listed(peers, [first, second, third])
    assert peers.believed.keys() == {first.id, third.id}  # the second lost already: it refuses nobody


def test_a_refusal_is_news_once_and_again_for_another_reason():
    peers = roster()
    changed(peers, put=[peer(2, public_ip=IPv4Address("127.0.0.9")), peer(3)])
    assert [problem.where for problem in peers.news().values()] == ["lease 10.5.2.0-24"]
    assert peers.news() == {}
    changed(peers, put=[peer(2, public_ip=IPv4Address("224.0.0.9"))])
    assert len(peers.news()) == 1
    assert {lease.id for lease in peers.leases} == {"10.5.2.0-24", "10.5.3.0-24"}


def test_a_refused_lease_that_is_touched_is_no_news():
    """Whoever may write can put it again a thousand times a second, and each time say something else beside."""
    peers = roster()
    listed(peers, [peer(2), peer(3, public_ip=builders.public_v4(2)), peer(4, public_ip=IPv4Address("127.0.0.9"))])
    assert len(peers.news()) == 2
    for backend in ("a", "b", "c"):
        touched = [peer(3, public_ip=builders.public_v4(2)), peer(4, public_ip=IPv4Address("127.0.0.9"))]
        changed(peers, put=[replace(each, attrs=replace(each.attrs, backend=backend)) for each in touched])
    assert peers.news() == {}
    assert len(peers.refused) == 2


def test_a_mac_for_ipv6_alone_counts_too():
    attrs = LeaseAttrs(public_ip=builders.public_v4(2), data_v6=data(builders.mac(1)))
    peers = roster()
    changed(peers, put=[replace(peer(2), attrs=attrs)])
    assert "clone" in peers.refused["10.5.2.0-24"].seen


def test_only_what_a_change_touches_is_returned():
    peers = roster()
    listed(peers, [peer(node) for node in range(2, 50)])
    assert changed(peers, put=[peer(7)]) == set()  # a renewal changes nothing
    assert changed(peers, put=[peer(7, public_ip=builders.public_v4(77))]) == {"10.5.7.0-24"}
    assert changed(peers, gone=["10.5.8.0-24", "unknown"]) == {"10.5.8.0-24"}
    assert listed(peers, [peer(9)]) == {f"10.5.{node}.0-24" for node in range(2, 50) if node not in (8, 9)}


def test_what_a_lease_claims_is_looked_at_when_it_is_judged_not_when_the_list_comes():
    """To look at 5,000 at a stretch held the event loop for 70 ms."""
    looked: list[LeaseAttrs] = []
    peers = Roster(OURS, claiming=lambda attrs: (looked.append(attrs), ())[1])
    peers.note_list([peer(node) for node in range(2, 52)])
    assert looked == []
    peers.judge(20)
    assert len(looked) == 20
    peers.judge()
    assert len(looked) == len(peers.believed) == 50


def test_data_that_is_no_vxlan_data_claims_nothing():
    peers = roster()
    listed(
        peers,
        [peer(2, data=None), peer(3, data="text"), peer(4, data={"VtepMAC": "nonsense"}), peer(5, data={"VtepMAC": 3})],
    )
    assert len(peers.believed) == 4  # the backend refuses them, each for itself


def test_a_lease_tells_since_when_its_verdict_holds():
    peers = roster()

    def since(node: int) -> float:
        return peers.known(peer(node).id)[1]

    peers.note(put=[peer(2), peer(3, public_ip=builders.public_v4(2), created=9)])
    peers.judge(now=10.0)
    assert (since(2), since(3)) == (10.0, 10.0)
    assert peers.refused.keys() == {peer(3).id}
    peers.judge_by(OURS)
    peers.judge(now=20.0)
    assert (since(2), since(3)) == (10.0, 10.0), "judged anew, and the same"
    peers.note(put=[peer(2, public_ip=builders.public_v4(9))])
    assert since(2) == 10.0
    peers.judge(now=30.0)
    assert (since(2), since(3)) == (30.0, 30.0), "served otherwise, and served at last"
    assert peers.served_since(peer(2).id) == 30.0
    peers.note_unproven([(peer(2, public_ip=builders.public_v4(9)), 99.0)])
    peers.judge(now=40.0)
    assert since(2) == 30.0, "it is served as before"
