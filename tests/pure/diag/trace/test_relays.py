"""A packet that goes by way of a third node of a mesh: at its first node, and at the one between."""

from ipaddress import ip_address, ip_network

from tests.pure.diag.doctor.sights import PEER, ROUTES, STATE, VXLAN, WELL
from weft.diag.rules.matching import Packet
from weft.diag.sight.peers import Peer, peers
from weft.diag.trace.bothways import both_ways, entry_of
from weft.diag.trace.predict import Entry
from weft.model.value import replace

NODE2 = replace(PEER, id="node2-8f3a91bc", way="vxlan")
NODE3 = replace(
    PEER, id="node3-00c0ffee", subnets=["10.244.3.0/24"], public=["192.168.0.3"], way="via node2-8f3a91bc (vxlan): mtu"
)
RELAYED = replace(ROUTES[2], dst=ip_network("10.244.3.0/24"))
SIGHT = replace(WELL, daemon=replace(STATE, peers=[NODE2, NODE3]), routes=(*ROUTES, RELAYED))


def packet(source: str, target: str) -> Packet:
    return Packet(source=ip_address(source), target=ip_address(target), protocol="icmp")


def test_a_peer_is_known_with_the_node_that_its_packets_go_to_first():
    two, three = peers(SIGHT)
    assert (two.public, two.hop) == (ip_address("192.168.0.2"), ip_address("192.168.0.2"))
    assert (three.public, three.hop) == (ip_address("192.168.0.3"), ip_address("192.168.0.2"))
    unknown = replace(NODE3, way="via node9-00000000 (vxlan)")
    [lost] = peers(replace(SIGHT, daemon=replace(STATE, peers=[unknown])))
    assert isinstance(lost, Peer)
    assert lost.hop is None


def test_the_first_node_says_by_which_way_and_why():
    there = both_ways(SIGHT, packet("10.244.1.2", "10.244.3.3"))["there"][1]
    assert (there.end, there.to) == ("sent", "192.168.0.2")
    [route] = [hop.seen for hop in there.hops if hop.what == "route"]
    assert route.endswith("from the lease of 192.168.0.3, via node2-8f3a91bc (vxlan): mtu")


def test_in_a_device_that_knows_its_nodes_it_goes_to_the_first_one():
    tunnel = replace(WELL.links[1], name="flannel-wg", kind="wireguard")
    network = replace(STATE.network, devices=["flannel-wg"]) if STATE.network else None
    daemon = replace(STATE, peers=[NODE2, NODE3], network=network)
    routes = (*ROUTES[:2], replace(RELAYED, via=None))
    sight = replace(SIGHT, daemon=daemon, links=(WELL.links[0], tunnel, *WELL.links[2:]), routes=routes, vxlans=())
    there = both_ways(sight, packet("10.244.1.2", "10.244.3.3"))["there"][1]
    assert (there.end, there.to, there.carried) == ("sent", "192.168.0.2", "wireguard")


def test_the_node_between_unwraps_it_and_wraps_it_again():
    for source, target, to in (
        ("10.244.2.3", "10.244.3.3", "192.168.0.2"),
        ("10.244.3.3", "10.244.2.3", "192.168.0.2"),
    ):
        of = packet(source, target)
        assert entry_of(SIGHT, of) == Entry(kind="remote", remote=ip_address("192.168.0.2"), wrapped=True)
        there = both_ways(SIGHT, of)["there"][1]
        assert [hop.what for hop in there.hops][:3] == ["received by", "rules at input", "unwrapped by"]
        assert (there.end, there.to) == ("sent", to)
    assert SIGHT.routes[-1].index == VXLAN


def test_what_a_peer_sends_elsewhere_was_not_wrapped():
    for of in (packet("192.168.0.3", "192.168.0.1"), packet("10.244.3.3", "9.9.9.9")):
        assert not entry_of(SIGHT, of).wrapped
    assert entry_of(SIGHT, packet("192.168.0.3", "192.168.0.1")).remote == ip_address("192.168.0.3")
