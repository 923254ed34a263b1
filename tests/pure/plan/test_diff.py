"""The diff leads from any state to any state, in an order the kernel accepts."""

from ipaddress import IPv4Address, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches
from tests.pure.replay import replay
from tests.support import builders
from weft.desired.backends import vxlan
from weft.desired.tunnels.vxlan import VxlanLink
from weft.model.kernel.objects import Address, FdbEntry, Neighbour, Object, Objects, Route, Sysctl
from weft.model.net import Ip, Net
from weft.model.value import replace
from weft.plan.diff import Put, diff

LINK = VxlanLink(
    name="flannel.1",
    vni=1,
    port=8472,
    local=IPv4Address("192.168.0.1"),
    parent=2,
    mac=builders.mac(1),
    mtu=1450,
)


def _families(node: int) -> list[list[tuple[Net, Ip]]]:
    """What a peer may bring: subnet and public address of IPv4, of IPv6, of both."""
    v4 = (builders.subnet_v4(node), builders.public_v4(node))
    v6 = (builders.subnet_v6(node), builders.public_v6(node))
    return [[v4], [v6], [v4, v6]]


@st.composite
def states(draw: st.DrawFn) -> Objects:
    """A node's state: perhaps a link in one of several shapes, and things on it and beside it."""
    things: list[Object] = []
    for node in draw(st.sets(st.integers(1, 4))):
        via = draw(st.integers(1, 3))
        if draw(st.booleans()):
            things.append(Route(dst=builders.subnet_v4(node), via=builders.public_v4(via), dev="eth0"))
        if draw(st.booleans()):
            things.append(Route(dst=builders.subnet_v6(node), via=builders.public_v6(via), dev="eth0"))
    state = {thing.key: thing for thing in things}
    if not draw(st.booleans()):
        return state
    link = replace(
        LINK,
        port=draw(st.sampled_from([8472, 4789])),
        mac=builders.mac(draw(st.integers(1, 2))),
        mtu=draw(st.sampled_from([1400, 1450])),
    )
    on_link: list[Object] = [
        link,
        Sysctl(name="net/ipv6/conf/flannel.1/accept_ra", value=draw(st.sampled_from("01"))),
        Address(
            dev="flannel.1", ip=draw(st.sampled_from([IPv4Address("10.5.1.0"), IPv4Address("10.5.2.0")])), prefixlen=32
        ),
    ]
    for node in draw(st.sets(st.integers(5, 9))):
        mac = builders.mac(draw(st.integers(1, 3)))
        for subnet, remote in draw(st.sampled_from(_families(node))):
            base = subnet.network_address
            on_link += [
                Neighbour(dev="flannel.1", ip=base, mac=mac),
                FdbEntry(dev="flannel.1", mac=mac, remote=remote),
                Route(dst=subnet, via=base, dev="flannel.1", onlink=True),
            ]
    return state | {thing.key: thing for thing in on_link}


@reaches(put_v6=0.1, deleted_v6=0.1)
@given(states(), states())
def test_leads_from_any_state_to_any_state(have: Objects, want: Objects):
    steps = diff(want, have)
    assert replay(have, steps) == want
    for step in steps:
        if isinstance(step.object, Route) and step.object.dst.version == 6:
            reached("put_v6" if isinstance(step, Put) else "deleted_v6")


@given(states())
def test_nothing_to_do_is_no_step(state: Objects):
    assert diff(state, dict(state)) == []


@given(states(), states())
def test_twice_is_once(have: Objects, want: Objects):
    steps = diff(want, have)
    assert replay(replay(have, steps), steps) == want


@given(states(), states(), st.integers(0, 40))
def test_a_plan_may_stop_after_any_step(have: Objects, want: Objects, count: int):
    halfway = replay(have, diff(want, have)[:count])
    assert replay(halfway, diff(want, halfway)) == want


@given(states(), states())
def test_nothing_is_deleted_while_the_view_is_incomplete(have: Objects, want: Objects):
    steps = diff(want, have, prune=False)
    assert all(isinstance(step, Put) for step in steps)
    after = replay(have, steps)
    assert all(after[key] == thing for key, thing in want.items())


@given(states(), states())
def test_adding_comes_before_removing(have: Objects, want: Objects):
    kinds = [isinstance(step, Put) for step in diff(want, have)]
    assert kinds == sorted(kinds, reverse=True)


@given(states(), states(), st.data())
def test_other_keys_are_left_alone(have: Objects, want: Objects, data: st.DataObject):
    keys = data.draw(st.sets(st.sampled_from(sorted(have.keys() | want.keys(), key=repr)))) if have or want else set()
    steps = diff(want, have, keys=keys)
    recreated = {
        link.name
        for step in steps
        if isinstance(link := step.object, VxlanLink)
        and isinstance(present := have.get(link.key), VxlanLink)
        and not link.changes_in_place(present)
    }
    assert all(step.object.key in keys or step.object.link in recreated for step in steps)


def test_a_route_comes_after_its_neighbour_and_fdb_entry():
    want = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])
    kinds = [step.object.key[0] for step in diff(want, {})]
    assert kinds == ["link", "sysctl", "address", "neighbour", "fdb", "route"]


def test_removals_go_the_other_way_round():
    """A route goes before the neighbour that it uses, and a link last: what sits on it would go unsaid."""
    have = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])
    kinds = [step.object.key[0] for step in diff({}, have)]
    assert kinds == ["route", "fdb", "neighbour", "address", "sysctl", "link"]


def test_a_recreated_link_brings_back_what_sat_on_it():
    want = builders.wanted(builders.inputs(), [builders.lease(2, vxlan)])
    have = dict(want) | {("link", "flannel.1"): replace(LINK, vni=1, port=4789)}
    steps = diff(want, have, keys=[("link", "flannel.1")])
    assert isinstance(steps[0].object, VxlanLink)
    assert {step.object.key for step in steps if isinstance(step, Put)} == want.keys()
    assert len(steps) == len(want)


def test_a_route_elsewhere_is_not_touched_by_a_recreated_link():
    other = Route(dst=IPv4Network("10.5.9.0/24"), via=builders.public_v4(9), dev="eth0")
    want = {LINK.key: LINK, other.key: other}
    have = {LINK.key: replace(LINK, port=4789), other.key: other}
    assert diff(want, have) == [Put(LINK)]


def test_a_link_whose_parent_has_another_name_needs_nothing():
    assert diff({LINK.key: LINK}, {LINK.key: replace(LINK, parent_name="renamed")}) == []
