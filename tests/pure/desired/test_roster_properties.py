"""Whatever other nodes write, in whatever order: no route leads astray, and no peer loses what it has."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import mostly
from tests.pure.desired.rosters import OURS, changed, data, listed, nonsense, peer, roster
from tests.pure.reach import reached, reaches
from tests.support import builders
from weft.desired import backends as every
from weft.desired.backends import hostgw, vxlan
from weft.desired.decide import Decider
from weft.desired.roster import Roster
from weft.model.errors import PeerError
from weft.model.kernel.objects import Route
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import replace

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
    listed(peers, leases)
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
    listed(peers, [])
    held = peers._claims
    assert not any((held._holders, held._lengths, held._lines, held._covered)), "nothing is left of them"
    assert not any((peers._entries, peers._former, peers._believed, peers._refused, peers._garbled, peers._unreadable))


@given(
    st.text(min_size=1, max_size=20).filter(lambda name: name not in every.BACKENDS),
    st.sampled_from([None, {}, data(builders.mac(22))]),
)
def test_a_peer_whose_back_end_becomes_one_that_no_node_has_is_served_as_before(name: str, said: object):
    """Until it says the name of one that there is: then it has moved, and is reached no more as it was."""
    own = builders.inputs(1)
    peers = Roster(OURS, claiming=vxlan.claims, usable=Decider(own, {}).trouble)
    listed(peers, [peer(2), peer(3, backend="wireguard")])
    bent = peer(2, backend=name, data=said)
    assert changed(peers, put=[bent, peer(3, backend=name)]) == set()
    assert peers.believed[peer(2).id] == peer(2)
    doubt = peers.doubt(peer(2).id)
    assert doubt is not None
    assert doubt.code == "ADDR-002"
    for kind in ("host-gw", "", "vxlan"):  # "" is udp's
        moved = peer(2, backend=kind, data=data(builders.mac(22)))
        assert changed(peers, put=[moved]) == {moved.id}
        assert peers.believed[moved.id] == moved


@pytest.mark.long
@given(st.lists(hostile, max_size=10), st.lists(st.tuples(st.booleans(), hostile), max_size=8), st.integers(1, 3))
def test_slices_come_to_the_same_and_keep_what_was_served(
    leases: list[Lease], changes: list[tuple[bool, Lease]], most: int
):
    whole, sliced = roster(), roster()
    listed(whole, leases)
    sliced.note_list(leases)
    for put, lease in changes:
        arguments = {"put": [lease]} if put else {"gone": [lease.id]}
        changed(whole, **arguments)
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
