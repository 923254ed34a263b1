"""NetworkPolicies are read as the API means them, and what is not understood allows nothing."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches
from weft.model.policy import EVERYTHING, IpBlock, PodPeer, Port, Requirement, Rule, Selector
from weft.wire.policy import Unreadable, read_policy


def policy(**spec):
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"podSelector": {}, **spec}}


def read(**spec):
    found, problems = read_policy(policy(**spec))
    assert not problems
    return found


def wrong(**spec):
    """The policy, and of the one problem where it is, what was seen and what was expected."""
    found, (problem,) = read_policy(policy(**spec))
    assert problem.code == "POL-005"
    return found, problem.where.removeprefix("NetworkPolicy ns/p: "), problem.seen, problem.expected


def test_names_and_uid():
    found, _ = read_policy({"metadata": {"name": "allow.web-1", "uid": "u-1"}, "spec": {"podSelector": {}}})
    assert (found.namespace, found.name, found.uid) == ("default", "allow.web-1", "u-1")


@pytest.mark.parametrize(
    "spec, ingress, egress",
    [
        ({}, (), None),
        ({"policyTypes": []}, (), None),
        ({"egress": []}, (), None),  # as the API server fills it in
        ({"egress": [{}]}, (), (Rule(),)),
        ({"policyTypes": ["Egress"]}, None, ()),
        ({"policyTypes": ["Egress"], "ingress": [{}]}, None, ()),
        ({"policyTypes": ["Ingress", "Egress"], "ingress": [{}]}, (Rule(),), ()),
        ({"ingress": [{"from": [], "ports": []}, {"from": None}]}, (Rule(), Rule()), None),
    ],
)
def test_directions_and_rules(spec, ingress, egress):
    found = read(**spec)
    assert (found.ingress, found.egress) == (ingress, egress)


def test_selectors_are_equal_in_any_order():
    given = {
        "matchLabels": {"tier": "1", "app": "web"},
        "matchExpressions": [
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "env", "operator": "NotIn", "values": ["qa", "dev", "qa"]},
            {"key": "app", "operator": "In", "values": ["web"]},
        ],
    }
    assert read(podSelector=given).pods == Selector(
        (
            Requirement("app", "In", ("web",)),
            Requirement("env", "NotIn", ("dev", "qa")),
            Requirement("old", "DoesNotExist"),
            Requirement("tier", "In", ("1",)),
        )
    )


@pytest.mark.parametrize(
    "peer, value",
    [
        ({"podSelector": {}}, PodPeer()),
        ({"namespaceSelector": {}}, PodPeer(namespaces=EVERYTHING)),
        ({"podSelector": {}, "namespaceSelector": {}}, PodPeer(namespaces=EVERYTHING)),
        ({"ipBlock": {"cidr": "192.0.2.9/24"}}, IpBlock(ip_network("192.0.2.0/24"))),
        (
            {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}},
            IpBlock(ip_network("2001:db8::/32"), (ip_network("2001:db8:1::/48"),)),
        ),
    ],
)
def test_peers(peer, value):
    assert read(ingress=[{"from": [peer]}]).ingress == (Rule(peers=(value,)),)
    assert read(policyTypes=["Egress"], egress=[{"to": [peer]}]).egress == (Rule(peers=(value,)),)


@pytest.mark.parametrize(
    "port, value",
    [
        ({}, Port()),
        ({"protocol": "SCTP"}, Port(protocol="sctp")),
        ({"port": 53, "protocol": "UDP"}, Port(protocol="udp", first=53, last=53)),
        ({"port": 8000, "endPort": 8100}, Port(first=8000, last=8100)),
        ({"port": "http"}, Port(name="http")),
    ],
)
def test_ports(port, value):
    assert read(ingress=[{"ports": [port]}]).ingress == (Rule(ports=(value,)),)


@pytest.mark.parametrize(
    "peer, at, seen, expected",
    [
        ({}, "", "no selector and no block", "podSelector, namespaceSelector or ipBlock"),
        ("web", "", "web", "an object"),
        ({"services": {}}, "", "services", "no other key than podSelector, namespaceSelector, ipBlock"),
        (
            {"podSelector": {}, "ipBlock": {"cidr": "::/0"}},
            "",
            "an ipBlock beside a selector",
            "one of them in each peer",
        ),
        ({"podSelector": []}, ".podSelector", "[]", "an object"),
        ({"podSelector": {"matchLabels": []}}, ".podSelector.matchLabels", "[]", "an object"),
        ({"podSelector": {"matchLabels": {"a b": "1"}}}, ".podSelector.matchLabels", "a b", "the key of a label"),
        ({"podSelector": {"matchLabels": {"a": 1}}}, ".podSelector.matchLabels.a", "1", "text"),
        ({"podSelector": {"matchLabels": {"a": '"'}}}, ".podSelector.matchLabels.a", '"', "the value of a label"),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            ".podSelector.matchExpressions[0].operator",
            "Is",
            "one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            ".podSelector.matchExpressions[0].values",
            "[]",
            "at least one value",
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            ".podSelector.matchExpressions[0].values",
            "['b']",
            "none with Exists",
        ),
        ({"ipBlock": {"cidr": "010.0.0.0/8"}}, ".ipBlock.cidr", "010.0.0.0/8", "a block of addresses, as 192.0.2.0/24"),
        ({"ipBlock": {"except": []}}, ".ipBlock.cidr", "None", "text"),
        (
            {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.0/25", "::/0"]}},
            ".ipBlock.except[1]",
            "::/0",
            "a part of 192.0.2.0/24",
        ),
    ],
)
def test_a_peer_that_is_not_understood_is_left_out(peer, at, seen, expected):
    found, *said = wrong(ingress=[{"from": [peer]}])
    assert found.ingress == (Rule(peers=()),)
    assert said == [f"spec.ingress[0].from[0]{at}", seen, expected]
    with_another, *_ = wrong(ingress=[{"from": [peer, {"podSelector": {}}]}])
    assert with_another.ingress == (Rule(peers=(PodPeer(),)),)


@pytest.mark.parametrize(
    "port, at, seen, expected",
    [
        ({"protocol": "ICMP"}, ".protocol", "ICMP", "one of TCP, UDP, SCTP"),
        ({"protocol": 6}, ".protocol", "6", "one of TCP, UDP, SCTP"),
        ({"protocol": ""}, ".protocol", "", "one of TCP, UDP, SCTP"),
        ({"port": 0}, ".port", "0", "1 to 65535, or without endPort the name of a port"),
        ({"port": True}, ".port", "True", "1 to 65535, or without endPort the name of a port"),
        ({"port": 65536}, ".port", "65536", "1 to 65535, or without endPort the name of a port"),
        ({"port": "80"}, ".port", "80", "1 to 65535, or without endPort the name of a port"),
        ({"port": "http", "endPort": 90}, ".port", "http", "1 to 65535, or without endPort the name of a port"),
        ({"endPort": 90}, ".port", "None", "1 to 65535, or without endPort the name of a port"),
        ({"port": 80, "endPort": 79}, ".endPort", "79", "80 to 65535"),
        ({"port": 80, "to": 90}, "", "to", "no other key than protocol, port, endPort"),
    ],
)
def test_a_port_that_is_not_understood_is_left_out(port, at, seen, expected):
    found, *said = wrong(ingress=[{"ports": [port]}])
    assert found.ingress == (Rule(ports=()),)
    assert said == [f"spec.ingress[0].ports[0]{at}", seen, expected]


@pytest.mark.parametrize(
    "spec, at",
    [
        ({"ingress": [{"form": []}]}, "spec.ingress[0]"),
        ({"ingress": ["all"]}, "spec.ingress[0]"),
        ({"ingress": [{"to": []}]}, "spec.ingress[0]"),
        ({"ingress": [{"from": {"podSelector": {}}}]}, "spec.ingress[0].from"),
        ({"ingress": [{"ports": {"port": 80}}]}, "spec.ingress[0].ports"),
    ],
)
def test_a_rule_that_is_not_understood_allows_nothing(spec, at):
    found, where, *_ = wrong(**spec)
    assert where == at
    assert found.ingress == (Rule(peers=(), ports=()),)


def test_what_else_is_not_understood_restricts():
    found, where, *_ = wrong(ingress={"from": []})
    assert (found.ingress, where) == ((), "spec.ingress")
    found, where, *_ = wrong(ingres=[{}])
    assert (found.ingress, where) == ((), "spec")
    for types in ("Ingress", ["Ingress", "Both"], [{}], ""):
        found, where, *_ = wrong(policyTypes=types)
        assert (found.ingress, found.egress, where) == ((), (), "spec.policyTypes")


@pytest.mark.parametrize(
    "obj, where",
    [
        ({}, "an object: metadata"),
        ({"kind": "NetworkPolicy", "metadata": {"name": "a b"}}, "NetworkPolicy: metadata.name"),
        ({"kind": "NetworkPolicy", "metadata": {"name": "p\n"}}, "NetworkPolicy: metadata.name"),
        ({"metadata": {"name": "p", "namespace": "N"}}, "an object: metadata.namespace"),
        ({"metadata": {"name": "p"}}, "NetworkPolicy default/p: spec"),
        ({"metadata": {"name": "p"}, "spec": {}}, "NetworkPolicy default/p: spec.podSelector"),
        (
            {"metadata": {"name": "p"}, "spec": {"podSelector": {"app": "web"}}},
            "NetworkPolicy default/p: spec.podSelector",
        ),
    ],
)
def test_a_policy_of_which_nobody_knows_what_it_selects(obj, where):
    with pytest.raises(Unreadable) as refused:
        read_policy(obj)
    assert refused.value.problem.where == where
    assert str(refused.value) == str(refused.value.problem)


def test_what_was_seen_is_cut():
    *_, seen, _ = wrong(ingress=["x" * 1000])
    assert seen == "x" * 80 + "…"


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["podSelector", "from", "ports", "port", "cidr", "ipBlock", "matchLabels", "key", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@reaches(read=0.3)
@given(_ANY, _ANY, st.booleans())
def test_any_spec_is_a_policy_or_unreadable(pods, ingress, proper):
    try:
        found, problems = read_policy(
            policy(podSelector={} if proper else pods, ingress=[ingress], policyTypes=["Ingress"])
        )
    except Unreadable:
        assert not proper
    else:
        reached("read")
        assert found.egress is None
        if problems:  # what is not understood never allows everything
            assert found.ingress != (Rule(),)
