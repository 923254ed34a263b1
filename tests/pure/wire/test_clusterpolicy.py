"""ClusterNetworkPolicies are read as the API means them, and what is not understood opens nothing."""

from contextlib import suppress
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.policy import EVERYTHING, ClusterPolicy, IpBlock, PodPeer, Port, Requirement, Rule, Selector
from weft.wire.clusterpolicy import read_cluster_policy
from weft.wire.policy import Unreadable
from weft.wire.policyobjects import read_objects

ALL = {"namespaces": {}}
WEB = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}


def policy(**spec):
    return {"metadata": {"name": "c", "uid": "u"}, "spec": {"tier": "Admin", "priority": 5, "subject": ALL, **spec}}


def rules(*given, direction="ingress"):
    """The rules, and of each problem where it is and what was expected."""
    found, problems = read_cluster_policy(policy(**{direction: list(given)}))
    return found.rules(direction), [
        (each.where.removeprefix(f"ClusterNetworkPolicy c: spec.{direction}"), each.expected) for each in problems
    ]


def test_a_policy():
    web = PodPeer(pods=Selector((Requirement("app", "In", ("web",)),)), namespaces=EVERYTHING)
    everyone = PodPeer(namespaces=EVERYTHING)
    found, problems = read_cluster_policy(
        policy(
            tier="Baseline",
            subject={"pods": WEB},
            ingress=[{"name": "a", "action": "Pass", "from": [ALL, {"pods": WEB}]}],
            egress=[
                {
                    "action": "Deny",
                    "to": [{"networks": ["192.0.2.0/24", "::/0"]}],
                    "protocols": [
                        {"tcp": {"destinationPort": {"number": 80}}},
                        {"udp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
                        {"sctp": {}},
                        {"destinationNamedPort": "http"},
                    ],
                }
            ],
        )
    )
    assert problems == ()
    blocks = tuple(IpBlock(ip_network(net)) for net in ("192.0.2.0/24", "::/0"))
    ports = (
        Port(first=80, last=80),
        Port(protocol="udp", first=1, last=9),
        Port(protocol="sctp"),
        *(Port(protocol=each, name="http") for each in ("tcp", "udp", "sctp")),
    )
    assert found == ClusterPolicy(
        name="c",
        uid="u",
        tier="Baseline",
        priority=5,
        subject=web,
        ingress=(Rule(peers=(everyone, web), action="Pass"),),
        egress=(Rule(peers=blocks, ports=ports, action="Deny"),),
    )
    assert (str(found), found.id, found.namespace) == ("c", ("clusterpolicy", "", "c"), "")


def test_pods_without_a_selector_of_namespaces_are_of_all_namespaces():
    web = PodPeer(pods=Selector((Requirement("app", "In", ("web",)),)), namespaces=EVERYTHING)
    for said in ({}, {"namespaceSelector": None}):
        pods = {"pods": {"podSelector": WEB["podSelector"], **said}}
        found, problems = read_cluster_policy(policy(subject=pods, ingress=[{"action": "Deny", "from": [pods]}]))
        assert (found.subject, found.ingress[0].peers, problems) == (web, (web,), ())


@pytest.mark.parametrize(
    "spec, where",
    [
        ({"tier": "admin"}, "spec.tier"),
        ({"priority": 1001}, "spec.priority"),
        ({"priority": True}, "spec.priority"),
        ({"subject": None}, "spec.subject"),
        ({"subject": {}}, "spec.subject"),
        ({"subject": {"nodes": {}}}, "spec.subject"),
        ({"subject": {"pods": {"namespaceSelector": {}}}}, "spec.subject.pods.podSelector"),
        ({"subject": {"pods": {**WEB, "x": 1}}}, "spec.subject.pods"),
    ],
)
def test_of_which_nobody_knows_whom_it_means_or_when(spec, where):
    with pytest.raises(Unreadable) as refused:
        read_cluster_policy(policy(**spec))
    assert refused.value.problem.where == f"ClusterNetworkPolicy c: {where}"


DENIED = (Rule(action="Deny"),)


@pytest.mark.parametrize(
    "rule, where, accepted",
    [
        (
            {"from": [ALL], "protocols": [{"icmp": {}}]},
            "[0].protocols[0]",
            Rule(peers=(PodPeer(namespaces=EVERYTHING),), ports=()),
        ),
        ({"from": [ALL], "to": [ALL]}, "[0]", Rule(peers=(), ports=())),
        ({"from": []}, "[0].from", Rule(peers=(), ports=())),
        ({"from": [{"networks": "::/0"}]}, "[0].from[0].networks", Rule(peers=())),
        ({"from": [{"networks": ["x"]}]}, "[0].from[0].networks[0]", Rule(peers=())),
        ({"from": [{1: {}, 2: {}}]}, "[0].from[0]", Rule(peers=())),
        (
            {"from": [ALL], "protocols": [{1: 2, 3: 4}]},
            "[0].protocols[0]",
            Rule(peers=(PodPeer(namespaces=EVERYTHING),), ports=()),
        ),
    ],
)
def test_a_rule_that_is_not_understood_denies_all_unless_it_accepts(rule, where, accepted):
    found, ((at, _),) = rules({"action": "Accept", **rule})
    assert (found, at) == ((accepted,), where)
    for action in ("Deny", "Pass"):
        assert rules({"action": action, **rule})[0] == DENIED


def test_without_an_action_all_is_denied():
    assert rules({"from": [ALL]}) == (DENIED, [("[0].action", "one of Accept, Deny, Pass")])
    assert rules("x")[0] == DENIED
    found, problems = read_cluster_policy(policy(ingress={"action": "Accept"}))
    assert (found.ingress, len(problems)) == (DENIED, 2)


@pytest.mark.parametrize(
    "port",
    [
        {"number": 0},
        {"number": 80, "range": {"start": 1, "end": 2}},
        {"range": {"start": 2, "end": 1}},
        {"range": {"start": 2}},
        {},
    ],
)
def test_ports_that_there_are_not(port):
    protocols = [{"tcp": {"destinationPort": port}}]
    found, problems = rules({"action": "Accept", "from": [ALL], "protocols": protocols})
    assert found[0].ports == ()
    assert problems == [("[0].protocols[0].tcp.destinationPort", "a number or a range, of 1 to 65535")]


def test_a_key_of_the_spec_that_is_not_known_is_said():
    _, (problem,) = read_cluster_policy(policy(egres=[]))
    assert problem.where == "ClusterNetworkPolicy c: spec"


def test_files_have_them():
    text = (
        "{apiVersion: policy.networking.k8s.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: c},"
        " spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Is}]}}"
    )
    found = read_objects({"a.yaml": text})
    assert [str(each) for each in found.cluster] == ["c"]
    assert [each.where for each in found.problems] == ["ClusterNetworkPolicy c: spec.ingress[0].action"]


_ANY = st.recursive(
    st.none() | st.integers(-1, 70000) | st.sampled_from(["Accept", "Deny", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["action", "from", "protocols", "namespaces", "pods", "tcp", "networks"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(_ANY, _ANY)
def test_any_rule_is_read_or_opens_nothing(rule, subject):
    found, problems = read_cluster_policy(policy(ingress=[rule]))
    for each in found.ingress:
        assert not (problems and each.action == "Accept" and each.peers is None)
    with suppress(Unreadable):
        read_cluster_policy(policy(subject=subject))
