"""What explains a flow: which rule allows it, why each other does not fit, and what would."""

from ipaddress import ip_address

import pytest

from tests.support.policy.clauses import ADDRESSES, world
from tests.support.policy.deciding import judging
from weft.desired.policy.judge import judged
from weft.desired.policy.verdict import Asked, End, World, between
from weft.model.value import replace

WEB = {"matchLabels": {"app": "web"}}
DB = {"podSelector": {"matchLabels": {"app": "db"}}}


def side(known, source="db", target="web", *, port=80, direction="ingress", protocol="tcp"):
    ends = (known.at(ip_address(ADDRESSES[name][0])) for name in (source, target))
    found = judged(Asked(source=next(ends), target=next(ends), protocol=protocol, port=port), known)
    return next(each for each in found.sides if each.direction == direction)


def refused(rule, **asked):
    """Why the one rule does not fit, and the change that would."""
    found = side(judging(world({"podSelector": WEB, "ingress": [rule]})), **asked)
    assert not found.allowed
    ((verdict,),) = (each.rules for each in found.policies)
    return list(verdict.why), found.change


@pytest.mark.parametrize(
    "rule, source, why, change",
    [
        (
            {"ports": [{"port": 8080}]},
            "db",
            ["ports[0]: port 80 is not 8080/tcp"],
            "add port 80/tcp to ingress[0].ports of a/p0",
        ),
        (
            {"ports": [{"port": 8080, "endPort": 8090}, {"protocol": "UDP"}]},
            "db",
            ["ports[0]: port 80 is not in 8080-8090/tcp", "ports[1]: tcp is not udp"],
            "add port 80/tcp to ingress[0].ports of a/p0",
        ),
        (
            {"ports": [{"port": "http"}, {"port": "dns"}]},
            "db",
            ["ports[0]: http/tcp of a/web is 8080, not 80", "ports[1]: a/web has no port that is called dns/tcp"],
            "add port 80/tcp to ingress[0].ports of a/p0",
        ),
        (
            {"from": [DB]},
            "v4",
            ["from[0]: a/v4 has label app=v4, and app=db is asked for"],
            "add pods app=v4 to ingress[0].from of a/p0",
        ),
        (
            {"from": [DB]},
            "x",
            ["from[0]: b/x is not in namespace a"],
            "add pods app=x of namespaces kubernetes.io/metadata.name=b to ingress[0].from of a/p0",
        ),
        (
            {"from": [{"namespaceSelector": {"matchLabels": {"env": "prod"}}}]},
            "db",
            ["from[0]: namespace a has no label env=prod"],
            "add pods app=db to ingress[0].from of a/p0",
        ),
        (
            {"from": [DB]},
            "outside",
            ["from[0]: 192.0.2.7 is no pod's address"],
            "add ipBlock 192.0.2.7 to ingress[0].from of a/p0",
        ),
        (
            {"from": [{"namespaceSelector": {}}]},
            "outside",
            ["from[0]: 192.0.2.7 is no pod's address"],
            "add ipBlock 192.0.2.7 to ingress[0].from of a/p0",
        ),
        (
            {"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.0/28"]}}], "ports": [{"port": 81}]},
            "outside",
            ["from[0]: 192.0.2.7 is not in 192.0.2.0/24 except 192.0.2.0/28", "ports[0]: port 80 is not 81/tcp"],
            "add to ingress of a/p0 a rule from ipBlock 192.0.2.7 with port 80/tcp",
        ),
    ],
)
def test_why_a_rule_does_not_fit(rule, source, why, change):
    assert refused(rule, source=source) == (why, change)


def test_what_would_allow_a_protocol_without_ports():
    assert refused({"ports": [{"port": 80}]}, protocol="icmp", port=0)[1] == "add icmp to ingress[0].ports of a/p0"


def test_which_rule_allows():
    rules = [
        {"ports": [{"port": 81}]},
        {"from": [{"podSelector": {"matchLabels": {"app": "v4"}}}, DB], "ports": [{"port": 80}]},
    ]
    found = side(judging(world({"podSelector": WEB}, {"podSelector": WEB, "ingress": rules})))
    assert (found.allowed, found.reason, found.change) == (True, "ingress[1] of a/p1 allows it", "")
    assert [any(rule.fits for rule in each.rules) for each in found.policies] == [False, True]
    assert found.policies[1].rules[1].why == ("from[1]: pods app=db", "ports[0]: 80/tcp")
    assert side(judging(world({"podSelector": WEB, "ingress": [{}]}))).policies[0].rules[0].why == (
        "from: all",
        "ports: all",
    )


def test_a_policy_without_rules_is_said():
    found = side(judging(world({"podSelector": WEB})))
    assert found.reason == "no rule of a/p0 allows it"
    assert found.change == "add to ingress of a/p0 a rule from pods app=db with port 80/tcp"


def test_who_is_not_asked():
    known = judging(world({"podSelector": {}, "policyTypes": ["Ingress"]}, db={"hostNetwork": True}))
    assert side(known, direction="egress", source="web", target="v4").reason == "no policy restricts its egress"
    assert side(known, source="web", target="outside").reason == "no pod has this address, so no policy is asked"
    assert side(known, source="web", target="web").reason == "no NetworkPolicy can keep a pod from itself"
    host = next(pod for pod in known.pods if pod.name == "db")
    found = judged(Asked(source=End(pod=host), target=End(pod=host, ip=host.ips[0]), protocol="tcp"), known)
    assert found.sides[0].reason == "it has its node's address (hostNetwork), so no policy selects it"


def test_its_own_node_reaches_a_pod_whatever_the_policies():
    known = judging(world({"podSelector": WEB, "ingress": []}))
    web, db = (next(pod for pod in known.pods if pod.name == name) for name in ("web", "db"))
    web, host = replace(web, node="n1"), replace(db, host_network=True, node="n1")
    asked = Asked(source=End(pod=host), target=End(pod=web), protocol="tcp", port=80)
    assert judged(asked, known).allowed
    assert not judged(replace(asked, source=End(pod=replace(host, node="n2"))), known).allowed
    assert not judged(replace(asked, source=End(pod=replace(host, node=""))), known).allowed


def test_peers_without_an_address_or_a_namespace():
    """Pods of files may have no address yet."""
    known = judging(
        world({"podSelector": WEB, "ingress": [{"from": [{"ipBlock": {"cidr": "::/0"}}, {"namespaceSelector": {}}]}]})
    )
    web, db = (next(pod for pod in known.pods if pod.name == name) for name in ("web", "db"))
    asked = Asked(source=End(pod=db), target=End(pod=web), protocol="tcp", port=80)
    (rule,) = judged(asked, known).sides[1].policies[0].rules
    assert rule.why == ("from[1]: any pod", "ports: all")
    host = replace(asked, source=End(pod=replace(db, host_network=True, node="n2")))
    (rule,) = judged(host, known).sides[1].policies[0].rules
    assert rule.why == ("from[0]: the address of a/db is not known", "from[1]: a/db is no pod's address")
    other = judging(
        world({"podSelector": WEB, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "one"}}}]}]})
    )
    bare = World(namespaces={}, pods=other.pods, policies=other.policies)
    (rule,) = judged(asked, bare).sides[1].policies[0].rules
    assert rule.why == ("from[0]: namespace a is not known",)
    (rule,) = judged(host, other).sides[1].policies[0].rules
    assert rule.why == ("from[0]: a/db has its node's address (hostNetwork), which no selector means",)
    assert judged(host, other).sides[1].change == "add ipBlock of its node to ingress[0].from of a/p0"


def test_the_ends_of_a_flow_have_addresses_of_one_family():
    pods = {pod.name: pod for pod in judging(world()).pods}
    web, v4 = pods["web"], pods["v4"]
    v6 = replace(pods["db"], ips=pods["db"].ips[1:])
    assert [end.ip for end in between(web, v4)] == [web.ips[0], v4.ips[0]]
    assert [end.ip for end in between(web, v6)] == [web.ips[1], v6.ips[0]]
    assert between(v4, v6) == (End(pod=v4), End(pod=v6))


def test_a_peer_that_nobody_understands():
    known = judging(world({"podSelector": WEB, "ingress": [{}]}))
    (policy,) = known.policies
    closed = replace(policy, ingress=(replace(policy.ingress[0], peers=()),))
    found = side(replace(known, policies=(closed,)))
    assert found.policies[0].rules[0].why == ("from: nothing of it is understood",)
