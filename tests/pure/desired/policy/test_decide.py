"""What a node wants for its pods: their elements, their classes, and what is refused."""

from ipaddress import ip_address

import pytest

from tests.support.policy.deciding import SETTINGS
from tests.support.policy.nftreader import Packet, Reader
from weft.desired.policy.decide import PolicyDecider
from weft.desired.policy.frame import frame, refusal
from weft.desired.policy.inputs import Attached
from weft.desired.policy.names import comment, pod_said
from weft.desired.policy.text import namespaces_of
from weft.model.kernel.policytable import BRIDGE, INET
from weft.model.policy import (
    EVERYTHING,
    NAME_LABEL,
    NamedPort,
    Namespace,
    Pod,
    PodPeer,
    Policy,
    Port,
    Requirement,
    Rule,
    Selector,
)
from weft.model.value import replace

TEAM = Selector((Requirement("team", "In", ("a",)),))
WEB = Selector((Requirement("app", "In", ("web",)),))
SHOP = Namespace(name="shop", labels={NAME_LABEL: "shop", "team": "a"})
IP = ip_address("10.244.1.2")
POD = Pod(namespace="shop", name="web", labels={"app": "web"}, uid="u-1")
ATTACHED = Attached(pod="shop/web", ips=(IP,), uid="u-1", port="veth1", link="cni0")
SHUT = Policy(namespace="shop", name="shut", pods=EVERYTHING, ingress=())


def decider(*things, attached=ATTACHED, settings=SETTINGS):
    made = PolicyDecider(settings)
    made.change(things)
    if attached is not None:
        made.attached("a", attached)
    return made


def elements(made, name, table=INET):
    found = (made.wanted[key] for key in made.wanted if key[:3] == ("polelement", table, name))
    return {thing.element: thing.verdict for thing in found}


def chains(made, prefix):
    return [thing for key, thing in made.wanted.items() if key[0] == "polchain" and thing.name.startswith(prefix)]


def test_a_pod_without_policies_is_let_through():
    made = decider(SHOP, POD)
    assert elements(made, "in4") == elements(made, "out4") == {IP.packed: "accept"}
    assert elements(made, "self4") == {IP.packed * 2: ""}
    assert elements(made, "links") == {b"cni0".ljust(16, b"\0"): ""}
    assert elements(made, "bound4", BRIDGE) == {b"veth1".ljust(16, b"\0") + IP.packed: ""}
    assert elements(made, "ports", BRIDGE) == {b"veth1".ljust(16, b"\0"): ""}
    assert made.ready("a")


def test_a_routed_pod_is_held_to_its_addresses_by_the_table_inet():
    made = decider(SHOP, POD, attached=replace(ATTACHED, link="veth1"))
    assert elements(made, "bound4") == {b"veth1".ljust(16, b"\0") + IP.packed: ""}
    assert not elements(made, "ports", BRIDGE)


@pytest.mark.parametrize("target", ["224.0.0.1", "255.255.255.255", "ff02::fb", "fe80::2"])
def test_what_is_for_no_pods_address_reaches_no_pod_of_the_bridge(target):
    """It is delivered to whoever listens there, restricted or not."""
    reader = Reader(decider(SHOP, POD).wanted.values())
    flow = ("10.244.1.2" if "." in target else "fd00:244:0:1::2", target, "UDP", 53)
    assert not reader.passes(Packet(flow, iifname="cni0", oifname="cni0"))
    from_elsewhere = ("192.0.2.7" if "." in target else "2001:db8::7", *flow[1:])
    assert reader.passes(Packet(from_elsewhere, iifname="eth0", oifname="eth1")), "none of our links"
    solicitation = Packet((*flow[:2], "ICMP", 0), iifname="cni0", oifname="cni0", icmp=135, hops=255)
    assert reader.passes(solicitation) == (":" in target)


@pytest.mark.parametrize("kind, may", [(130, False), (133, True), (134, False), (135, True), (136, True), (137, False)])
def test_a_pod_is_no_router(kind, may):
    reader = Reader(decider(SHOP, POD).wanted.values(), BRIDGE)
    packet = Packet(("fe80::1", "ff02::1", "ICMP", 0), iifname="veth1", icmp=kind)
    assert reader.passes(packet, "prerouting") == may


@pytest.mark.parametrize("mine, other", [("10.244.1.9", "192.0.2.7"), ("fd00:244:0:1::9", "2001:db8::7")])
def test_an_address_of_the_node_that_nobody_is_known_to_have_is_refused_where_nothing_is_attached(mine, other):
    reader = Reader(PolicyDecider(SETTINGS).wanted.values())
    for source, target, link in ((mine, other, "veth7"), (other, mine, "eth0")):
        assert not reader.passes(Packet((source, target, "TCP", 80), iifname=link, oifname="eth1"))


def test_what_ipvs_sends_for_a_service_is_judged_by_its_sender_and_what_the_node_sends_is_not():
    """It leaves by hook output, and has come in by no link there."""
    settings = replace(SETTINGS, ipvs=True)
    away = replace(SHUT, name="away", ingress=None, egress=())
    far, mine, gateway = "192.0.2.7", str(IP), "10.244.1.1"
    flows = {(mine, far): away, (far, mine): SHUT}
    for (source, target), policy in flows.items():
        packet = Packet((source, target, "TCP", 80), iifname="", own=False)
        assert Reader(decider(SHOP, POD, settings=settings).wanted.values()).passes(packet, "output")
        reader = Reader(decider(SHOP, POD, policy, settings=settings).wanted.values())
        assert not reader.passes(packet, "output")
        assert reader.passes(Packet((gateway, mine, "TCP", 80), iifname="", own=True), "output")


@pytest.mark.parametrize("link, table", [("cni0", BRIDGE), ("veth1", INET)])
def test_packets_are_asked_for_their_senders_in_a_table_that_a_port_needs_alone(link, table):
    made = decider(SHOP, POD, attached=replace(ATTACHED, link=link))
    [chain] = chains(made, "senders")
    assert chain.table == table
    made.detached("a")
    assert not chains(made, "senders")


@pytest.mark.parametrize("link", ["cni0", "veth1"])
@pytest.mark.parametrize(
    "source, claimed, may",
    [
        ("fd00:244:0:1::2", "fd00:244:0:1::2", True),
        ("fe80::1", "fd00:244:0:1::2", True),
        ("fe80::1", "fe80::1", True),
        ("fd00:244:0:1::2", "fd00:244:0:1::3", False),
        ("fe80::1", "fd00:244:0:1::3", False),
    ],
)
def test_a_pod_advertises_no_other_ones_address(source, claimed, may, link):
    mine = ip_address("fd00:244:0:1::2")
    made = decider(SHOP, replace(POD, ips=(mine,)), attached=replace(ATTACHED, ips=(mine,), link=link))
    reader = Reader(made.wanted.values(), INET if link == "veth1" else BRIDGE)
    packet = Packet((source, "ff02::1", "ICMP", 0), iifname="veth1", icmp=136, claimed=claimed)
    assert reader.passes(packet, "prerouting") == may


def test_who_has_no_link_here_has_no_port():
    made = decider(SHOP, POD, attached=replace(ATTACHED, link="", port=""))
    assert not elements(made, "links")
    assert elements(made, "in4") == {IP.packed: "accept"}


def test_a_pod_that_is_to_run_here_has_its_chains_before_it_is_attached():
    made = decider(SHOP, SHUT, attached=None, settings=replace(SETTINGS, node="node1"))
    to_come, elsewhere = (replace(POD, node=node, ips=()) for node in ("node1", "node2"))
    made.change([elsewhere])
    assert not chains(made, "in-")
    before = made.change([to_come])
    assert {key[0] for key in before} == {"polchain"}
    assert not made.ready("a")
    assert made.isolated("ingress") == 0
    keys = made.attached("a", ATTACHED)
    assert made.isolated("ingress") == 1
    assert not any(key[0] == "polchain" and key[2].startswith("in") for key in keys), "elements alone"
    made.detached("a")
    assert chains(made, "in-")
    for ended in ({"put": [replace(to_come, ended=True)]}, {"put": [elsewhere]}, {"gone": [POD.id]}):
        made.change([to_come])
        made.change(**ended)
        assert not chains(made, "in-")


def test_a_policy_that_allows_nothing_leads_to_the_refusal():
    made = decider(SHOP, POD, SHUT)
    (chain,) = chains(made, "in-")
    assert chain.rules[-1] == f'goto {refusal("ingress", "enforce").name} comment "shop/shut"'
    assert elements(made, "in4") == {IP.packed: chain.name}
    assert elements(made, "out4") == {IP.packed: "accept"}
    assert made.policies_of(POD.id, "ingress") == (SHUT,)
    assert made.policies_of(POD.id, "egress") == ()


def test_the_audit_lets_through_what_it_counts():
    made = decider(SHOP, POD, SHUT, settings=replace(SETTINGS, mode="audit"))
    (chain,) = chains(made, "in-")
    counting = refusal("ingress", "audit")
    assert chain.rules[-1] == f'goto {counting.name} comment "shop/shut"'
    assert "drop" not in " ".join(rule for each in chains(made, "") for rule in each.rules)
    assert counting.key in made.wanted


@pytest.mark.parametrize(
    "things",
    [
        (SHOP,),
        (POD,),
        (SHOP, replace(POD, uid="u-2")),
        (SHOP, replace(POD, ended=True)),
        (SHOP, replace(POD, host_network=True)),
    ],
    ids=["no pod", "no namespace", "an earlier one of its name", "ended", "the node's"],
)
def test_a_pod_that_is_not_known_is_refused(things):
    made = decider(*things)
    assert not elements(made, "in4")
    assert not elements(made, "out4")
    assert elements(made, "ports", BRIDGE)  # and may not send as another
    assert not made.ready("a")


def test_what_is_no_pod_of_kubernetes_is_let_through():
    made = decider(SHUT, SHOP, attached=Attached(pod="", ips=(IP,)))
    assert elements(made, "in4") == {IP.packed: "accept"}
    assert made.ready("a")
    assert not made.ready("b")


def test_a_namespace_that_comes_makes_its_pods_known_and_one_that_goes_unknown():
    made = decider(POD, SHUT)
    assert made.change([SHOP])
    assert made.ready("a")
    made.change(gone=[SHOP.id])
    assert not made.ready("a")
    assert not elements(made, "in4")
    assert made.change(gone=[SHOP.id]) == set()


def test_a_comment_says_whose_an_element_is():
    made = decider(SHOP, POD)
    assert made.wanted["polelement", INET, "in4", IP.packed].comment == "u-1 shop/web"
    nameless = decider(SHOP, POD, attached=replace(ATTACHED, pod=""))
    assert nameless.wanted["polelement", INET, "in4", IP.packed].comment == "no pod of Kubernetes"


def test_comments_of_two_pods_whose_names_have_the_same_beginning_differ_and_have_room():
    said = {comment(uid, f"shop/{'x' * 252}{end}") for uid in ("", "u" * 36, "ü" * 200) for end in "ab"}
    assert len(said) == 6
    assert max(len(each.encode()) for each in said) <= 127
    assert {each.partition(" ")[2] for each in said} == {pod_said(f"shop/{'x' * 252}{end}") for end in "ab"}


def test_peers_of_policies_that_nobody_here_meets_have_no_sets():
    far = Pod(namespace="shop", name="far", labels={"app": "web"}, ips=(ip_address("10.244.2.2"),))
    allow = replace(SHUT, name="allow", ingress=(Rule(peers=(PodPeer(pods=WEB),)),))
    made = decider(SHOP, POD, far, allow)
    (peers,) = [thing for key, thing in made.wanted.items() if key[0] == "polset" and "peers4" in thing.name]
    assert set(elements(made, peers.name)) == {IP.packed, ip_address("10.244.2.2").packed}
    made.detached("a")
    assert made.wanted == {thing.key: thing for thing in frame(SETTINGS)}


def test_a_pod_is_its_own_peer_by_the_addresses_of_its_attachment():
    allow = replace(SHUT, ingress=(Rule(peers=(PodPeer(pods=WEB),)),))
    made = decider(SHOP, replace(POD, ips=(ip_address("10.244.1.9"),)), allow)
    (name,) = [key[2] for key in made.wanted if key[0] == "polset" and "peers4" in key[2]]
    assert set(elements(made, name)) == {IP.packed}
    made.detached("a")
    assert not [key for key in made.wanted if key[0] == "polchain" and "shut" in key[2]]


def test_policies_share_the_set_of_a_peer():
    allow = replace(SHUT, ingress=(Rule(peers=(PodPeer(pods=WEB),)),))
    made = decider(SHOP, POD, allow, replace(allow, name="more"))
    (name,) = [key[2] for key in made.wanted if key[0] == "polset" and "peers4" in key[2]]
    made.change(gone=[allow.id])
    assert set(elements(made, name)) == {IP.packed}


def test_an_address_that_two_pods_have_goes_with_the_last():
    """The API tells of a pod's end later than of the next one with its address."""
    allow = replace(SHUT, ingress=(Rule(peers=(PodPeer(pods=WEB),)),))
    far = [Pod(namespace="shop", name=name, labels={"app": "web"}, ips=(ip_address("10.244.2.2"),)) for name in "abc"]
    made = decider(SHOP, POD, allow, *far)
    (name,) = [key[2] for key in made.wanted if key[0] == "polset" and "peers4" in key[2]]
    for pod, left in zip(far, (True, True, False), strict=True):
        made.change(gone=[pod.id])
        assert (ip_address("10.244.2.2").packed in elements(made, name)) == left


def test_an_address_that_two_attachments_have_is_judged_as_of_the_last_that_is_left():
    """A DEL may come late, or never."""
    other = Pod(namespace="shop", name="db", labels={"app": "db"})
    shut = replace(SHUT, pods=Selector((Requirement("app", "In", ("db",)),)))
    made = decider(SHOP, POD, other, shut)
    alone = dict(made.wanted)
    for _ in range(2):
        for key in "bc":
            made.attached(key, replace(ATTACHED, pod="shop/db", uid=""))
            assert elements(made, "in4") != {IP.packed: "accept"}
        made.detached("b")
        assert elements(made, "in4") != {IP.packed: "accept"}
        made.detached("c")
        assert made.wanted == alone
    made.attached("b", replace(ATTACHED, pod="shop/db", uid=""))
    made.detached("a")
    assert elements(made, "in4") != {IP.packed: "accept"}
    made.detached("b")
    assert not elements(made, "in4")


def test_a_pod_may_have_two_attachments():
    made = decider(SHOP, POD)
    made.attached("b", replace(ATTACHED, ips=(ip_address("10.244.1.9"),), port="veth2"))
    assert len(elements(made, "in4")) == 2
    made.detached("b")
    assert set(elements(made, "in4")) == {IP.packed}


def test_pods_of_one_class_share_its_chain():
    made = decider(SHOP, POD, replace(POD, name="other", uid=""), SHUT)
    assert made.attached("b", Attached(pod="shop/other", ips=(ip_address("10.244.1.3"),)))
    assert len(chains(made, "in-")) == 1
    made.detached("a")
    assert len(chains(made, "in-")) == 1


def test_what_is_said_again_touches_nothing():
    made = decider(SHOP, POD, SHUT)
    assert made.change([SHOP, POD]) == set()
    assert made.attached("a", ATTACHED) == set()
    assert made.detached("z") == set()
    assert made.change([SHUT]) == set()


def test_a_port_by_its_name():
    named = replace(SHUT, ingress=(Rule(ports=(Port(name="http"), Port(name="http", protocol="udp"))),))
    made = decider(SHOP, replace(POD, ports=(NamedPort("http", "tcp", 8080),)), named)
    assert set(elements(made, "ports4-http-tcp")) == {IP.packed + b"\6\0\0\0" + b"\x1f\x90\0\0"}
    made.change([replace(POD, ports=(NamedPort("http", "tcp", 8081),))])
    assert set(elements(made, "ports4-http-tcp")) == {IP.packed + b"\6\0\0\0" + b"\x1f\x91\0\0"}
    made.change([replace(named, name="another", pods=WEB)])
    made.change(gone=[named.id])
    assert elements(made, "ports4-http-tcp")


@pytest.mark.parametrize(
    "changes, namespaces",
    [
        ({}, set()),
        ({"ingress": (Rule(),)}, set()),
        ({"ingress": (Rule(peers=(PodPeer(pods=WEB),)),)}, {"shop"}),
        ({"ingress": (Rule(peers=(PodPeer(namespaces=TEAM),)),)}, {"shop", "other"}),
        ({"ingress": (Rule(peers=(PodPeer(namespaces=EVERYTHING),)),)}, set()),
        ({"ingress": (Rule(ports=(Port(name="http"),)),)}, set()),
        ({"egress": (Rule(ports=(Port(name="http"),)),)}, None),
        ({"egress": (Rule(peers=(PodPeer(),), ports=(Port(name="http"),)),)}, {"shop"}),
    ],
)
def test_which_namespaces_a_policy_can_mean(changes, namespaces):
    known = [SHOP, Namespace(name="other", labels={"team": "a"}), Namespace(name="far", labels={})]
    found = namespaces_of(replace(SHUT, **changes), known)
    assert found == namespaces
