"""What of policies is probably not meant."""

import pytest

from tests.support.policy.clauses import world
from tests.support.policy.deciding import judging
from weft.desired.policy.advice import advice
from weft.model.policy import Namespace
from weft.model.value import replace

WEB = {"matchLabels": {"app": "web"}}
TEAM = {"matchLabels": {"team": "one"}}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}]}


def said(*specs):
    return [(each.path.removeprefix("spec."), each.seen) for each in advice(judging(world(*specs)))]


def said_of_ingress(rule):
    return said({"podSelector": WEB, "ingress": [rule]})


def leaving(*rules, pods=WEB):
    return {"podSelector": pods, "policyTypes": ["Egress"], "egress": list(rules)}


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"from": [{"podSelector": WEB, "namespaceSelector": TEAM}]},
        {"from": [{"podSelector": WEB}, {"podSelector": {"matchLabels": {"app": "db"}}}]},
        {"from": [{"podSelector": WEB}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]},
        {
            "from": [
                {"ipBlock": {"cidr": "0.0.0.0/0"}},
                {"ipBlock": {"cidr": "10.244.1.0/24", "except": ["10.244.1.0/25"]}},
            ]
        },
        {"ports": [{"port": "http"}, {"port": 81}]},
    ],
)
def test_nothing_is_said_of_what_may_be_meant(rule):
    assert said_of_ingress(rule) == []


def test_a_policy_that_selects_nothing():
    nothing = {"podSelector": {"matchLabels": {"app": "wbe"}}}
    assert said(nothing) == [("podSelector", "selects no pod: none of namespace a has app=wbe")]
    known = judging(world(nothing))
    assert advice(replace(known, pods=())) == ()


@pytest.mark.parametrize("peers", [[{"podSelector": WEB}, {"namespaceSelector": TEAM}]])
def test_an_or_that_may_be_meant_as_an_and(peers):
    text = "pods app=web, or pods all of namespaces team=one: either is enough"
    assert said_of_ingress({"from": peers}) == [("ingress[0].from[1]", text)]
    assert said_of_ingress({"from": peers[::-1]})


def test_a_block_that_has_pods():
    text = "10.244.0.0/16 has addresses of pods, as of a/web (10.244.1.2)"
    assert said_of_ingress({"from": [{"ipBlock": {"cidr": "10.244.0.0/16"}}]}) == [("ingress[0].from[0].ipBlock", text)]


def test_a_name_that_no_port_has():
    assert said_of_ingress({"ports": [{"port": "htpp"}]}) == [
        ("ingress[0].ports[0]", "no pod has a port that is called htpp/tcp")
    ]
    assert said(leaving({"ports": [{"port": "http"}]}, DNS)) == []
    assert said(leaving({"ports": [{"port": "http", "protocol": "UDP"}]}, DNS))


@pytest.mark.parametrize(
    "specs, told",
    [
        ([leaving()], True),
        ([leaving({"ports": [{"port": 53}]})], True),
        ([leaving({"ports": [{"port": 80}]})], True),
        ([leaving({})], False),
        ([leaving(DNS)], False),
        ([leaving({"ports": [{"protocol": "UDP"}]})], False),
        ([leaving({"ports": [{"port": 50, "endPort": 60, "protocol": "UDP"}]})], False),
        ([leaving({"ports": [{"port": 80}]}), leaving(DNS, pods={})], False),
        ([leaving({"ports": [{"port": 80}]}), leaving(DNS, pods={"matchLabels": {"app": "db"}})], True),
    ],
)
def test_what_leaves_without_dns(specs, told):
    assert (("egress", "no rule allows DNS (port 53/udp)") in said(*specs)) == told


def test_dns_by_its_name():
    found = said(leaving({"ports": [{"port": "dns", "protocol": "UDP"}]}))
    assert found == [("egress[0].ports[0]", "no pod has a port that is called dns/udp")]


def test_namespaces_that_are_not_there_are_named_where_any_is_known():
    elsewhere = {"namespaceSelector": {"matchLabels": {"team": "nobody"}}}
    made = judging(world({"podSelector": {}, "ingress": [{"from": [elsewhere]}]}, namespace="nowhere"))
    said = {each.path: (each.seen, each.hint) for each in advice(made)}
    assert said["metadata.namespace"] == (
        "there is no namespace nowhere",
        "It selects nothing until there is one; there are a, b",
    )
    assert said["spec.ingress[0].from[0].namespaceSelector"][0] == "no namespace has team=nobody"
    assert "metadata.namespace" not in {each.path for each in advice(made, {"a", "b"})}, (
        "nobody has said which there are"
    )
    many = replace(made, namespaces={f"n{number}": Namespace(name=f"n{number}", labels={}) for number in range(7)})
    [hint] = [each.hint for each in advice(many) if each.path == "metadata.namespace"]
    assert hint.endswith("there are n0, n1, n2, n3, n4 and 2 more")
    one = replace(made, namespaces={"n": Namespace(name="n", labels={})})
    assert any(each.hint.endswith("there is n") for each in advice(one))
