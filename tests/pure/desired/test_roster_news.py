"""What is refused is told once, and again when the reason is another."""

from ipaddress import IPv4Address

from tests.pure.desired.rosters import changed, listed
from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.leasecheck import Ours
from weft.desired.roster import Roster

OURS = Ours(networks=(builders.NETWORK_V4,), addresses=frozenset({builders.public_v4(9)}))


def test_a_refusal_is_news_once_and_again_for_another_reason():
    roster = Roster(OURS)
    listed(roster, [builders.lease(2, vxlan), builders.lease(3, vxlan, public_ip=builders.public_v4(9))])
    [news] = roster.news().values()
    assert (news.where, news.seen) == ("lease 10.5.3.0-24", "public IP 192.168.0.9 is an address of this node")
    assert roster.news() == {}
    changed(roster, put=[builders.lease(4, vxlan)])
    assert roster.news() == {}
    changed(roster, put=[builders.lease(3, vxlan, public_ip=IPv4Address("224.0.0.1"))])
    assert [problem.seen for problem in roster.news().values()] == ["public IP 224.0.0.1 cannot be a node's"]
    changed(roster, put=[builders.lease(3, vxlan)])
    assert roster.news() == {}
    assert not roster.refused


def test_nodes_may_live_inside_the_network_where_no_subnet_covers_them():
    roster = Roster(OURS)
    old, new = builders.lease(2, vxlan, public_ip=builders.subnet_v4(7)[3]), builders.lease(7, vxlan)
    listed(roster, [old])
    assert roster.believed.keys() == {old.id}
    assert changed(roster, put=[new]) == set()
    assert "like lease 10.5.2.0-24, which had it first" in roster.refused[new.id].seen
    assert changed(roster, gone=[old.id]) == {old.id, new.id}
    assert roster.believed.keys() == {new.id}


def test_a_public_address_inside_our_own_subnet_is_refused():
    own = builders.subnet_v4(1)
    roster = Roster(Ours(networks=(builders.NETWORK_V4,), subnets=(own,)))
    listed(roster, [builders.lease(2, vxlan, public_ip=own[3])])
    [news] = roster.news().values()
    assert "lies inside our subnet" in news.seen
