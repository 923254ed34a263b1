"""Each clause of ClusterNetworkPolicy, judged by the reference, by the wanted objects and by what explains."""

import pytest

from tests.support.policy.clauses import passes, ruled
from tests.support.policy.deciding import decided, judging
from weft.desired.policy.advice import advice
from weft.model.kernel.policytable import PolicyChain
from weft.model.policy import Rule
from weft.model.value import replace
from weft.wire.clusterpolicy import read_cluster_policy

WEB = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}
ALL = {"namespaces": {}}
SHUT = {"podSelector": {"matchLabels": {"app": "web"}}}
OPEN = {**SHUT, "ingress": [{}]}
DB, X = ({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": name}}}} for name in ("db", "x"))


def rule(action, *peers, **more):
    return {"action": action, "from": list(peers or [ALL]), **more}


def to_web(*rules, **more):
    return {"subject": {"pods": WEB}, "ingress": list(rules), **more}


def who_reaches_web(made):
    return {name for name in ("db", "x", "outside") if passes(made, name, "web")}


@pytest.mark.spec("policy.md §8/tiers")
def test_admin_then_network_policies_then_baseline():
    deny, accept = to_web(rule("Deny")), to_web(rule("Accept"))
    last = {"tier": "Baseline"}
    assert who_reaches_web(ruled(deny, policies=[OPEN])) == {"outside"}
    assert who_reaches_web(ruled(accept, policies=[SHUT])) == {"db", "x"}
    assert who_reaches_web(ruled({**deny, **last}, policies=[OPEN])) == {"db", "x", "outside"}
    assert who_reaches_web(ruled({**accept, **last}, policies=[SHUT])) == set()
    assert who_reaches_web(ruled({**deny, **last})) == {"outside"}
    assert who_reaches_web(ruled(to_web(rule("Accept", DB)), {**deny, **last})) == {"db", "outside"}


@pytest.mark.spec("policy.md §8/priority")
def test_the_least_priority_comes_first_and_of_two_the_least_name():
    deny, accept = to_web(rule("Deny", DB)), to_web(rule("Accept", DB))
    assert "db" not in who_reaches_web(ruled({**accept, "priority": 2}, {**deny, "priority": 1}))
    assert "db" in who_reaches_web(ruled({**accept, "priority": 0}, {**deny, "priority": 1}))
    assert not [each for each in advice(judging(ruled(accept, {**deny, "priority": 1}))) if "priority" in each.path]
    tied = ruled(accept, deny)
    assert "db" in who_reaches_web(tied)
    (said,) = [each for each in advice(judging(tied)) if each.path == "spec.priority"]
    assert (said.policy, said.seen) == ("c1", "priority 10, as c0 in tier Admin")


@pytest.mark.spec("policy.md §8/accept")
def test_accept_ends_all_tiers_in_this_direction():
    leaves = {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"]}
    assert who_reaches_web(ruled(to_web(rule("Accept")), policies=[SHUT])) == {"db", "x"}
    assert who_reaches_web(ruled(to_web(rule("Accept")), policies=[SHUT, leaves])) == {"x"}


@pytest.mark.spec("policy.md §8/deny")
def test_deny_drops():
    assert who_reaches_web(ruled(to_web(rule("Deny", X)), policies=[OPEN])) == {"db", "outside"}
    assert who_reaches_web(ruled(to_web(rule("Accept", X), rule("Deny", X)))) == {"db", "x", "outside"}


@pytest.mark.spec("policy.md §8/pass")
def test_pass_skips_the_rest_of_the_tier():
    first = to_web(rule("Pass", DB), rule("Deny"), priority=1)
    second = to_web(rule("Deny"), priority=2)
    assert who_reaches_web(ruled(first, second)) == {"db", "outside"}
    assert who_reaches_web(ruled(first, second, policies=[SHUT])) == set()
    assert who_reaches_web(ruled(*({**each, "tier": "Baseline"} for each in (first, second)))) == {"db", "outside"}


@pytest.mark.spec("policy.md §8/subject")
def test_which_pods_are_meant():
    deny = {"ingress": [rule("Deny")]}
    two = {"namespaces": {"matchLabels": {"team": "two"}}}
    assert who_reaches_web(ruled({**deny, "subject": two})) == {"db", "x", "outside"}
    assert not passes(ruled({**deny, "subject": two}), "db", "x")
    host = ruled({**deny, "subject": ALL}, web={"hostNetwork": True})
    assert decided(host).cluster_policies_of(("pod", "a", "web"), "ingress", "Admin") == ()


@pytest.mark.spec("policy.md §8/no-isolation")
def test_a_policy_without_a_rule_that_fits_changes_nothing():
    made = to_web(rule("Accept", {"namespaces": {"matchLabels": {"team": "three"}}}))
    assert who_reaches_web(ruled(made)) == {"db", "x", "outside"}
    assert who_reaches_web(ruled({**made, "tier": "Baseline"})) == {"db", "x", "outside"}
    assert who_reaches_web(ruled({"subject": {"pods": WEB}})) == {"db", "x", "outside"}


@pytest.mark.spec("policy.md §8/peers")
def test_pods_and_namespaces_of_all_the_cluster():
    assert who_reaches_web(ruled(to_web(rule("Deny", {"namespaces": {"matchLabels": {"team": "two"}}})))) == {
        "db",
        "outside",
    }
    assert who_reaches_web(ruled(to_web(rule("Deny", DB, X)))) == {"outside"}
    assert who_reaches_web(ruled(to_web(rule("Deny", ALL)))) == {"outside"}


@pytest.mark.spec("policy.md §8/networks")
def test_networks_are_of_pods_and_icmp_too():
    out = {
        "subject": {"pods": WEB},
        "egress": [{"action": "Deny", "to": [{"networks": ["192.0.2.0/24", "10.244.1.3/32"]}]}],
    }
    made = ruled(out)
    assert {name for name in ("db", "x", "outside") if passes(made, "web", name, "ICMP", 0)} == {"x"}


def read(*rules, direction="ingress"):
    spec = {"tier": "Admin", "priority": 0, "subject": ALL, direction: list(rules)}
    policy, problems = read_cluster_policy({"metadata": {"name": "c"}, "spec": spec})
    return policy.rules(direction), [problem.where.removeprefix("ClusterNetworkPolicy c: ") for problem in problems]


@pytest.mark.spec("policy.md §8/later-peers")
@pytest.mark.parametrize("peer", [{"nodes": {}}, {"domainNames": ["example.org."]}])
def test_peers_that_come_later_are_refused_and_open_nothing(peer):
    accept, deny = ({"action": action, "to": [peer]} for action in ("Accept", "Deny"))
    assert read(accept, direction="egress") == ((Rule(peers=()),), ["spec.egress[0].to[0]"])
    assert read(deny, direction="egress") == ((Rule(action="Deny"),), ["spec.egress[0].to[0]"])


@pytest.mark.spec("policy.md §8/unknown-peer")
@pytest.mark.parametrize("peer", [{}, {"services": {}}])
def test_a_peer_with_no_field_that_is_known(peer):
    assert read(rule("Accept", peer, ALL))[0] == (Rule(peers=read(rule("Accept", ALL))[0][0].peers),)
    for action in ("Deny", "Pass"):
        assert read(rule(action, peer, ALL)) == ((Rule(action="Deny"),), ["spec.ingress[0].from[0]"])


@pytest.mark.spec("policy.md §8/protocols")
@pytest.mark.parametrize(
    "protocols, closed",
    [
        ([{"tcp": {"destinationPort": {"number": 80}}}], {("TCP", 80)}),
        ([{"tcp": {"destinationPort": {"range": {"start": 80, "end": 81}}}}], {("TCP", 80), ("TCP", 81)}),
        ([{"udp": {}}], {("UDP", 80)}),
        ([{"sctp": {}}, {"udp": {"destinationPort": {"number": 80}}}], {("SCTP", 7), ("UDP", 80)}),
        ([{"destinationNamedPort": "http"}], {("TCP", 8080)}),
    ],
)
def test_protocols(protocols, closed):
    made = ruled(to_web(rule("Deny", protocols=protocols)))
    asked = {("TCP", 80), ("TCP", 81), ("TCP", 8080), ("UDP", 80), ("SCTP", 7), ("ICMP", 0)}
    assert {each for each in asked if not passes(made, "db", "web", *each)} == closed


@pytest.mark.spec("policy.md §8/established")
def test_connections_that_are_there_are_asked_as_by_network_policies():
    made = decided(ruled(to_web(rule("Deny"))))
    base = [thing for thing in made.wanted.values() if " hook forward " in getattr(thing, "hook", "")]
    assert [chain.rules[0] for chain in base] == ["ct state established,related accept"] * 2


@pytest.mark.spec("policy.md §8/itself")
def test_a_pod_that_sends_to_itself_by_a_service_is_subject():
    """By its address it never leaves the pod: what hook forward sees came by a Service."""
    assert passes(ruled(policies=[SHUT]), "web", "web")
    assert not passes(ruled(to_web(rule("Deny")), policies=[OPEN]), "web", "web")
    assert passes(ruled(to_web(rule("Pass")), policies=[SHUT]), "web", "web")


def test_a_tier_of_which_nothing_is_understood_is_not_jumped_to():
    made = judging(ruled(to_web(rule("Accept"))))
    (policy,) = made.cluster
    decider = decided(ruled(policies=[SHUT]))
    decider.change([replace(policy, ingress=(Rule(peers=()),))])
    assert not [key for key in decider.wanted if "admin" in str(key)]
    chains = [thing for thing in decider.wanted.values() if isinstance(thing, PolicyChain)]
    names = {chain.name for chain in chains}
    assert {line.split()[1] for chain in chains for line in chain.rules if line.startswith(("jump", "goto"))} <= names
