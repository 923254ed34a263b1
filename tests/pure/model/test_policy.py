"""The values of policies: what a selector means, what is left of a block, how they are written."""

from ipaddress import ip_address, ip_network

import pytest

from weft.model.policy import (
    EVERYTHING,
    IpBlock,
    Namespace,
    Pod,
    PodPeer,
    Policy,
    Port,
    Requirement,
    Rule,
    Selector,
    id_of,
    name_of,
)

WEB = Requirement("app", "In", ("web",))


@pytest.mark.parametrize(
    "requirement, text, met, unmet",
    [
        (WEB, "app=web", {"app": "web"}, {"app": "db"}),
        (Requirement("app", "In", ("db", "web")), "app in (db,web)", {"app": "db"}, {}),
        (Requirement("app", "NotIn", ("db", "web")), "app notin (db,web)", {}, {"app": "db"}),
        (Requirement("app", "NotIn", ("db",)), "app!=db", {"app": "web"}, {"app": "db"}),
        (Requirement("app", "Exists"), "app", {"app": ""}, {"tier": "1"}),
        (Requirement("app", "DoesNotExist"), "!app", {"tier": "1"}, {"app": ""}),
    ],
)
def test_a_requirement(requirement, text, met, unmet):
    assert str(requirement) == text
    assert requirement.is_met(met)
    assert not requirement.is_met(unmet)


def test_a_selector_wants_all_of_its_requirements_and_says_which_is_not_met():
    selector = Selector((WEB, Requirement("old", "DoesNotExist")))
    assert selector.selects({"app": "web"})
    assert selector.unmet({"app": "web"}) is None
    assert not selector.selects({"app": "web", "old": "1"})
    assert str(selector.unmet({"app": "web", "old": "1"})) == "!old"
    assert str(selector) == "app=web,!old"
    assert EVERYTHING.selects({})
    assert str(EVERYTHING) == "all"


@pytest.mark.parametrize(
    "net, exceptions, left",
    [
        ("192.0.2.0/24", [], ["192.0.2.0/24"]),
        ("192.0.2.0/24", ["192.0.2.192/26"], ["192.0.2.0/25", "192.0.2.128/26"]),
        ("192.0.2.0/24", ["192.0.2.0/25", "192.0.2.64/26"], ["192.0.2.128/25"]),
        ("192.0.2.0/24", ["192.0.2.0/24"], []),
        ("2001:db8::/32", ["2001:db8::/33"], ["2001:db8:8000::/33"]),
    ],
)
def test_a_block_less_its_exceptions(net, exceptions, left):
    block = IpBlock(ip_network(net), tuple(map(ip_network, exceptions)))
    assert [str(prefix) for prefix in block.prefixes] == left
    assert str(block) == f"{net} except {', '.join(exceptions)}" if exceptions else net
    for ip in ("192.0.2.0", "192.0.2.255", "192.0.2.70", "198.51.100.1", "2001:db8::1", "2001:db8:8000::1"):
        assert block.has(ip_address(ip)) == any(ip_address(ip) in prefix for prefix in block.prefixes)


@pytest.mark.parametrize(
    "port, text",
    [
        (Port(), "all of tcp"),
        (Port(protocol="udp", first=53, last=53), "53/udp"),
        (Port(first=8000, last=8100), "8000-8100/tcp"),
        (Port(name="http"), "http/tcp"),
    ],
)
def test_a_port_is_written(port, text):
    assert str(port) == text


def test_things_are_named():
    web = PodPeer(pods=Selector((WEB,)))
    assert str(web) == "pods app=web"
    assert str(PodPeer(namespaces=EVERYTHING)) == "pods all of namespaces all"
    policy = Policy(namespace="default", name="allow-web", pods=EVERYTHING, ingress=(Rule(peers=(web,)),))
    assert (str(policy), policy.id) == ("default/allow-web", ("policy", "default", "allow-web"))
    assert policy.rules("ingress") == policy.ingress
    assert policy.rules("egress") is None
    pod = Pod(namespace="default", name="web", labels={})
    assert (str(pod), pod.id) == ("default/web", ("pod", "default", "web"))
    assert Namespace(name="default", labels={}).id == ("namespace", "", "default")


@pytest.mark.parametrize("changes, counts", [({}, True), ({"host_network": True}, False), ({"ended": True}, False)])
def test_which_pods_are_meant(changes, counts):
    assert Pod(namespace="default", name="web", labels={}, **changes).counts == counts


@pytest.mark.parametrize(
    "name", ["NetworkPolicy shop/web", "ClusterNetworkPolicy last", "Namespace shop", "Pod shop/a"]
)
def test_an_object_is_known_again_by_its_name(name: str):
    found = id_of(name)
    assert found is not None
    assert name_of(found) == name


def test_a_name_of_no_such_kind_names_nothing():
    assert id_of("ConfigMap shop/web") is None
