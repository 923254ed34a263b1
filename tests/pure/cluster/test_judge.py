"""What the store holds: ours or not, free or not, whose."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from weft.cluster.etcd import own
from weft.cluster.etcd.values import Entry, Listing, Mark, Proof, proof_in
from weft.cluster.etcd.watch import continues
from weft.model.cluster import Listed, OwnLease
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import replace

PUBLIC, PUBLIC_V6 = IPv4Address("192.168.0.1"), IPv6Address("fd00::1")
BOTH = Lease(
    id="10.5.1.0-24&fc00-64",
    v4=IPv4Network("10.5.1.0/24"),
    v6=IPv6Network("fc00:0:0:1::/64"),
    attrs=LeaseAttrs(public_ip=PUBLIC, public_ipv6=PUBLIC_V6),
    created=1,
)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("10.5.1.0-24", True),
        ("10.5.0.0-16", True),
        ("10.5.1.128-25", True),
        ("10.5.2.0-24", False),
        ("10.5.2.0-24&fc00:0:0:1::-64", True),
        ("10.5.2.0-24&fc00:0:0:2::-64", False),
        ("10.5.1.0-24&fc00:0:0:2::-64", True),
        ("no subnet", False),
    ],
)
def test_a_key_overlaps_a_lease_in_either_family(name: str, expected: bool):
    assert own.overlaps(name, BOTH) is expected


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, True),
        ({"public_ipv6": None}, True),
        ({"public_ipv6": IPv6Address("fd00::2")}, False),
        ({"public_ip": IPv4Address("192.168.0.2")}, False),
        ({"public_ip": None}, False),
        ({"data": {}}, False),
        ({"data_v6": {}}, False),
    ],
)
def test_a_reservation_names_our_address_and_nothing_more(changes: dict[str, object], expected: bool):
    entry = Entry(replace(BOTH, attrs=replace(BOTH.attrs, **changes)), 0, 1)
    assert own.is_bare(entry, BOTH.attrs) is expected


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"backend": "vxlan"}, "backend vxlan"),
        ({}, "backend unknown"),
        ({"backend": "vxlan", "data": {"VtepMAC": "a" * 40}}, 'backend vxlan, data {"VtepMAC": "' + "a" * 40 + '"}'),
        ({"backend": "x", "data": "y" * 4000}, 'backend x, data "' + "y" * 79),
    ],
)
def test_what_a_lease_says_of_its_node(changes: dict[str, object], said: str):
    assert own.who(replace(BOTH, attrs=replace(BOTH.attrs, **changes))) == said


def listing(*entries: Entry) -> Listing:
    return Listing(mark=Mark(revision=9, cluster=1, term=1), entries=entries, blocked=(IPv4Network("10.5.9.0/24"),))


def test_our_own_earlier_key_is_ours_until_somebody_touches_it():
    other = Entry(replace(BOTH, id="10.5.2.0-24"), 8, 8)
    mine = Entry(BOTH, 7, 3)
    recorded = OwnLease(lease=BOTH, expires=None, token=(7, 3))
    assert listing(other, mine).unchanged(recorded) is mine.lease
    assert listing(other).unchanged(recorded) is None
    assert listing(Entry(BOTH, 7, 4)).unchanged(recorded) is None
    assert listing(Entry(BOTH, 9, 3)).unchanged(recorded) is None
    assert listing(mine).unchanged(None) is None


@pytest.mark.parametrize("token", [(), (7,), (7, 3, 1), ("7", 3), (7, -1), (1 << 63, 3)])
def test_a_token_that_another_store_made_proves_nothing(token: tuple[int | str, ...]):
    recorded = OwnLease(lease=BOTH, expires=None, token=token)
    assert proof_in(recorded) == Proof(0, 0)
    assert listing(Entry(BOTH, 7, 3)).unchanged(recorded) is None


@pytest.mark.parametrize("token", [(), (9, 1), ("9", 1, 1)])
def test_of_a_mark_that_another_store_made_nothing_is_lost(token: tuple[int | str, ...]):
    now = Mark(revision=1, cluster=1, term=1)
    assert continues(token, {"gone": 1}, Listed(leases=(), mark=now))
    assert continues(now, {"gone": 1}, Listed(leases=(), mark=token))


def test_what_the_choice_of_a_subnet_looks_at():
    kept, leased = Entry(BOTH, 0, 3), Entry(replace(BOTH, id="10.5.2.0-24"), 7, 3)
    present = listing(kept, leased).present
    assert list(present.leases) == [kept.lease, leased.lease]
    assert present.reserved == {BOTH.id}
    assert present.unreadable == (IPv4Network("10.5.9.0/24"),)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, True),
        ({"revision": 10}, True),
        ({"revision": 8}, False),
        ({"term": 2}, True),
        ({"term": 0}, False),
        ({"cluster": 2}, False),
        ({"cluster": 0}, False),
    ],
)
def test_another_cluster_or_time_that_runs_backwards_is_another_history(changes: dict[str, int], expected: bool):
    now = Mark(revision=9, cluster=1, term=1)
    assert now.precedes(now._replace(**changes)) is expected
