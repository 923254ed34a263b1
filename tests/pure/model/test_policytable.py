"""Objects of the tables of policies: their keys, their order, and how they read."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.model.kernel.nftset import Table
from weft.model.kernel.objects import Ownership
from weft.model.kernel.policytable import (
    BRIDGE,
    INET,
    PolicyElement,
    PolicySet,
    named,
    short,
    table_of,
)
from weft.plan.diff import Delete, Put, ordered

POD = bytes((10, 1, 1, 2))
MAP = PolicySet(table=INET, name="in4", spec="type ipv4_addr : verdict;")
POLICY = named("in/default/allow-web", ('tcp dport 80 accept comment "ingress[0]"',))
BASE = named("ingress", ("ip daddr vmap @in4",), "type filter hook forward priority -1; policy accept;")
ELEMENT = PolicyElement(table=INET, set="in4", element=POD, verdict=POLICY.name, comment="uid default/web-1")
OBJECTS = (MAP, POLICY, ELEMENT, BASE)


def test_what_leads_packets_comes_after_what_it_leads_to_and_goes_before():
    assert [step.object for step in ordered(map(Put, reversed(OBJECTS)))] == list(OBJECTS)
    assert [step.object for step in ordered(map(Delete, OBJECTS))] == list(reversed(OBJECTS))


def test_another_text_is_another_chain():
    name, hook = POLICY.name, "type filter hook input priority 0;"
    assert named("in/default/allow-web", ("tcp dport 81 accept",)).name != name
    assert named("in/default/allow-web", POLICY.rules, hook).name != name
    assert named("in/default/allow-web", POLICY.rules).name == name


def test_a_long_name_is_cut_and_stays_its_own():
    one, other = (named(f"in/{'a' * 63}/{'b' * 252}{end}", ()) for end in "12")
    assert one.name != other.name
    assert len(one.name) == len(other.name) < 255


@given(st.text(), st.text(), st.integers(min_value=40, max_value=127))
@example("ü" * 200, "ü" * 201, 127)
@example("a" * 127, "a" * 127 + "b", 127)
def test_a_text_that_is_made_short_fits_and_does_not_look_like_another(one: str, other: str, most: int):
    assert len(short(one, most).encode()) <= most
    assert (short(one, most) == short(other, most)) == (one == other)
    assert short(one * 50, most) != short(one * 50 + other, most) or not other


@pytest.mark.parametrize(
    "thing, key, text",
    [
        (MAP, ("polset", INET, "in4"), f"set {INET} in4"),
        (POLICY, ("polchain", INET, POLICY.name), f"chain {INET} {POLICY.name} (1)"),
        (ELEMENT, ("polelement", INET, "in4", POD), f"element {INET} in4 uid default/web-1: {POLICY.name}"),
        (
            PolicyElement(table=BRIDGE, set="ports", element=b"veth1"),
            ("polelement", BRIDGE, "ports", b"veth1"),
            f"element {BRIDGE} ports 7665746831",
        ),
    ],
)
def test_each_is_known_by_its_table_and_name(thing, key, text):
    assert (thing.key, str(thing)) == (key, text)
    assert thing.is_within(Ownership(devices=frozenset(), networks=()))
    assert (thing.code_if_changed, thing.reason()) == ("NFT-002", "--network-policy")


def test_a_map_says_so_in_its_spec():
    assert MAP.is_map
    assert not PolicySet(table=INET, name="self4", spec="type ipv4_addr . ipv4_addr;").is_map
    assert table_of(BRIDGE) == Table("bridge", "weft-policy")


def test_nobody_finds_two_texts_with_one_name():
    """Who may write policies may try as many as he can, and a chain or set of the same name is shared."""
    assert len(POLICY.name.rpartition("-")[2]) * 4 >= 128
