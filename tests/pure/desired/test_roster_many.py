"""Thousands of leases: what a judgement costs, and what may clash."""

import time
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.pure.desired.rosters import changed, data, listed, peer, roster
from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.claims import Claims
from weft.desired.leasecheck import Judge, Ours
from weft.desired.roster import Roster
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import replace


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
    listed(peers, copies)
    assert peers.believed.keys() == {"0"}
    assert peers.refusals == len(copies) - 1
    assert "like lease 0, which" in peers.refused["1999"].seen
    assert len(judged) == len(copies)
    judged.clear()
    for node in range(1000):
        assert changed(peers, gone=[str(node)]) == {str(node), str(node + 1)}
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
    listed(peers, [*narrow, *wide])
    assert peers.believed.keys() == {lease.id for lease in narrow}
    assert len(looks) == 1
    assert changed(peers, gone=[lease.id for lease in narrow]) == {lease.id for lease in [*narrow, wide[0]]}


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


def test_a_wide_young_lease_does_not_make_each_event_judge_everybody(monkeypatch):
    peers = Roster(Ours(networks=(builders.NETWORK_V4,)))
    listed(
        peers, [*(peer(node) for node in range(2, 150)), replace(peer(150), v4=IPv4Network("10.5.0.0/17"), created=999)]
    )
    assert len(peers.believed) == 148
    judged = judgements(monkeypatch)
    assert changed(peers, put=[peer(7, data=data(builders.mac(177)))]) == {"10.5.7.0-24"}
    assert judged == ["10.5.7.0-24"]
    assert "10.5.150.0-24" in peers.refused


@pytest.mark.long
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
        listed(peers, [*many, *more])
        assert len(peers.believed) == 3000
        return time.process_time() - start

    # Five hundred times, if each were compared with all.
    assert min(seconds(narrow) for _ in range(3)) < 50 * min(seconds() for _ in range(3))


def test_leases_of_other_lengths_clash_only_where_they_share_addresses():
    wide = replace(peer(4), id="wide", v4=IPv4Network("10.5.8.0/22"), created=1)
    inside = replace(peer(5), id="inside", v4=IPv4Network("10.5.9.0/24"), created=2)
    beside = replace(peer(6), id="beside", v4=IPv4Network("10.5.12.0/24"), created=3)
    roster = Roster(Ours(networks=(IPv4Network("10.5.0.0/16"),)))
    listed(roster, [wide, inside, beside])
    assert roster.believed.keys() == {"wide", "beside"}
