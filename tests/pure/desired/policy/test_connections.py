"""Which addresses a change concerns, and which open connections it leaves no right to go on."""

from ipaddress import ip_address

from tests.pure.desired.policy.test_decide import ATTACHED, IP, POD, SHOP, SHUT, TEAM, decider
from weft.desired.policy.connections import concerned
from weft.desired.policy.inputs import Attached
from weft.desired.policy.names import connection_of, cut_element
from weft.model.policy import ClusterPolicy, Pod, PodPeer, Policy, Rule, Selector
from weft.model.value import replace

FAR = ip_address("10.244.2.9")
FAR6 = ip_address("fd00:244:0:2::9")
PEER = Pod(namespace="shop", name="far", labels={"app": "far"}, ips=(FAR, FAR6))
OF_TEAM = Policy(namespace="shop", name="team", pods=Selector(), ingress=(Rule(peers=(PodPeer(namespaces=TEAM),)),))
DENY = ClusterPolicy(
    name="deny",
    tier="Admin",
    priority=1,
    subject=PodPeer(namespaces=Selector()),
    ingress=(Rule(peers=(PodPeer(namespaces=TEAM),), action="Deny"),),
)


def change(made, put=(), gone=()):
    return concerned(made.change(put, gone), made.wanted, denies=made.denies)


def forbids(made, source, target, port=80, own=frozenset()):
    return made.connections(lambda: own).forbids(source.packed, target.packed, 6, port)


def test_a_pod_that_other_policies_restrict_and_a_peer_that_leaves_are_concerned():
    made = decider(SHOP, POD, PEER)
    assert change(made, [SHUT]) == {IP.packed}
    assert change(made, [OF_TEAM], [SHUT.id]) == {IP.packed}
    assert change(made, gone=[PEER.id]) == {FAR.packed, FAR6.packed}


def test_a_peer_that_comes_is_concerned_only_where_a_rule_denies():
    made = decider(SHOP, POD, OF_TEAM)
    assert change(made, [PEER]) == set()
    made = decider(SHOP, POD, DENY)
    assert change(made, [PEER]) == {FAR.packed, FAR6.packed}


def test_ports_of_bridges_are_nobodys_addresses():
    made = decider(SHOP, POD)
    touched = made.attached("b", Attached(pod="shop/other", ips=(), port="veth2", link="cni1"))
    assert touched
    assert concerned(touched, made.wanted, denies=True) == set()


def test_answers_of_a_connection_are_its_ends_and_ports_the_other_way_round():
    element = cut_element(IP.packed, FAR.packed, 17, (40000, 53))
    fields = FAR.packed, IP.packed, b"\x11\0\0\0", b"\0\x35\0\0", b"\x9c\x40\0\0"
    assert (element.set, element.key) == ("cut4", b"".join(fields))
    assert connection_of(element.key) == (IP.packed, FAR.packed, 17, 53)
    other = cut_element(FAR6.packed, FAR6.packed, 6, (1, 2))
    assert (other.set, connection_of(other.key)) == ("cut6", (FAR6.packed, FAR6.packed, 6, 2))


def test_what_this_node_sends_or_gets_is_not_asked_about():
    made = decider(SHOP, POD, SHUT)
    gateway = ip_address("10.244.1.1")
    assert forbids(made, FAR, IP)
    assert not forbids(made, gateway, IP, own=frozenset({gateway}))
    assert not forbids(made, IP, gateway, own=frozenset({gateway}))


def test_an_address_here_that_no_pod_has_or_of_which_nobody_knows_is_refused():
    made = decider(SHOP, POD)
    assert not forbids(made, FAR, IP)
    assert forbids(made, FAR, ip_address("10.244.1.77"))
    assert not forbids(made, FAR, ip_address("192.0.2.1")), "it passes through"
    made.change(gone=[POD.id])
    assert forbids(made, FAR, IP)
    made.change([replace(POD, uid="another", ips=(IP,))])
    assert forbids(made, FAR, IP), "an earlier pod of this name"
    made = decider(POD)
    assert forbids(made, FAR, IP), "its namespace is not known"


def test_what_is_no_pod_of_kubernetes_is_left_alone():
    assert not forbids(decider(SHUT, SHOP, attached=replace(ATTACHED, pod="", uid="")), FAR, IP)


def test_of_several_pods_with_one_address_each_counts():
    """As in the sets of the kernel: one that was deleted may still be told."""
    made = decider(SHOP, POD, OF_TEAM, PEER, Pod(namespace="strange", name="late", labels={}, ips=(FAR,)))
    assert not forbids(made, FAR, IP)
    assert forbids(made, ip_address("10.244.2.10"), IP)
