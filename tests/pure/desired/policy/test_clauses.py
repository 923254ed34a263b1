"""Each clause of NetworkPolicy, judged by the reference, by the wanted objects and by what explains."""

import pytest

from tests.support.policy.clauses import passes, world
from tests.support.policy.deciding import decided
from weft.model.kernel.policytable import INET

WEB = {"matchLabels": {"app": "web"}}
SHUT = {"podSelector": {}}


def to_web(*rules):
    """What may enter the pod `web`."""
    return {"podSelector": WEB, "ingress": list(rules)}


def who_reaches_web(world, *, port=80, protocol="TCP", family=4):
    names = ("db", "x", "outside") if family == 6 else ("db", "x", "v4", "outside")
    return {name for name in names if passes(world, name, "web", protocol, port, family=family)}


ALL = {"db", "x", "v4", "outside"}


@pytest.mark.spec("policy.md §6/namespace")
def test_a_policy_selects_pods_of_its_own_namespace():
    assert not passes(world(SHUT), "x", "web")
    assert passes(world(SHUT), "web", "x")
    assert passes(world(SHUT, namespace="b"), "x", "web")
    assert not passes(world(SHUT, namespace="b"), "web", "x")


@pytest.mark.spec("policy.md §6/podSelector")
@pytest.mark.parametrize(
    "selector, shut",
    [
        ({}, {"web", "db"}),
        (WEB, {"web"}),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "y"]}]}, {"db"}),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}, {"web"}),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["1"]}]}, {"web", "db"}),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"web", "db"}),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, set()),
        ({**WEB, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, set()),
    ],
)
def test_all_of_a_selector_is_to_hold(selector, shut):
    made = world({"podSelector": selector})
    assert {name for name in ("web", "db") if not passes(made, "outside", name)} == shut


@pytest.mark.spec("policy.md §6/policyTypes")
@pytest.mark.parametrize(
    "spec, enters, leaves",
    [
        ({}, False, True),
        ({"policyTypes": []}, False, True),
        ({"egress": []}, False, True),
        ({"egress": [{"to": [{"podSelector": {}}]}]}, False, False),
        ({"policyTypes": ["Egress"]}, True, False),
        ({"policyTypes": ["Ingress"], "egress": [{"to": [{"podSelector": {}}]}]}, False, True),
        ({"policyTypes": ["Ingress", "Egress"]}, False, False),
    ],
)
def test_which_directions_are_restricted(spec, enters, leaves):
    made = world({"podSelector": WEB, **spec})
    assert (passes(made, "outside", "web"), passes(made, "web", "outside")) == (enters, leaves)


@pytest.mark.spec("policy.md §6/isolation")
def test_what_any_policy_allows_is_allowed():
    from_db, from_x = (
        {"podSelector": {"matchLabels": {"app": "db"}}},
        {"namespaceSelector": {"matchLabels": {"team": "two"}}},
    )
    assert who_reaches_web(world()) == ALL
    assert who_reaches_web(world(to_web())) == set()
    assert who_reaches_web(world(to_web(), to_web({"from": [from_db]}), to_web({"from": [from_x]}))) == {"db", "x"}


@pytest.mark.spec("policy.md §6/nothing")
@pytest.mark.parametrize("spec", [{}, {"ingress": []}])
def test_no_rules_allow_nothing(spec):
    assert who_reaches_web(world({"podSelector": WEB, **spec})) == set()


@pytest.mark.spec("policy.md §6/everything")
def test_an_empty_rule_allows_everything():
    made = world(to_web({}))
    assert who_reaches_web(made) == ALL
    for protocol, port in (("UDP", 53), ("SCTP", 1), ("ICMP", 0)):
        assert who_reaches_web(made, protocol=protocol, port=port) == ALL


@pytest.mark.spec("policy.md §6/every-peer")
@pytest.mark.parametrize("peers", [{}, {"from": []}])
def test_no_peers_are_all_peers(peers):
    made = world(to_web({**peers, "ports": [{"port": 80}]}))
    assert who_reaches_web(made) == ALL
    assert who_reaches_web(made, port=81) == set()


@pytest.mark.spec("policy.md §6/pods")
def test_pods_of_the_namespace():
    assert who_reaches_web(world(to_web({"from": [{"podSelector": {}}]}))) == {"db", "v4"}
    assert who_reaches_web(world(to_web({"from": [{"podSelector": {"matchLabels": {"app": "x"}}}]}))) == set()


def test_pods_with_a_label_of_the_name_all_are_not_all_pods():
    """Both selectors read as `all`, and once shared a set."""
    labelled = {"podSelector": {"matchExpressions": [{"key": "all", "operator": "Exists"}]}}
    db = {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"from": [{"podSelector": {}}]}]}
    assert who_reaches_web(world(to_web({"from": [labelled]}), db)) == set()


@pytest.mark.spec("policy.md §6/namespaces")
def test_all_pods_of_namespaces():
    two = {"namespaceSelector": {"matchLabels": {"team": "two"}}}
    assert who_reaches_web(world(to_web({"from": [two]}))) == {"x"}
    assert who_reaches_web(world(to_web({"from": [{"namespaceSelector": {}}]}))) == {"db", "x", "v4"}


@pytest.mark.spec("policy.md §6/both")
def test_both_selectors_of_a_peer_are_to_hold_and_of_two_peers_one():
    pods, namespaces = {"matchLabels": {"app": "x"}}, {"matchLabels": {"team": "one"}}
    both = {"podSelector": pods, "namespaceSelector": namespaces}
    assert who_reaches_web(world(to_web({"from": [both]}))) == set()
    either = [{"podSelector": {"matchLabels": {"app": "db"}}}, {"namespaceSelector": {"matchLabels": {"team": "two"}}}]
    assert who_reaches_web(world(to_web({"from": either}))) == {"db", "x"}


@pytest.mark.spec("policy.md §6/name-label")
def test_a_namespace_is_named_by_its_label():
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "b"}}}
    assert who_reaches_web(world(to_web({"from": [peer]}))) == {"x"}


@pytest.mark.spec("policy.md §6/ipBlock")
@pytest.mark.parametrize(
    "block, reach",
    [
        ({"cidr": "192.0.2.0/24"}, {"outside"}),
        ({"cidr": "192.0.2.0/24", "except": ["192.0.2.0/28"]}, set()),
        ({"cidr": "0.0.0.0/0"}, ALL),
        ({"cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"]}, {"outside"}),
        ({"cidr": "10.244.1.0/29", "except": ["10.244.1.4/32"]}, {"db", "v4"}),
        ({"cidr": "192.0.2.0/24", "except": ["192.0.2.0/24"]}, set()),
    ],
)
def test_a_block_less_its_exceptions(block, reach):
    assert who_reaches_web(world(to_web({"from": [{"ipBlock": block}]}))) == reach


@pytest.mark.spec("policy.md §6/families")
def test_a_block_is_of_one_family_and_a_pod_has_an_address_of_each():
    made = world(to_web({"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}, {"podSelector": {}}]}))
    assert who_reaches_web(made) == {"db", "v4", "outside"}
    assert who_reaches_web(made, family=6) == {"db"}
    sets = decided(made).wanted
    assert len([key for key in sets if key[:3] == ("polelement", INET, "in4")]) == 4
    assert len([key for key in sets if key[:3] == ("polelement", INET, "in6")]) == 3


@pytest.mark.spec("policy.md §6/every-port")
@pytest.mark.parametrize("ports", [{}, {"ports": []}])
def test_no_ports_are_all_ports_of_all_protocols(ports):
    made = world(to_web({**ports, "from": [{"podSelector": {}}]}))
    for protocol, port in (("TCP", 1), ("UDP", 65535), ("SCTP", 7), ("ICMP", 0)):
        assert who_reaches_web(made, protocol=protocol, port=port) == {"db", "v4"}


@pytest.mark.spec("policy.md §6/protocol")
@pytest.mark.parametrize("said, protocol", [({}, "TCP"), ({"protocol": "UDP"}, "UDP"), ({"protocol": "SCTP"}, "SCTP")])
def test_the_protocol_of_a_port(said, protocol):
    made = world(to_web({"ports": [{"port": 80, **said}]}))
    assert {each for each in ("TCP", "UDP", "SCTP") if who_reaches_web(made, protocol=each)} == {protocol}


@pytest.mark.spec("policy.md §6/protocol-alone")
def test_a_protocol_without_a_port_is_all_of_its_ports():
    made = world(to_web({"ports": [{"protocol": "UDP"}]}))
    assert who_reaches_web(made, protocol="UDP", port=65535) == ALL
    assert who_reaches_web(made, port=80) == set()


@pytest.mark.spec("policy.md §6/endPort")
def test_ports_from_one_to_another():
    made = world(to_web({"ports": [{"port": 80}, {"port": 8000, "endPort": 8002}, {"port": 8001, "endPort": 8003}]}))
    reached = {port for port in (79, 80, 81, 7999, 8000, 8001, 8003, 8004) if passes(made, "db", "web", "TCP", port)}
    assert reached == {80, 8000, 8001, 8003}


@pytest.mark.spec("policy.md §6/named-port")
def test_a_port_by_its_name_is_the_targets():
    http = [{"port": "http"}]
    made = world(to_web({"ports": http}))
    assert {port for port in (80, 8080) if passes(made, "db", "web", "TCP", port)} == {8080}
    assert not passes(made, "db", "web", "UDP", 8080)
    leaves = world(
        {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"], "egress": [{"ports": http}]}
    )
    assert passes(leaves, "db", "web", "TCP", 8080)
    assert not passes(leaves, "db", "x", "TCP", 8080)
    nowhere = world({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"ports": http}]})
    assert not passes(nowhere, "web", "db", "TCP", 8080)


@pytest.mark.spec("policy.md §6/reply")
def test_replies_pass_both_base_chains():
    base = [thing for thing in decided(world(SHUT)).wanted.values() if " hook forward " in getattr(thing, "hook", "")]
    assert [chain.rules[0] for chain in base] == ["ct state established,related accept"] * 2


@pytest.mark.spec("policy.md §6/both-directions")
def test_both_ends_have_to_allow_a_connection():
    leaves = {
        "podSelector": {"matchLabels": {"app": "db"}},
        "policyTypes": ["Egress"],
        "egress": [{"ports": [{"port": 80}]}],
    }
    made = world(leaves, to_web({"ports": [{"port": 81}]}))
    assert not passes(made, "db", "web", "TCP", 80)
    assert not passes(made, "db", "web", "TCP", 81)
    assert passes(world(leaves, to_web({"ports": [{"port": 80}]})), "db", "web", "TCP", 80)


@pytest.mark.spec("policy.md §6/itself")
def test_a_pod_cannot_be_kept_from_itself():
    shut = {**SHUT, "policyTypes": ["Ingress", "Egress"]}
    assert passes(world(shut), "web", "web")
    assert passes(world(shut), "web", "web", family=6)


@pytest.mark.spec("policy.md §6/own-node")
def test_nothing_is_asked_of_a_pods_own_node():
    chains = [thing for thing in decided(world(SHUT)).wanted.values() if getattr(thing, "hook", "")]
    hooks = {(chain.table, chain.hook.split()[3]) for chain in chains}
    assert hooks == {(INET, "forward"), ("bridge weft-policy", "prerouting")}


@pytest.mark.spec("policy.md §6/other-nodes")
def test_other_nodes_are_meant_by_blocks_alone():
    pods = world(to_web({"from": [{"namespaceSelector": {}}, {"podSelector": {}}]}))
    assert not passes(pods, "far node", "web")
    assert passes(world(to_web({"from": [{"ipBlock": {"cidr": "10.244.2.0/32"}}]})), "far node", "web")
    host = world(to_web({"from": [{"podSelector": {}}]}), db={"hostNetwork": True})
    assert decided(host).policies_of(("pod", "a", "db"), "ingress") == ()


@pytest.mark.spec("policy.md §6/icmp")
def test_rules_without_ports_allow_icmp_and_isolation_refuses_it():
    for rule, reach in (({}, ALL), ({"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}, set())):
        assert who_reaches_web(world(to_web(rule)), protocol="ICMP", port=0) == reach
    assert who_reaches_web(world(to_web()), protocol="ICMP", port=0) == set()
    assert who_reaches_web(world(to_web()), protocol="ICMP", port=0, family=6) == set()


@pytest.mark.spec("policy.md §6/ended")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_addresses_of_ended_pods_count_no_more(phase):
    made = world(to_web({"from": [{"podSelector": {}}]}), db={"phase": phase})
    sets = [key for key in decided(made).wanted if key[0] == "polelement" and key[2].startswith("peers4")]
    assert len(sets) == 2  # of web and v4


@pytest.mark.spec("policy.md §6/labels-change")
def test_labels_that_change_take_effect():
    rule = {"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}
    assert who_reaches_web(world(to_web(rule), db={"labels": {}}, v4={"labels": {"app": "db"}})) == {"v4"}
