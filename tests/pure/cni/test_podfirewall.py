"""firewall's rules in iptables' form. That iptables takes and prints them so, tests/kernel shows."""

from ipaddress import ip_address

import pytest

from tests.support.cni.iptablesfake import restore
from weft.cni.plugins.firewall import chains as podfirewall
from weft.wire.iptables import Table

ONE, OTHER = ip_address("10.0.0.2"), ip_address("10.0.0.3")
EMPTY: Table = {"INPUT": [], "FORWARD": []}
JUMP = '-m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD'
OVERRIDES = '-m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN'
ACCEPTS = ["-d 10.0.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-s 10.0.0.2/32 -j ACCEPT"]


def test_addresses_are_let_through_once():
    assert podfirewall.additions(EMPTY, [ONE, ONE], "CNI-ADMIN") == [
        "-N CNI-FORWARD",
        "-N CNI-ADMIN",
        f"-I FORWARD 1 {JUMP}",
        f"-I CNI-FORWARD 1 {OVERRIDES}",
        *(f"-A CNI-FORWARD {rule}" for rule in ACCEPTS),
    ]
    have = restore(EMPTY, podfirewall.additions(EMPTY, [ONE], "CNI-ADMIN"))
    assert podfirewall.additions(have, [ONE], "CNI-ADMIN") == []
    assert len(podfirewall.additions(have, [OTHER], "CNI-ADMIN")) == 2
    assert podfirewall.additions(have, [], "X") == ["-N X", f"-I CNI-FORWARD 1 {OVERRIDES.replace('CNI-ADMIN', 'X')}"]


def test_what_is_taken_back():
    have = restore(EMPTY, podfirewall.additions(EMPTY, [ONE, OTHER], "CNI-ADMIN"))
    assert podfirewall.removals(have, [ONE]) == [f"-D CNI-FORWARD {rule}" for rule in ACCEPTS]
    twice = restore(have, [f"-A CNI-FORWARD {ACCEPTS[1]}"])
    assert len(podfirewall.removals(twice, [ONE])) == 3
    assert podfirewall.removals(EMPTY, [ONE]) == []


@pytest.mark.parametrize(
    "lost, message",
    [
        (
            f"FORWARD {JUMP}",
            "expected FORWARD rule [-m comment --comment CNI firewall plugin rules -j CNI-FORWARD] not found",
        ),
        (
            f"CNI-FORWARD {OVERRIDES}",
            f"expected CNI-FORWARD rule [{OVERRIDES}] not found".replace('"', ""),
        ),
        (f"CNI-FORWARD {ACCEPTS[0]}", f"expected rule [{ACCEPTS[0]}] not found"),
        (f"CNI-FORWARD {ACCEPTS[1]}", f"expected rule [{ACCEPTS[1]}] not found"),
    ],
)
def test_what_is_missing(lost, message):
    have = restore(EMPTY, podfirewall.additions(EMPTY, [ONE], "CNI-ADMIN"))
    assert podfirewall.first_missing(have, [ONE], "CNI-ADMIN") == ""
    assert podfirewall.first_missing(restore(have, [f"-D {lost}"]), [ONE], "CNI-ADMIN") == message


def test_bridges_are_kept_apart():
    lines = podfirewall.isolation(EMPTY, "cni0", "same-bridge")
    have = restore(EMPTY, lines)
    assert podfirewall.isolation(have, "cni0", "same-bridge") == []
    assert podfirewall.guarded(have) == {"cni0"}
    more = podfirewall.isolation(have, "cni1", "isolated")
    own = '-m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)"'
    assert more[:2] == [
        f"-I CNI-ISOLATION-STAGE-1 1 -i cni1 ! -o cni1 {own} -j CNI-ISOLATION-STAGE-2",
        f"-I CNI-ISOLATION-STAGE-1 1 -i cni1 -o cni1 {own} -j DROP",
    ]
    have = restore(have, more)
    assert podfirewall.isolation(have, "cni1", "isolated") == []
    assert podfirewall.guarded(have) == {"cni0", "cni1"}
    assert have["CNI-ISOLATION-STAGE-1"][-1].endswith("RETURN")
    bare = restore(have, podfirewall.isolation_removals(have, {"cni1"}))
    assert podfirewall.guarded(bare) == {"cni0"}
    assert podfirewall.isolation_removals(bare, {"cni1"}) == []


def test_rules_of_an_older_upstream_are_known():
    made = restore(EMPTY, podfirewall.isolation(EMPTY, "cni0", "same-bridge"))
    have = {chain: [rule.replace("|isolated)", ")") for rule in rules] for chain, rules in made.items()}
    assert podfirewall.isolation(have, "cni0", "same-bridge") == []
