"""firewall's rules in iptables' form. That iptables takes and prints them so, tests/kernel shows."""

from ipaddress import ip_address

import pytest

from weft.cni.plugins.firewall import chains as podfirewall

ONE, OTHER = ip_address("10.0.0.2"), ip_address("10.0.0.3")
EMPTY = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
JUMP = '-m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD'
OVERRIDES = '-m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN'
ACCEPTS = ["-d 10.0.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-s 10.0.0.2/32 -j ACCEPT"]


def apply(save: str, lines: list[str]) -> str:
    """Do to a table what iptables-restore does with these lines."""
    chains: dict[str, list[str]] = {}
    for line in save.splitlines():
        if line.startswith(":"):
            chains.setdefault(line[1:].partition(" ")[0], [])
        elif line.startswith("-A "):
            _, chain, rule = line.split(" ", 2)
            chains[chain].append(rule)
    for line in lines:
        verb, chain, *rest = line.split(" ", 2)
        match verb:
            case "-N":
                chains[chain] = []
            case "-I":
                chains[chain].insert(0, rest[0].removeprefix("1 "))
            case "-A":
                chains[chain].append(rest[0])
            case "-D":
                chains[chain].remove(rest[0])
    rules = [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
    return "\n".join(["*filter", *(f":{chain} - [0:0]" for chain in chains), *rules, "COMMIT", ""])


def test_addresses_are_let_through_once():
    assert podfirewall.additions(EMPTY, [ONE, ONE], "CNI-ADMIN") == [
        "-N CNI-FORWARD",
        "-N CNI-ADMIN",
        f"-I FORWARD 1 {JUMP}",
        f"-I CNI-FORWARD 1 {OVERRIDES}",
        *(f"-A CNI-FORWARD {rule}" for rule in ACCEPTS),
    ]
    save = apply(EMPTY, podfirewall.additions(EMPTY, [ONE], "CNI-ADMIN"))
    assert podfirewall.additions(save, [ONE], "CNI-ADMIN") == []
    assert len(podfirewall.additions(save, [OTHER], "CNI-ADMIN")) == 2
    assert podfirewall.additions(save, [], "X") == ["-N X", f"-I CNI-FORWARD 1 {OVERRIDES.replace('CNI-ADMIN', 'X')}"]


def test_what_is_taken_back():
    save = apply(EMPTY, podfirewall.additions(EMPTY, [ONE, OTHER], "CNI-ADMIN"))
    assert podfirewall.removals(save, [ONE]) == [f"-D CNI-FORWARD {rule}" for rule in ACCEPTS]
    twice = apply(save, [f"-A CNI-FORWARD {ACCEPTS[1]}"])
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
    save = apply(EMPTY, podfirewall.additions(EMPTY, [ONE], "CNI-ADMIN"))
    assert podfirewall.missing(save, [ONE], "CNI-ADMIN") == ""
    assert podfirewall.missing(apply(save, [f"-D {lost}"]), [ONE], "CNI-ADMIN") == message


def test_bridges_are_kept_apart():
    lines = podfirewall.isolation(EMPTY, "cni0", "same-bridge")
    save = apply(EMPTY, lines)
    assert podfirewall.isolation(save, "cni0", "same-bridge") == []
    assert podfirewall.guarded(save) == {"cni0"}
    more = podfirewall.isolation(save, "cni1", "isolated")
    own = '-m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)"'
    assert more[:2] == [
        f"-I CNI-ISOLATION-STAGE-1 1 -i cni1 ! -o cni1 {own} -j CNI-ISOLATION-STAGE-2",
        f"-I CNI-ISOLATION-STAGE-1 1 -i cni1 -o cni1 {own} -j DROP",
    ]
    save = apply(save, more)
    assert podfirewall.isolation(save, "cni1", "isolated") == []
    assert podfirewall.guarded(save) == {"cni0", "cni1"}
    assert [line for line in save.splitlines() if line.startswith("-A CNI-ISOLATION-STAGE-1 ")][-1].endswith("RETURN")
    bare = apply(save, podfirewall.isolation_removals(save, {"cni1"}))
    assert podfirewall.guarded(bare) == {"cni0"}
    assert podfirewall.isolation_removals(bare, {"cni1"}) == []


def test_rules_of_an_older_upstream_are_known():
    save = apply(EMPTY, podfirewall.isolation(EMPTY, "cni0", "same-bridge")).replace("|isolated)", ")")
    assert podfirewall.isolation(save, "cni0", "same-bridge") == []
