"""What `desired.firewall` wants, as golden text: flannel.md §8.1, 8.2, 8.5 and 11.10, 11.11."""

import pytest

from tests.support import builders
from tests.support.firewall import firewall_inputs, wanted
from weft.desired.firewall import rule_sets
from weft.model.value import replace


def chain(kind, family, name, **changes):
    (found,) = [chain for chain in wanted(kind, family, **changes).chains if chain.name == name]
    return found


def lines(text):
    return tuple(line.strip() for line in text.strip().splitlines())


IPTABLES_POSTRTG = {
    4: lines("""
        -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
        -s 10.42.1.0/24 -d 10.42.0.0/16 -m comment --comment "flanneld masq" -j RETURN
        -s 10.42.0.0/16 -d 10.42.1.0/24 -m comment --comment "flanneld masq" -j RETURN
        ! -s 10.42.0.0/16 -d 10.42.1.0/24 -m comment --comment "flanneld masq" -j RETURN
        -s 10.42.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
        ! -s 10.42.0.0/16 -d 10.42.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
    """),
    6: lines("""
        -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
        -s fd00:10:244:1::/64 -d fd00:10:244::/56 -m comment --comment "flanneld masq" -j RETURN
        -s fd00:10:244::/56 -d fd00:10:244:1::/64 -m comment --comment "flanneld masq" -j RETURN
        ! -s fd00:10:244::/56 -d fd00:10:244:1::/64 -m comment --comment "flanneld masq" -j RETURN
        -s fd00:10:244::/56 ! -d ff00::/8 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
        ! -s fd00:10:244::/56 -d fd00:10:244::/56 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
    """),
}

NFT_POSTRTG = {
    4: lines("""
        meta mark & 0x00004000 == 0x00004000 return
        ip saddr 10.42.1.0/24 ip daddr 10.42.0.0/16 return
        ip saddr 10.42.0.0/16 ip daddr 10.42.1.0/24 return
        ip saddr != 10.42.0.0/16 ip daddr 10.42.1.0/24 return
        ip saddr 10.42.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
        ip saddr != 10.42.0.0/16 ip daddr 10.42.0.0/16 masquerade fully-random
    """),
    6: lines("""
        meta mark & 0x00004000 == 0x00004000 return
        ip6 saddr fd00:10:244:1::/64 ip6 daddr fd00:10:244::/56 return
        ip6 saddr fd00:10:244::/56 ip6 daddr fd00:10:244:1::/64 return
        ip6 saddr != fd00:10:244::/56 ip6 daddr fd00:10:244:1::/64 return
        ip6 saddr fd00:10:244::/56 ip6 daddr != ff00::/8 masquerade fully-random
        ip6 saddr != fd00:10:244::/56 ip6 daddr fd00:10:244::/56 masquerade fully-random
    """),
}


def test_where_nodes_relay_nothing_within_the_network_is_rewritten():
    """Else a pod would see a relay as the sender of another pod's packets."""
    own = replace(builders.inputs(1, backend="mesh"), ip_masq=True)
    plain = replace(builders.inputs(1), ip_masq=True)
    [relays], [others] = rule_sets(own), rule_sets(plain)
    first, *rest = relays.chains[0].rules
    assert first == '-s 10.5.0.0/16 -d 10.5.0.0/16 -m comment --comment "flanneld masq" -j RETURN'
    assert tuple(rest) == others.chains[0].rules


@pytest.mark.parametrize("kind, accept", [("iptables", "ACCEPT"), ("nft", "accept")])
def test_a_node_that_does_not_relay_drops_what_goes_between_two_others(kind: str, accept: str):
    own = builders.inputs(1, backend="mesh")
    own = replace(own, relays=False, netconf=replace(own.netconf, nftables=kind == "nft"))
    comment = ' -m comment --comment "flanneld forward" -j' if kind == "iptables" else ""
    words = {"iptables": ("-s", "-d"), "nft": ("ip saddr", "ip daddr")}[kind]
    drop = accept.replace("ACCEPT", "DROP").replace("accept", "drop")
    within = f"{words[0]} 10.5.0.0/16 {words[1]} 10.5.0.0/16{comment} {drop}"
    [rules] = rule_sets(own)
    assert rules.chains[-1].rules == (
        *(f"{word} 10.5.1.0/24{comment} {accept}" for word in words),
        within,
        *(f"{word} 10.5.0.0/16{comment} {accept}" for word in words),
    )
    [rules] = rule_sets(replace(own, forward_rules=False))
    back = accept.replace("ACCEPT", "RETURN").replace("accept", "return")
    assert rules.chains[-1].rules == (*(f"{word} 10.5.1.0/24{comment} {back}" for word in words), within)
    for relaying in (replace(own, relays=True), replace(builders.inputs(1), relays=False), replace(own, v4=None)):
        assert not any(drop in rule for each in rule_sets(relaying) for rule in each.chains[-1].rules)


@pytest.mark.spec("flannel.md 11.10/golden")
@pytest.mark.spec(
    "flannel.md §8.1/rules", "flannel.md §8.1/argument-order", "flannel.md 11.10/rule-count", cases=("4", "6")
)
@pytest.mark.parametrize("family", [4, 6])
def test_masquerade_rules_for_iptables_are_upstreams_word_for_word(family):
    found = chain("iptables", family, "FLANNEL-POSTRTG")
    assert found.rules == IPTABLES_POSTRTG[family]
    assert (found.table, found.jump_from) == ("nat", "POSTROUTING")
    assert found.jump == '-m comment --comment "flanneld masq" -j FLANNEL-POSTRTG'
    assert len(found.rules) + 1 == 7


@pytest.mark.spec("flannel.md §8.2/rules")
@pytest.mark.spec("flannel.md 11.10/golden", cases=("4-*", "6-*"))
@pytest.mark.parametrize("family, cluster", [(4, "10.42.0.0/16"), (6, "fd00:10:244::/56")])
def test_forward_rules_for_iptables_are_upstreams_word_for_word(family, cluster):
    found = chain("iptables", family, "FLANNEL-FWD")
    assert found.rules == (
        f'-s {cluster} -m comment --comment "flanneld forward" -j ACCEPT',
        f'-d {cluster} -m comment --comment "flanneld forward" -j ACCEPT',
    )
    assert (found.table, found.jump_from) == ("filter", "FORWARD")
    assert found.jump == '-m comment --comment "flanneld forward" -j FLANNEL-FWD'


@pytest.mark.spec("flannel.md §8.5/postrtg")
@pytest.mark.spec("flannel.md 11.11/postrtg", cases="4")
@pytest.mark.spec("flannel.md 11.11/v6", cases="6")
@pytest.mark.parametrize("family", [4, 6])
def test_masquerade_rules_for_nft_mean_what_the_iptables_rules_mean(family):
    """Better than upstream: rule 1 looks at one bit of the mark (Q-52), rule 4 at our own pods (Q-51)."""
    found = chain("nft", family, "postrtg")
    assert found.rules == NFT_POSTRTG[family]
    assert found.hook == "type nat hook postrouting priority 100; policy accept;"
    assert found.comment == "chain to manage traffic masquerading by flannel"


@pytest.mark.spec("flannel.md §8.5/forward")
@pytest.mark.spec("flannel.md 11.11/forward", cases="4-*")
@pytest.mark.spec("flannel.md 11.11/v6", cases="6-*")
@pytest.mark.parametrize("family, word, cluster", [(4, "ip", "10.42.0.0/16"), (6, "ip6", "fd00:10:244::/56")])
def test_forward_rules_for_nft(family, word, cluster):
    found = chain("nft", family, "forward")
    assert found.rules == (f"{word} saddr {cluster} accept", f"{word} daddr {cluster} accept")
    assert found.hook == "type filter hook forward priority 0; policy accept;"
    assert found.comment == "chain to accept flannel traffic"


@pytest.mark.spec("flannel.md §8.1/random-fully")
@pytest.mark.parametrize("kind, name", [("iptables", "FLANNEL-POSTRTG"), ("nft", "postrtg")])
def test_ports_are_not_randomised_fully_when_that_is_switched_off_or_impossible(kind, name):
    rules = chain(kind, 4, name, random_fully=False).rules
    assert len(rules) == 6
    assert not [rule for rule in rules if "random" in rule]
    assert len([rule for rule in chain(kind, 4, name).rules if "random" in rule]) == 2


@pytest.mark.spec("flannel.md §8/families")
@pytest.mark.spec("flannel.md §8.5/tables", cases="*-nft")
@pytest.mark.parametrize("kind", ["iptables", "nft"])
@pytest.mark.parametrize("families", [(4,), (6,), (4, 6)])
def test_there_is_one_rule_set_for_each_family_with_a_network(kind, families):
    """Better than upstream: no nft table for a family that is off (flannel.md §12.3, 15)."""
    found = rule_sets(firewall_inputs(kind=kind, families=families))
    assert {ruleset.key for ruleset in found} == {("ruleset", kind, family) for family in families}


@pytest.mark.parametrize(
    "kind, nat, forward", [("iptables", "FLANNEL-POSTRTG", "FLANNEL-FWD"), ("nft", "postrtg", "forward")]
)
def test_each_chain_is_there_only_when_asked_for(kind, nat, forward):
    assert [chain.name for chain in wanted(kind, 4).chains] == [nat, forward]
    assert [chain.name for chain in wanted(kind, 4, ip_masq=False).chains] == [forward]
    assert [chain.name for chain in wanted(kind, 4, forward_rules=False).chains] == [nat]
    assert rule_sets(firewall_inputs(kind=kind, ip_masq=False, forward_rules=False)) == frozenset()


def test_masquerading_waits_for_the_own_subnet():
    """Half a rule set would replace the whole one that an earlier process left."""
    assert rule_sets(firewall_inputs(families=(4,), pods_v4=None)) == frozenset()
    assert len(rule_sets(firewall_inputs(families=(4,), pods_v4=None, ip_masq=False))) == 1
    found = rule_sets(firewall_inputs(pods_v6=None))
    assert {ruleset.key for ruleset in found} == {("ruleset", "iptables", 4)}
