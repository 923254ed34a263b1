"""The decider: what a change touches, and what it says of leases whose data are of no use."""

from tests.pure.desired.rosters import changed, listed
from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.decide import Decider, deciding
from weft.model.lease import Lease


def test_a_lease_that_cannot_be_used_is_news_once_and_again_for_another_reason():
    believed: dict[str, Lease] = {}
    decider = Decider(builders.inputs(1), believed)
    for backend, said in (("host-gw", 1), ("host-gw", 0), ("ipip", 1), ("vxlan", 0), ("ipip", 1)):
        lease = builders.lease(5, vxlan, backend=backend)
        believed[lease.id] = lease
        decider.decide_peers([lease.id])
        assert len(decider.news()) == said, backend
        assert bool(decider.unusable) is (backend != "vxlan")
        assert bool(decider.part(lease.id)) is (backend == "vxlan")


def test_one_change_touches_the_keys_before_and_after_it_and_no_others():
    believed = {lease.id: lease for lease in (builders.lease(2, vxlan), builders.lease(3, vxlan))}
    decider = Decider(builders.inputs(1), believed)
    everything = set[object]().union(*decider.decide_everything())
    assert everything == decider.wanted.keys()
    before = {thing.key for thing in decider.part("10.5.2.0-24")}
    believed["10.5.2.0-24"] = builders.lease(2, vxlan, data={"VNI": 1, "VtepMAC": str(builders.mac(77))})
    touched = decider.decide_peers(["10.5.2.0-24"])
    assert touched == before | {thing.key for thing in decider.part("10.5.2.0-24")}
    assert touched - before, "the entry of the new MAC"
    once = decider.decide_shared()
    assert once == {thing.key for thing in decider.part()}


def test_what_is_believed_is_decided_and_the_own_lease_and_its_claims_are_no_peers():
    own = builders.inputs(1)
    roster, decider = deciding(own, {builders.public_v4(1)}, ["10.5.1.0-24"])
    clone = builders.lease(4, vxlan, data={"VNI": 1, "VtepMAC": str(own.mac_v4)})
    here = builders.lease(5, vxlan, public_ip=builders.public_v4(1))
    peer = builders.lease(2, vxlan)
    listed(roster, [builders.lease(1, vxlan), peer, clone, here])
    decider.decide_peers(roster.believed)
    assert list(decider.peers) == [peer.id]
    said = f"claims VTEP MAC {own.mac_v4}, which is this node's own: one of the two is a clone"
    assert roster.refused[clone.id].seen == said
    assert roster.refused.keys() == {clone.id, here.id}
    assert changed(roster, put=[builders.lease(2, vxlan, data=None)]) == set(), "of no use: served as before"
