"""Notices of nf_tables become changes: whose they are, and whether they matter to us."""

import os
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes
from tests.pure.reach import reached, reaches
from weft.kernel.netfilter.monitor import POLICIES, Generations, Touched
from weft.kernel.rtnetlink.attributes import Malformed, attribute, nest, text
from weft.kernel.tools import OwnProcesses
from weft.model.kernel.policytable import BRIDGE as POLICIES_BRIDGE
from weft.model.kernel.policytable import INET as POLICIES_INET

NEWTABLE, DELTABLE, NEWCHAIN, NEWRULE, DELRULE, NEWSET, DELSET, NEWSETELEM, NEWGEN, NEWOBJECT = (
    0,
    2,
    3,
    6,
    8,
    9,
    11,
    12,
    15,
    18,
)
IPV4, INET, BRIDGE, IPV6 = 2, 1, 7, 10
NFT4, IPTABLES4, IPTABLES6 = ("ruleset", "nft", 4), ("ruleset", "iptables", 4), ("ruleset", "iptables", 6)


def notice(kind, family, *attributes, port=4711):
    body = pack("=BBH", family, 0, 0) + b"".join(attributes)
    return pack("=IHHII", 16 + len(body), 10 << 8 | kind, 0, 0, port) + body


def generation(port=4711, pid=4711, name="nft"):
    return notice(NEWGEN, 0, attribute(1, b"\0\0\0\1"), attribute(2, pack(">I", pid)), text(3, name), port=port)


def rule(table, chain, family=IPV4, kind=DELRULE):
    return notice(kind, family, text(1, table), text(2, chain))


def elements(table, name, key):
    element = nest(1, nest(1, attribute(1, key)))
    return notice(NEWSETELEM, INET, text(1, table), text(2, name), nest(3, element))


@pytest.fixture
def own():
    return OwnProcesses()


@pytest.fixture
def generations(own):
    return Generations(own)


@pytest.mark.parametrize(
    "message, key",
    [
        *(
            pytest.param(message, NFT4, marks=pytest.mark.spec("flannel.md §8.5/resync"))
            for message in (
                rule("flannel-ipv4", "postrtg"),
                notice(NEWCHAIN, IPV4, text(1, "flannel-ipv4"), text(3, "anything")),
                notice(NEWSETELEM, IPV4, text(1, "flannel-ipv4"), text(2, "a-set")),
            )
        ),
        *(
            pytest.param(message, key, marks=pytest.mark.spec("flannel.md §8.3/4-resync"))
            for message, key in (
                (rule("nat", "FLANNEL-POSTRTG"), IPTABLES4),
                (rule("nat", "POSTROUTING"), IPTABLES4),
                (rule("filter", "FORWARD", IPV6), IPTABLES6),
                (notice(NEWCHAIN, IPV4, text(1, "filter"), text(3, "FLANNEL-FWD")), IPTABLES4),
                (notice(NEWTABLE, IPV4, text(1, "nat")), IPTABLES4),
            )
        ),
        (rule("weft-policy", "in-1", INET), ("polchain", POLICIES_INET, "in-1")),
        (rule("weft-policy", "guard", BRIDGE), ("polchain", POLICIES_BRIDGE, "guard")),
        (notice(NEWCHAIN, INET, text(1, "weft-policy"), text(3, "in-1")), ("polchain", POLICIES_INET, "in-1")),
        (notice(DELSET, INET, text(1, "weft-policy"), text(2, "in4")), ("polset", POLICIES_INET, "in4")),
        (elements("weft-policy", "in4", b"\x0a\1\1\2"), ("polelement", POLICIES_INET, "in4", b"\x0a\1\1\2")),
        (notice(DELTABLE, BRIDGE, text(1, "weft-policy")), POLICIES),
        (notice(NEWTABLE, BRIDGE, text(1, "weft-policy")), POLICIES),  # it may have been put to sleep
        (notice(NEWSET, INET, text(1, "weft-policy"), text(2, "__set1")), None),
        (notice(NEWOBJECT, INET, text(1, "weft-policy"), text(2, "other")), None),
        (rule("weft-policy", "in-1", IPV4), None),
        (rule("nat", "KUBE-SERVICES"), None),
        (rule("nat", "PREROUTING"), None),
        (rule("mangle", "FORWARD"), None),
        (rule("flannel-ipv4", "postrtg", INET), None),
        (rule("kube-proxy", "services"), None),
        (notice(NEWSETELEM, IPV4, text(1, "nat"), text(2, "POSTROUTING")), None),
        (b"", None),
    ],
)
def test_only_what_can_concern_us_wakes(generations, message, key):
    generations.feed(message)
    assert generations.take() is None, "nothing is said before the change is complete"
    generations.feed(generation())
    touched = generations.take()
    assert touched == (None if key is None else Touched(keys=frozenset({key}), by={key: "nft (pid 4711)"}))
    assert generations.take() is None


def test_several_changes_are_one_wake(generations):
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(name="nft", pid=1))
    generations.feed(rule("nat", "POSTROUTING") + generation(name="iptables", pid=2))
    generations.feed(rule("nat", "KUBE-SERVICES") + generation(name="kube-proxy", pid=3))
    by = {NFT4: "nft (pid 1)", IPTABLES4: "iptables (pid 2)"}
    assert generations.take() == Touched(keys=frozenset({NFT4, IPTABLES4}), by=by)


def test_of_two_who_touched_the_same_it_is_not_said_which_did_it_and_of_many_nobody_is_named(generations):
    for number in (1, 1, 2):
        generations.feed(rule("flannel-ipv4", "postrtg") + generation(pid=number))
    assert generations.take().by == {NFT4: "nft (pid 1) or nft (pid 2)"}
    for number in range(4):
        generations.feed(rule("flannel-ipv4", "postrtg") + generation(pid=number))
    assert generations.take() == Touched(keys=frozenset({NFT4}), by={})


@pytest.mark.parametrize("name", ["a\x1b[2J", "it\nall is well", "x (pid 1) or y", "\udcff", ""])
def test_a_name_that_a_process_chose_is_quoted(generations, name):
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(name=name))
    assert generations.take().by == {NFT4: f"{name!r} (pid 4711)"}
    assert f"{name!r}".isprintable()


def test_our_own_changes_do_not_wake_us(generations, own):
    own.started(77)
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(port=77))
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(port=os.getpid()))
    assert generations.take() is None
    own.ended(77)
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(port=77))
    assert generations.take() is None, "its notice may be read after its end"
    own.caught_up()
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(port=77))
    assert generations.take() is not None, "the number is someone else's now"


def test_the_number_in_the_outermost_namespace_does_not_make_a_process_ours(generations, own):
    """In a container our child 77 and some process 77 of the host are two."""
    own.started(77)
    generations.feed(rule("flannel-ipv4", "postrtg") + generation(port=4711, pid=77))
    assert generations.take() is not None


def test_a_gap_drops_what_was_half_read(generations):
    generations.feed(rule("flannel-ipv4", "postrtg"))
    generations.forget()
    generations.feed(generation())
    assert generations.take() is None


NOTICES = st.one_of(
    st.just(rule("flannel-ipv4", "postrtg")),
    st.just(rule("nat", "FLANNEL-POSTRTG") + generation()),
    st.just(notice(NEWTABLE, IPV4, text(1, "nat"))),
    st.binary(max_size=60).map(lambda body: notice(DELRULE, IPV4, body)),
    st.binary(max_size=200),
)


@reaches(malformed=0.05, heard=0.02)
@given(data=bent_bytes(NOTICES))
def test_no_datagram_breaks_it(data):
    generations = Generations(OwnProcesses())
    try:
        generations.feed(data)
        generations.feed(generation())
    except Malformed:
        reached("malformed")
        generations.forget()
    generations.feed(generation())
    if generations.take() is not None:
        reached("heard")
