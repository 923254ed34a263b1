"""Leases are data from strangers: what is believed, what is refused, and what a change touches."""

import time
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import mostly
from tests.pure.reach import reached, reaches
from tests.support import builders
from weft.desired import backends as every
from weft.desired.backends import hostgw, vxlan, wireguard
from weft.desired.claims import Claim, Claims
from weft.desired.decide import Decider
from weft.desired.inputs import Backend
from weft.desired.leasecheck import Judge, Ours
from weft.desired.roster import Roster
from weft.model.cluster import Malformed
from weft.model.errors import PeerError, Problem
from weft.model.kernel.objects import Route
from weft.model.lease import Lease, LeaseAttrs, Tunnel, Way
from weft.model.net import Endpoint
from weft.model.value import replace

OURS = Ours(
    networks=(builders.NETWORK_V4, builders.NETWORK_V6),
    subnets=(builders.subnet_v4(1), builders.subnet_v6(1)),
    addresses=frozenset({builders.public_v4(1), builders.public_v6(1), IPv4Address("10.5.200.9")}),
    prefixes=(IPv4Network("192.168.0.0/24"), IPv4Network("10.5.201.0/28"), IPv6Network("fd00::/64")),
    claims=frozenset({builders.mac(1)}),
)

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def roster(backend: Backend = vxlan) -> Roster:
    return Roster(OURS, own_ids=["10.5.1.0-24"], claiming=backend.claims)


def peer(node: int, **changes: object) -> Lease:
    attrs = {key: changes.pop(key) for key in list(changes) if key in LeaseAttrs.__slots__}
    return replace(builders.lease(node, vxlan, **attrs), **changes)


def data(mac: object) -> dict[str, object]:
    return {"VNI": 1, "VtepMAC": str(mac)}


def test_well_behaved_leases_are_believed_and_the_own_is_no_peer():
    peers = roster()
    assert peers.listed([peer(1), peer(2), peer(3)]) == {"10.5.2.0-24", "10.5.3.0-24"}
    assert peers.believed.keys() == {"10.5.2.0-24", "10.5.3.0-24"}
    assert not peers.refused


def test_nodes_in_a_wide_network_that_holds_the_pods_too_reach_each_other():
    """Nodes in 10.0.0.0/8 on one link, pods in 10.5.0.0/16."""
    peers = Roster(replace(OURS, prefixes=(IPv4Network("10.0.0.0/8"), *OURS.prefixes)), own_ids=["10.5.1.0-24"])
    assert peers.listed([peer(2), peer(201)]) == {"10.5.2.0-24"}


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
    assert peers.listed([peer(2, **changes), peer(3)]) == {"10.5.3.0-24"}
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
    assert peers.listed([one, other, third, fourth]) == {one.id, other.id, third.id, fourth.id}
    assert peers.changed(put=[replace(one, way=way("198.51.100.8"))]) == {one.id}


def test_what_else_a_lease_with_a_way_says_is_claimed_as_any_other():
    older, newer = peer(2, way=way("198.51.100.7")), peer(3, way=way("198.51.100.8"), data=data(builders.mac(2)))
    peers = roster()
    assert peers.listed([older, newer]) == {older.id}
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
    assert peers.listed([bad, sealed, peer(3)]) == {"10.5.3.0-24"}
    assert all(reason in peers.refused[each.id].seen for each in (bad, sealed))


def test_what_a_lease_says_of_a_family_that_is_off_does_no_harm():
    """Nodes of a dual-stack Kubernetes have podCIDRs of both families, whatever the network is of."""
    peers = Roster(replace(OURS, networks=tuple(net for net in OURS.networks if net.version == 4)))
    both, alone = peer(2, v6=IPv6Network("2001:db8::/64")), peer(3, v4=None, v6=IPv6Network("2001:db8:1::/64"))
    assert peers.listed([both, alone]) == {both.id}
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
    assert peers.listed([new, old, other]) == {old.id, other.id}
    assert peers.refused[new.id].seen == f"claims key {said} like lease {old.id}, which had it first"
    assert peers.changed(gone=[old.id]) == {old.id, new.id}
    assert new.id in peers.believed


@pytest.mark.parametrize("said", [{"PublicKey": 7}, {"PublicKey": "short"}, {"PublicKey": "*" * 44}, "text", None])
def test_a_key_that_cannot_be_read_is_no_claim(said):
    peers = roster(wireguard)
    both = [peer(number, backend="wireguard", data=said, data_v6=None) for number in (2, 3)]
    assert peers.listed(both) == {lease.id for lease in both}


def test_one_key_for_both_families_is_a_nodes_own():
    said = {"PublicKey": builders.key(7)}
    assert roster(wireguard).listed([peer(2, backend="wireguard", data=said, data_v6=said)])


def test_a_peer_with_this_nodes_own_key_is_a_clone():
    peers = Roster(replace(OURS, claims=frozenset(keys(7))), claiming=wireguard.claims)
    copy = peer(2, backend="wireguard", data={"PublicKey": builders.key(7)}, data_v6=None)
    peers.listed([copy])
    said = f"claims key {builders.key(7)}, which is this node's own: one of the two is a clone"
    assert peers.refused[copy.id].seen == said


def keys(number: int) -> tuple[Claim, ...]:
    return wireguard.claims(LeaseAttrs(public_ip=None, data={"PublicKey": builders.key(number)}))


@pytest.mark.parametrize("length, last, believed", [(31, 1, True), (30, 3, False), (30, 2, True)])
def test_the_last_address_of_a_link_is_a_nodes_only_where_there_is_no_broadcast(length, last, believed):
    """RFC 3021: both addresses of a /31 are nodes'."""
    link = IPv4Network(f"192.0.2.0/{length}")
    peers = Roster(replace(OURS, prefixes=(link,)))
    peers.listed([peer(2, public_ip=link[last])])
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
        peers.changed(put=batch)
    first, second = (newer, older) if how == "newer first" else (older, newer)
    assert peers.believed.keys() == {first.id}
    assert f"lease {first.id}, which had it first" in peers.refused[second.id].seen
    assert peers.changed(gone=[first.id]) == {first.id, second.id}
    assert peers.believed.keys() == {second.id}
    assert not peers.refused


def test_a_refused_lease_takes_nobody_along():
    first, second, third = peer(2), peer(3, public_ip=builders.public_v4(2)), peer(4)
    third = replace(third, attrs=replace(third.attrs, data=second.attrs.data))
    peers = roster()
    peers.listed([first, second, third])
    assert peers.believed.keys() == {first.id, third.id}  # the second lost already: it refuses nobody


def test_a_refusal_is_news_once_and_again_for_another_reason():
    peers = roster()
    peers.changed(put=[peer(2, public_ip=IPv4Address("127.0.0.9")), peer(3)])
    assert [problem.where for problem in peers.news().values()] == ["lease 10.5.2.0-24"]
    assert peers.news() == {}
    peers.changed(put=[peer(2, public_ip=IPv4Address("224.0.0.9"))])
    assert len(peers.news()) == 1
    assert {lease.id for lease in peers.leases} == {"10.5.2.0-24", "10.5.3.0-24"}


def test_a_refused_lease_that_is_touched_is_no_news():
    """Whoever may write can put it again a thousand times a second, and each time say something else beside."""
    peers = roster()
    peers.listed([peer(2), peer(3, public_ip=builders.public_v4(2)), peer(4, public_ip=IPv4Address("127.0.0.9"))])
    assert len(peers.news()) == 2
    for backend in ("a", "b", "c"):
        changed = [peer(3, public_ip=builders.public_v4(2)), peer(4, public_ip=IPv4Address("127.0.0.9"))]
        peers.changed(put=[replace(each, attrs=replace(each.attrs, backend=backend)) for each in changed])
    assert peers.news() == {}
    assert len(peers.refused) == 2


def test_a_mac_for_ipv6_alone_counts_too():
    attrs = LeaseAttrs(public_ip=builders.public_v4(2), data_v6=data(builders.mac(1)))
    peers = roster()
    peers.changed(put=[replace(peer(2), attrs=attrs)])
    assert "clone" in peers.refused["10.5.2.0-24"].seen


def test_only_what_a_change_touches_is_returned():
    peers = roster()
    peers.listed([peer(node) for node in range(2, 50)])
    assert peers.changed(put=[peer(7)]) == set()  # a renewal changes nothing
    assert peers.changed(put=[peer(7, public_ip=builders.public_v4(77))]) == {"10.5.7.0-24"}
    assert peers.changed(gone=["10.5.8.0-24", "unknown"]) == {"10.5.8.0-24"}
    assert peers.listed([peer(9)]) == {f"10.5.{node}.0-24" for node in range(2, 50) if node not in (8, 9)}


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
    peers.listed(
        [peer(2, data=None), peer(3, data="text"), peer(4, data={"VtepMAC": "nonsense"}), peer(5, data={"VtepMAC": 3})]
    )
    assert len(peers.believed) == 4  # the backend refuses them, each for itself


addresses = st.one_of(
    st.integers(2, 5).map(builders.public_v4),
    st.none(),
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 5).map(builders.public_v4),
    st.sampled_from(["127.0.0.1", "224.0.0.1", "10.5.3.1", "255.255.255.255"]).map(IPv4Address),
)
subnets = st.one_of(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(lambda pair: IPv4Network(pair, strict=False)),
    st.tuples(st.integers(0, 12), st.integers(14, 28)).map(
        lambda pair: IPv4Network((int(builders.subnet_v4(pair[0]).network_address), pair[1]), strict=False)
    ),
    st.integers(0, 12).map(builders.subnet_v4),
)
addresses_v6 = st.one_of(
    st.integers(2, 5).map(builders.public_v6),
    st.none(),
    st.ip_addresses(v=6),
    st.sampled_from(["::1", "ff02::1", "fe80::1", "fc00:0:0:3::1", "::"]).map(IPv6Address),
)
subnets_v6 = st.one_of(
    st.tuples(st.integers(0, 2**128 - 1), st.integers(0, 128)).map(lambda pair: IPv6Network(pair, strict=False)),
    st.tuples(st.integers(0, 12), st.integers(46, 70)).map(
        lambda pair: IPv6Network((int(builders.subnet_v6(pair[0]).network_address), pair[1]), strict=False)
    ),
    st.integers(0, 12).map(builders.subnet_v6),
)
payloads = st.one_of(
    st.none(),
    st.text(),
    st.integers(0, 4).map(lambda node: data(builders.mac(node))),
    st.binary(min_size=6, max_size=6).map(lambda raw: data(raw.hex(":"))),
    st.dictionaries(st.text(), st.integers()),
)
attributes = st.builds(
    LeaseAttrs,
    public_ip=addresses,
    public_ipv6=addresses_v6,
    backend=st.sampled_from(["vxlan", "host-gw", ""]),
    data=payloads,
    data_v6=payloads,
)
strangers = st.one_of(
    [
        st.builds(Lease, id=st.text(min_size=1, max_size=3), v4=v4, v6=v6, attrs=attributes, created=st.integers(0, 5))
        for v4, v6 in ((subnets, st.none()), (subnets, subnets_v6), (st.none(), subnets_v6))
    ]
)


@st.composite
def bent_leases(draw: st.DrawFn, backends: st.SearchStrategy[Any]) -> Lease:
    """What a node publishes, as it is or with something in it that is another's or wrong."""
    node, family = draw(st.integers(0, 8)), draw(st.sampled_from(["4", "6", "46"]))
    lease = builders.lease(node, draw(backends), family=family)
    changed = draw(
        st.sampled_from(["", "", "id", "v4", "v6", "created", "public_ip", "public_ipv6", "data", "data_v6"])
    )
    if changed in ("public_ip", "public_ipv6", "data", "data_v6"):
        other = {"public_ip": addresses, "public_ipv6": addresses_v6}.get(changed, payloads)
        return replace(lease, attrs=replace(lease.attrs, **{changed: draw(other)}))
    if changed in ("v4", "v6") and getattr(lease, changed) is None:
        return lease
    other = {"id": st.text(min_size=1, max_size=3), "v4": subnets, "v6": subnets_v6, "created": st.integers(0, 5)}
    return replace(lease, **{changed: draw(other[changed])}) if changed else lease


BACKENDS = st.sampled_from([vxlan, hostgw])
hostile = mostly(bent_leases(BACKENDS), strangers)


@reaches(route_v4=0.1, route_v6=0.1, refused=0.2)
@given(st.lists(hostile, min_size=1, max_size=12), BACKENDS)
def test_no_set_of_leases_yields_a_route_outside_the_network(leases: list[Lease], backend):
    peers = roster()
    peers.listed(leases)
    if peers.refused:
        reached("refused")
    own = builders.inputs(
        1,
        family="46",
        backend="vxlan" if backend is vxlan else "host-gw",
        **({"direct_routing": True} if backend is vxlan else {}),
    )
    routes = []
    for lease in peers.believed.values():
        try:
            state = backend.peer(own, lease)
        except PeerError:
            continue
        routes += [thing.dst for thing in state if isinstance(thing, Route)]
    for network, own_subnet in (
        (builders.NETWORK_V4, builders.subnet_v4(1)),
        (builders.NETWORK_V6, builders.subnet_v6(1)),
    ):
        of_family = [dst for dst in routes if dst.version == network.version]
        if of_family:
            reached(f"route_v{network.version}")
        assert all(dst.subnet_of(network) and dst != network for dst in of_family)
        assert not any(dst.overlaps(own_subnet) for dst in of_family)
        assert not any(a.overlaps(b) for a, b in pairwise(sorted(of_family)))


def nonsense(lease: Lease) -> Malformed:
    problem = Problem(code="ADDR-002", where=f"lease {lease.id}", seen="nonsense")
    return Malformed(id=lease.id, problem=problem, created=lease.created)


def meet(one: Lease, other: Lease) -> bool:
    """Tell whether two leases claim the same address, MAC or subnet, by another way than the roster's."""
    publics = [{each.attrs.public_ip, each.attrs.public_ipv6} - {None} for each in (one, other)]
    if publics[0] & publics[1] or {*vxlan.claims(one.attrs)} & {*vxlan.claims(other.attrs)}:
        return True
    return any(a.version == b.version and a.overlaps(b) for a in one.subnets for b in other.subnets)


class Written:
    """A store that anybody writes to, and a roster that is told of it. What is None cannot be read."""

    def __init__(self, most: int) -> None:
        self.peers = roster()
        self.store: dict[str, Lease | None] = {}
        self._most = most

    def do(self, what: str, lease: Lease) -> None:
        if what == "put":
            self.store[lease.id] = lease
            self.peers.note(put=[lease])
        elif what == "gone":
            self.store.pop(lease.id, None)
            self.peers.note(gone=[lease.id])
        elif what == "spoilt":
            self.peers.note(malformed=[nonsense(self.store.get(lease.id) or self.peers.believed.get(lease.id, lease))])
            self.store[lease.id] = None
        elif what == "list":
            self.list_to(self.peers)
        else:
            self.peers.judge_by(OURS)
        while not self.peers.settled:
            self.peers.judge(self._most)

    def list_to(self, peers: Roster) -> None:
        leases = [lease for lease in self.store.values() if lease is not None]
        spoilt = [name for name, lease in self.store.items() if lease is None]
        peers.note_list(leases, malformed=[nonsense(peers.believed.get(name, peer(9, id=name))) for name in spoilt])


ids = st.sampled_from([f"10.5.{node}.0-24" for node in range(2, 7)])
writers = st.builds(replace, mostly(bent_leases(BACKENDS), strangers), id=ids)
kinds = st.sampled_from(["put", "put", "put", "put", "gone", "spoilt", "list", "ours"])


@reaches(refused=0.2, doubted=0.05)
@given(st.lists(st.tuples(kinds, writers), min_size=2, max_size=12), st.integers(0, 2))
def test_nobody_takes_from_a_peer_what_it_has(changes: list[tuple[str, Lease]], most: int):
    """Whatever others write, and in which order: who says the same as before is served as before."""
    written = Written(most)
    peers = written.peers
    for what, lease in changes:
        before = {name: now for name, now in peers.believed.items() if name != lease.id or what in ("list", "ours")}
        as_said = {name: now for name, now in before.items() if written.store[name] == now}
        spoilt = peers.believed.get(lease.id) if what == "spoilt" else None
        written.do(what, lease)
        assert as_said.items() <= peers.believed.items()
        assert spoilt is None or peers.believed[lease.id] == spoilt
        assert not any(meet(a, b) for a, b in combinations(peers.believed.values(), 2))
        assert peers.believed.keys() | peers.refused.keys() == written.store.keys()
        assert peers.refusals == len(peers.refused) == len(written.store) - len(peers.believed)
        if peers.refused:
            reached("refused")
        if any(peers.doubt(name) for name in peers.believed):
            reached("doubted")
    again = roster()
    again.recall(peers.worth_keeping, {})
    again.judge()
    assert again.believed == peers.believed, "a restart changes nothing"
    written.list_to(again)
    again.judge()
    assert peers.believed.items() <= again.believed.items(), "nor does the list that comes after it"
    peers.listed([])
    held = peers._claims
    assert not any((held._holders, held._lengths, held._lines, held._covered)), "nothing is left of them"
    assert not any((peers._entries, peers._former, peers._believed, peers._refused, peers._garbled, peers._unreadable))


def test_an_older_nodes_change_takes_nothing_from_a_younger_one():
    """As one annotation of an older node did: it claims the younger one's address, or its MAC."""
    old, young = peer(2, created=1), peer(3, created=2)
    for claim in ({"public_ip": builders.public_v4(3)}, {"data": data(builders.mac(3))}):
        peers = roster()
        peers.listed([old, young])
        thief = replace(old, attrs=replace(old.attrs, **claim))
        assert peers.changed(put=[thief]) == set()
        assert peers.believed == {old.id: old, young.id: young}
        doubt = peers.doubt(old.id)
        assert doubt is not None
        assert "like lease 10.5.3.0-24, which had it first" in doubt.seen
        assert peers.changed(gone=[young.id]) == {old.id, young.id}
        assert peers.believed == {old.id: thief}
        assert peers.doubt(old.id) is None


def test_a_node_that_joins_as_another_claims_loses_whatever_its_age():
    young, late = peer(3, created=200), peer(2, public_ip=builders.public_v4(3), created=1)
    peers = roster()
    peers.listed([young])
    assert peers.changed(put=[late]) == set()
    assert peers.believed == {young.id: young}


def test_two_nodes_that_change_places_one_after_the_other_are_both_served():
    """The first one's new address is the other's until that moves; what it had before is free for the other."""
    one, other = peer(2), peer(3)
    moved = replace(one, attrs=replace(one.attrs, public_ip=builders.public_v4(3)))
    away = replace(other, attrs=replace(other.attrs, public_ip=builders.public_v4(2)))
    peers = roster()
    peers.listed([one, other])
    assert peers.changed(put=[moved]) == set()
    assert peers.changed(put=[away]) == {one.id, other.id}
    assert peers.believed == {one.id: moved, other.id: away}


def test_what_a_change_left_is_anothers_who_claims_it():
    one, other = peer(2), peer(3)
    thief = replace(one, attrs=replace(one.attrs, public_ip=builders.public_v4(3)))
    peers = roster()
    peers.listed([one, other])
    peers.changed(put=[thief])
    new = peer(4, public_ip=builders.public_v4(2))
    assert peers.changed(put=[new]) == {one.id, new.id}
    assert peers.believed == {other.id: other, new.id: new}
    assert peers.refused.keys() == {one.id}
    assert peers.known(one.id)[0] == thief


@pytest.mark.parametrize("node_ip", [builders.public_v4(1), IPv4Address("127.0.0.1"), IPv4Address("224.0.0.1")])
def test_a_peer_that_would_do_harm_is_served_as_before(node_ip):
    peers = roster()
    peers.listed([peer(2)])
    assert peers.changed(put=[peer(2, public_ip=node_ip)]) == set()
    assert peers.believed[peer(2).id] == peer(2)
    assert peers.changed(put=[peer(2, public_ip=node_ip, created=77)]) == {peer(2).id}, "that is another lease"
    assert not peers.believed


@pytest.mark.parametrize(
    "said", [None, "text", {}, {"VtepMAC": "zz"}, {"VtepMAC": 7}, {"VtepMAC": "01:00:5e:00:00:01"}]
)
def test_a_peer_whose_data_become_nonsense_is_served_as_before(said):
    own = builders.inputs(1)
    peers = Roster(OURS, claiming=vxlan.claims, usable=Decider(own, {}).trouble)
    peers.listed([peer(2), peer(3, data=said)])
    assert peers.changed(put=[peer(2, data=said)]) == set()
    assert peers.believed[peer(2).id] == peer(2)
    assert peers.doubt(peer(2).id) is not None
    moved = peer(2, data=data(builders.mac(22)))
    assert peers.changed(put=[moved]) == {moved.id}
    assert peers.believed[moved.id] == moved
    assert peers.doubt(moved.id) is None


@given(
    st.text(min_size=1, max_size=20).filter(lambda name: name not in every.BACKENDS),
    st.sampled_from([None, {}, data(builders.mac(22))]),
)
def test_a_peer_whose_back_end_becomes_one_that_no_node_has_is_served_as_before(name: str, said: object):
    """Until it says the name of one that there is: then it has moved, and is reached no more as it was."""
    own = builders.inputs(1)
    peers = Roster(OURS, claiming=vxlan.claims, usable=Decider(own, {}).trouble)
    peers.listed([peer(2), peer(3, backend="wireguard")])
    bent = peer(2, backend=name, data=said)
    assert peers.changed(put=[bent, peer(3, backend=name)]) == set()
    assert peers.believed[peer(2).id] == peer(2)
    doubt = peers.doubt(peer(2).id)
    assert doubt is not None
    assert doubt.code == "ADDR-002"
    for kind in ("host-gw", "", "vxlan"):  # "" is udp's
        moved = peer(2, backend=kind, data=data(builders.mac(22)))
        assert peers.changed(put=[moved]) == {moved.id}
        assert peers.believed[moved.id] == moved


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
    peers.listed([peer(2), peer(3), peer(5)])
    never = peer(4, public_ip=IPv4Address("127.0.0.1"))
    peers.changed(put=[never, *([] if bent is None else [bent])], malformed=[nonsense(peer(2))] if bent is None else [])
    assert peers.doubt(peer(2).id) is not None
    peers.note_list([peer(3)], keep_until=100.0)
    assert peers.judge() == set()
    assert peers.unproven == {peer(2).id: 100.0, peer(5).id: 100.0}
    assert peers.believed == {each.id: each for each in (peer(2), peer(3), peer(5))}
    assert peers.doubt(peer(2).id) is None
    assert not peers.refused
    back = peer(2, data=data(builders.mac(22)), created=1000)
    assert peers.changed(put=[back]) == {back.id}
    assert peers.believed[back.id] == back
    assert not peers.refused


def test_ours_may_come_to_lie_where_a_peer_was_before():
    peers = roster()
    peers.listed([peer(2), peer(3)])
    peers.changed(put=[peer(2, public_ip=IPv4Address("127.0.0.1"))])
    peers.judge_by(replace(OURS, subnets=(builders.subnet_v4(2),)))
    assert peers.judge() == {peer(2).id}
    assert peers.believed.keys() == {peer(3).id}


def test_our_own_lease_is_no_peers_whether_it_can_be_read_or_not():
    peers = roster()
    assert peers.changed(put=[peer(1)], malformed=[nonsense(peer(1))]) == set()
    assert not peers.refused


def test_what_a_store_has_lost_and_cannot_be_read_is_there():
    peers = roster()
    peers.listed([peer(2), peer(3)])
    peers.note_list([], keep_until=100.0, malformed=[nonsense(peer(2))])
    assert peers.judge() == set()
    assert peers.unproven == {peer(3).id: 100.0}
    peers.changed(malformed=[nonsense(peer(3))])
    assert not peers.unproven
    assert peers.believed.keys() == {peer(2).id, peer(3).id}


@given(st.lists(hostile, max_size=10), st.lists(st.tuples(st.booleans(), hostile), max_size=8), st.integers(1, 3))
def test_slices_come_to_the_same_and_keep_what_was_served(
    leases: list[Lease], changes: list[tuple[bool, Lease]], most: int
):
    whole, sliced = roster(), roster()
    whole.listed(leases)
    sliced.note_list(leases)
    for put, lease in changes:
        arguments = {"put": [lease]} if put else {"gone": [lease.id]}
        whole.changed(**arguments)
        sliced.note(**arguments)
        sliced.judge(most)
    while not sliced.settled:
        before = dict(sliced.believed)
        touched = sliced.judge(most)
        after = sliced.believed
        assert {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)} <= touched
    names = [lease.id for lease in leases] + [lease.id for put, lease in changes if put]
    if len(set(names)) == len(names):  # else what was served before counts, which slices may not have come to
        assert sliced.believed == whole.believed
        assert sliced.refused.keys() == whole.refused.keys()


def judgements(monkeypatch) -> list[str]:
    """The ids of the leases that are judged from now on, each time that one is."""
    judged: list[str] = []
    harm = Judge.harm
    monkeypatch.setattr(Judge, "harm", lambda self, lease, macs: judged.append(lease.id) or harm(self, lease, macs))
    return judged


def test_of_thousands_that_share_a_claim_one_is_judged_when_the_first_goes(monkeypatch):
    """A look at all of them at each step took seconds, in which the daemon did nothing else."""
    copies = [
        replace(peer(2), id=str(node), v4=IPv4Network((0x0B000000 + (node << 8), 24)), created=node)
        for node in range(2000)
    ]
    peers = Roster(Ours(networks=(IPv4Network("11.0.0.0/8"),)))
    judged = judgements(monkeypatch)
    peers.listed(copies)
    assert peers.believed.keys() == {"0"}
    assert peers.refusals == len(copies) - 1
    assert "like lease 0, which" in peers.refused["1999"].seen
    assert len(judged) == len(copies)
    judged.clear()
    for node in range(1000):
        assert peers.changed(gone=[str(node)]) == {str(node), str(node + 1)}
    assert judged == [str(node + 1) for node in range(1000)]
    assert "like lease 1000, which" in peers.refused["1999"].seen
    assert len(peers.news()) == 999, "those that are still refused are so for the reason of before"


def test_twins_that_overlap_thousands_are_kept_out_by_the_one_that_was_found(monkeypatch):
    """One of the first that is judged is older than each of them, and all that lie in them need not be looked at."""
    narrow = [replace(peer(node), created=node) for node in range(2, 100)]
    wide = [replace(peer(150 + node), v4=IPv4Network("10.5.0.0/17"), id=str(node), created=500) for node in range(20)]
    peers = Roster(Ours(networks=(builders.NETWORK_V4,)))
    looks = []
    overlapping = Claims._overlapping
    monkeypatch.setattr(
        Claims, "_overlapping", lambda self, base: (looks.append(each) or each for each in overlapping(self, base))
    )
    peers.listed([*narrow, *wide])
    assert peers.believed.keys() == {lease.id for lease in narrow}
    assert len(looks) == 1
    assert peers.changed(gone=[lease.id for lease in narrow]) == {lease.id for lease in [*narrow, wide[0]]}


def test_judging_in_slices_takes_no_more_than_it_was_asked_for(monkeypatch):
    peers = roster()
    peers.note_list(peer(node) for node in range(2, 102))
    judged = judgements(monkeypatch)
    sizes = []
    while not peers.settled:
        judged.clear()
        sizes.append(len(peers.judge(30)))
        assert len(judged) <= 30
    assert sizes[:4] == [30, 30, 30, 10]


def test_what_a_store_has_lost_is_served_until_its_time_is_over():
    peers = roster()
    peers.listed([peer(2), peer(3), peer(4), peer(5, public_ip=builders.public_v4(2))])
    peers.note_list([peer(3)], keep_until=100.0, own=[peer(4)])
    assert peers.judge() == {"10.5.4.0-24"}, "what is ours now is not lost"
    assert peers.believed.keys() == {"10.5.2.0-24", "10.5.3.0-24"}
    assert peers.refusals == 0
    assert peers.unproven == {"10.5.2.0-24": 100.0}
    assert peers.listed([peer(3)]) == set(), "the next list proves as little"
    peers.note_list([], keep_until=200.0)
    assert peers.judge() == set()
    assert peers.unproven == {"10.5.2.0-24": 100.0, "10.5.3.0-24": 200.0}
    peers.expire(100.0)
    assert peers.judge() == {"10.5.2.0-24"}
    assert peers.superseded() == [("10.5.2.0-24", "its time is over")]
    assert peers.changed(put=[peer(3)]) == set(), "the node came back as it was"
    assert not peers.unproven
    assert peers.listed([]) == {"10.5.3.0-24"}


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
    peers.listed([peer(2), peer(3)])
    peers.note_list([replace(claim, created=1000)], keep_until=100.0)
    assert peers.judge() == {"10.5.2.0-24", claim.id}
    assert [name for name, _ in peers.superseded()] == ["10.5.2.0-24"]
    assert peers.changed(gone=[claim.id]) == {claim.id}
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
    peers.listed([peer(2), peer(3)])
    peers.note_list([peer(3)], keep_until=100.0)
    if came == "event":
        peers.changed(put=[back])
    else:
        peers.listed([peer(3), back])
    assert not peers.unproven
    peers.expire(100.0)
    assert peers.judge() == set()
    assert peers.believed["10.5.2.0-24"] == back
    assert peers.listed([peer(3)]) == {"10.5.2.0-24"}, "a list that lacks it proves that it is gone"


def test_what_a_store_has_lost_goes_when_it_is_ours_now():
    peers = roster()
    peers.listed([peer(2), peer(3)])
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


def test_a_wide_young_lease_does_not_make_each_event_judge_everybody(monkeypatch):
    peers = Roster(Ours(networks=(builders.NETWORK_V4,)))
    peers.listed(
        [*(peer(node) for node in range(2, 150)), replace(peer(150), v4=IPv4Network("10.5.0.0/17"), created=999)]
    )
    assert len(peers.believed) == 148
    judged = judgements(monkeypatch)
    assert peers.changed(put=[peer(7, data=data(builders.mac(177)))]) == {"10.5.7.0-24"}
    assert judged == ["10.5.7.0-24"]
    assert "10.5.150.0-24" in peers.refused


def test_who_waits_takes_from_nobody_what_he_came_to_have_meanwhile():
    """The second claims what the first has, the third what the second has."""
    first, second, third = (
        replace(peer(node), created=node, attrs=peer(shared, data=data(builders.mac(mac))).attrs)
        for node, shared, mac in ((2, 20, 30), (3, 20, 40), (4, 21, 40))
    )
    peers = roster()
    peers.listed([first, second, third])
    assert peers.believed.keys() == {first.id, third.id}
    assert peers.changed(gone=[first.id]) == {first.id}
    assert peers.believed.keys() == {third.id}, "who has it keeps it"
    assert peers.changed(gone=[third.id]) == {second.id, third.id}
    assert peers.changed(put=[first]) == set()
    assert peers.changed(gone=[second.id]) == {first.id, second.id}


def test_one_lease_of_another_length_does_not_make_thousands_dear():
    """Each subnet would be compared with every other one: ten seconds in which the daemon does nothing else."""
    many = [
        replace(builders.lease(2, vxlan), id=str(node), v4=IPv4Network((0x0B000000 + (node << 8), 24)), created=node)
        for node in range(3000)
    ]
    many = [replace(each, attrs=LeaseAttrs(public_ip=IPv4Address(0xAC100000 + each.created))) for each in many]
    narrow = replace(peer(3), v4=IPv4Network("11.9.9.0/28"), created=9000)

    def seconds(*more: Lease) -> float:
        peers = Roster(Ours(networks=(IPv4Network("11.0.0.0/8"),)))
        start = time.process_time()
        peers.listed([*many, *more])
        assert len(peers.believed) == 3000
        return time.process_time() - start

    # Five hundred times, if each were compared with all.
    assert min(seconds(narrow) for _ in range(3)) < 50 * min(seconds() for _ in range(3))


def test_leases_of_other_lengths_clash_only_where_they_share_addresses():
    wide = replace(peer(4), id="wide", v4=IPv4Network("10.5.8.0/22"), created=1)
    inside = replace(peer(5), id="inside", v4=IPv4Network("10.5.9.0/24"), created=2)
    beside = replace(peer(6), id="beside", v4=IPv4Network("10.5.12.0/24"), created=3)
    roster = Roster(Ours(networks=(IPv4Network("10.5.0.0/16"),)))
    roster.listed([wide, inside, beside])
    assert roster.believed.keys() == {"wide", "beside"}


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
