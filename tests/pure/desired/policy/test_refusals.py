"""Who was refused, as the kernel's elements and rules say it."""

from ipaddress import ip_address

from tests.pure.desired.policy.test_connections import DENY, FAR, FAR6
from tests.pure.desired.policy.test_decide import ATTACHED, IP, POD, SHOP, SHUT, decider
from weft.desired.policy.frame import refusal
from weft.desired.policy.refusals import Held, addresses, grown, here, refused
from weft.model.errors import Problem
from weft.model.kernel.nftset import Element, RuleSeen, field
from weft.model.kernel.policytable import INET, PolicyChain, PolicyElement
from weft.model.node.nodestate import PoliciesTold, PolicyEffect
from weft.model.policy import ClusterPolicy, PodPeer, Policy, Rule, Selector
from weft.model.value import replace
from weft.screen.refusals import line, shown, shown_here

ALLOWS = Policy(namespace="shop", name="allows", pods=Selector(), ingress=(Rule(),))
LAST = ClusterPolicy(
    name="last", tier="Baseline", priority=1, subject=PodPeer(namespaces=Selector()), ingress=(Rule(action="Deny"),)
)


def flow(name, source, target, *, packets=1, left=590_000, protocol=6, port=80):
    size = 4 if name.endswith("4") else 16
    ends = source.packed + target.packed
    assert len(ends) == 2 * size
    return Element(
        set=name,
        key=ends + field(bytes([protocol])) + field(port.to_bytes(2, "big")),
        packets=packets,
        left=left,
    )


def held(*things, flows=(), mode="enforce", attached=ATTACHED):
    """What the kernel has of these policies; its rules count 3 where they refuse."""
    wanted = decider(*things, attached=attached).wanted.values()
    pods = tuple(
        Element(set=each.set, key=each.element, verdict=each.verdict, comment=each.comment)
        for each in wanted
        if isinstance(each, PolicyElement) and each.table == INET and each.set in ("in4", "out4", "in6", "out6")
    )
    chains = [each for each in wanted if isinstance(each, PolicyChain) and each.table == INET]
    chains += [refusal(direction, mode) for direction in ("ingress", "egress")] if mode == "audit" else []
    rules = tuple(seen(chain.name, text) for chain in chains for text in chain.rules)
    return Held(refused=tuple(flows), pods=pods, rules=rules)


def seen(chain, text):
    words, _, comment = text.partition(' comment "')
    word = words.split()[-1]
    leads = word if word in ("accept", "drop", "return") or words.split()[-2] in ("jump", "goto") else ""
    return RuleSeen(chain=chain, comment=comment.rstrip('"'), leads=leads, packets=3 if word == "drop" else 0)


def test_a_pods_names_and_the_policies_that_restrict_it():
    state = held(SHOP, POD, SHUT, ALLOWS, flows=[flow("denied-in4", FAR, IP, packets=7, left=588_000)])
    assert addresses(state) == {str(FAR), str(IP)}
    [found] = refused(state, {str(FAR): "shop/far"}).flows
    assert (found.direction, found.source_pod, found.target_pod) == ("ingress", "shop/far", "shop/web")
    assert (found.protocol, found.port, found.packets, found.seconds) == ("tcp", 80, 7, 12.0)
    assert found.policies == ("shop/allows", "shop/shut"), "one without rules has no chain"


def test_rules_that_deny_say_their_policy_and_of_an_unknown_address_nobody_does():
    strange = ip_address("10.244.1.77")
    flows = [flow("denied-in4", FAR, IP, protocol=99), flow("denied-out4", strange, FAR, left=0)]
    found = refused(held(SHOP, POD, DENY, ALLOWS, flows=flows), {})
    assert [(each.direction, each.protocol, each.policies) for each in found.flows] == [
        ("ingress", "99", ("deny", "shop/allows")),
        ("egress", "tcp", ()),
    ]
    [found] = refused(held(SHOP, POD, LAST, flows=flows[:1]), {}).flows
    assert found.policies == ("last",)


def test_what_is_no_pod_of_kubernetes_has_no_name():
    flows = [flow("denied-out4", IP, FAR)]
    [found] = refused(held(flows=flows, attached=replace(ATTACHED, pod="", uid="")), {}).flows
    assert (found.source_pod, found.policies) == ("", ())


def test_what_is_counted_in_all_and_an_audit():
    assert refused(held(), {}).packets == {"ingress": 15, "egress": 15}
    found = refused(held(mode="audit"), {})
    assert found.audit


def test_what_has_grown_since_is_told_again():
    first, second = flow("denied-in6", FAR6, FAR6, left=100), flow("denied-in4", FAR, IP, left=500_000)
    before = refused(held(flows=[first, second]), {})
    assert [each.source for each, _ in grown(None, before)] == [str(FAR6), str(FAR)]
    more = replace(first, packets=2)
    assert [(each.packets, new) for each, new in grown(before, refused(held(flows=[more, second]), {}))] == [(2, 1)]


def test_what_has_no_ports_has_its_protocols_name_alone():
    flows = [flow("denied-in4", FAR, IP, protocol=1, port=0), flow("denied-out6", FAR6, FAR6, protocol=58, port=0)]
    echo, other = refused(held(SHOP, POD, SHUT, flows=flows), {}).flows
    assert (echo.protocol, echo.port, other.protocol) == ("icmp", 0, "icmpv6")
    assert "→ shop/web icmp (10.244.1.2), 1 packet, by shop/shut" in line(echo)
    assert f"→ {FAR6} icmpv6, 1 packet" in line(other)


NOBODY = "No weftd answers here: since when, and whether other nodes enforce policies, is not known."


def test_the_pods_of_a_node_and_the_policies_that_restrict_them():
    both = replace(ATTACHED, ips=(IP, FAR6))
    [pod] = here(held(SHOP, POD, SHUT, ALLOWS, LAST, attached=both)).pods
    assert (pod.pod, pod.addresses) == ("shop/web", (str(IP), str(FAR6)))
    assert pod.policies == {"ingress": ("shop/allows", "shop/shut"), "egress": ()}
    assert here(held(SHOP, POD, LAST)).pods[0].policies["ingress"] == ("last",)


def test_all_policies_without_rules_are_named_however_many_and_long_names_differ_and_say_that_they_are_cut():
    names = [f"shut-{number:02}-{'x' * 30}" for number in range(12)]
    shut = [replace(SHUT, name=name) for name in (*names, f"{'y' * 200}1", f"{'y' * 200}2")]
    [pod] = here(held(SHOP, POD, *shut)).pods
    *whole, one, other = pod.policies["ingress"]
    assert whole == [f"shop/{name}" for name in names]
    assert one != other
    assert one.startswith(f"shop/{'y' * 97}..")


def test_policies_with_long_names_are_told_apart_by_their_chains_and_by_their_rules():
    """NetworkPolicies with rules have chains; those of the cluster are in the comments of rules."""
    for policy in (ALLOWS, LAST):
        long = [replace(policy, name=f"{'z' * 200}{end}") for end in "12"]
        [pod] = here(held(SHOP, POD, *long)).pods
        found = pod.policies["ingress"]
        assert len(found) == 2
        assert all("z.." in name for name in found)


def test_what_is_attached_without_a_name_is_listed_and_an_unknown_pod_is_not():
    [nameless] = here(held(attached=replace(ATTACHED, pod="", uid=""))).pods
    assert (nameless.pod, nameless.addresses, nameless.policies["egress"]) == ("", (str(IP),), ())
    unknown = Problem("POL-003", "policies", "no Pod is read for what runs here as shop/web")
    seen = here(held(), [unknown])
    assert seen.pods == ()
    assert shown_here(seen) == f"no pods\n{NOBODY}\n{unknown}\n"


def test_how_people_read_a_nodes_pods():
    heading, pod, audit, since = shown_here(here(held(SHOP, POD, SHUT, mode="audit"))).splitlines()
    assert heading.split() == ["POD", "ADDRESSES", "INGRESS", "EGRESS"]
    assert pod.split() == ["shop/web", str(IP), "shop/shut", "open"]
    assert (audit, since) == ("An audit: nothing is refused.", NOBODY)
    told = PoliciesTold(effect=PolicyEffect(since=0.0, found=True), settled=True, unenforced=("node2 (10.0.0.2)",))
    since, elsewhere = shown_here(here(held(SHOP, POD, SHUT), told=told)).splitlines()[2:]
    assert ": the kernel had them when weftd began (" in since
    assert elsewhere == "Not enforced, as far as weft knows, on 1 other node: node2 (10.0.0.2)."
    assert "no pod of Kubernetes  10.244.1.2" in shown_here(here(held(attached=replace(ATTACHED, pod="", uid=""))))


def test_what_people_read():
    flows = [flow("denied-in4", FAR, IP, packets=7, left=588_000), flow("denied-out6", FAR6, FAR6, left=0)]
    found = refused(held(SHOP, POD, SHUT, flows=flows), {str(FAR): "shop/far"})
    heading, first, second, *total = shown(found).splitlines()
    assert heading.split() == ["AGO", "DIRECTION", "FROM", "TO", "PACKETS", "BY"]
    assert first.split("  ")[0] == "12 s"
    assert "shop/far (10.244.2.9)  shop/web:80/tcp (10.244.1.2)  7        shop/shut" in first
    assert "[fd00:244:0:2::9]:80/tcp" in second
    assert second.endswith("no pod is known to have the address")
    words = "15 packets were refused since the tables were made."
    assert total == [f"ingress: {words}", f"egress: {words}"]
    assert line(found.flows[0]) == (
        "refused into shop/web: shop/far (10.244.2.9) → shop/web:80/tcp (10.244.1.2), 7 packets, by shop/shut"
    )
    assert line(found.flows[1], audit=True).startswith("would be refused out of: fd00:244:0:2::9 → ")
    assert shown(refused(held(), {})).endswith("None of them in the last ten minutes.\n")
