"""What a table of policies does with a packet, in their words; tests/lab/test_lab_policy.py has real ones."""

import json
from ipaddress import ip_address
from typing import Any

import pytest

from tests.pure.diag.rules.test_verdict import ACCEPT, PACKET, field, meta
from weft.diag.rules.policed import apart, policed
from weft.diag.rules.ruleset import Ruleset, parse
from weft.model.value import replace

SUM = "0" * 32
TABLE = {"family": "inet", "table": "weft-policy"}
FIRST, SECOND, THIRD = (field("ip", "saddr", f"10.244.1.{last}") for last in (2, 3, 4))


def to(kind: str, chain: str) -> dict[str, Any]:
    return {kind: {"target": f"{chain}-{SUM}"}}


def lookup(side: str, name: str) -> dict[str, Any]:
    return {"vmap": {"key": {"payload": {"protocol": "ip", "field": side}}, "data": f"@{name}"}}


def table(refuses: dict[str, Any] = {"drop": None}) -> Ruleset:  # noqa: B006 - nobody changes it
    """Policies of 10.244.2.3, and on egress none of anybody but 10.244.1.4, who is unknown."""
    chains: dict[str, list[tuple[list[dict[str, Any]], str]]] = {
        "egress": [
            ([meta("mark", 8), ACCEPT], ""),
            ([lookup("saddr", "out4")], ""),
            ([THIRD, to("goto", "denied-out")], ""),
        ],
        "ingress": [([lookup("daddr", "in4")], ""), ([meta("mark", 7), {"drop": None}], "")],
        "denied-out": [([refuses], "")],
        "denied-in": [([refuses], "")],
        "in": [
            ([to("jump", "in-admin")], ""),
            ([field("tcp", "dport", 9), ACCEPT], ""),
            ([to("jump", "in/shop/db")], ""),
            ([to("goto", "denied-in")], "shop/shut"),
        ],
        "in-admin": [
            ([field("tcp", "dport", 22), to("goto", "denied-in")], "no-ssh ingress[0]"),
            ([field("tcp", "dport", 53), ACCEPT], "dns ingress[0].from[1]"),
        ],
        "in/shop/db": [([FIRST, ACCEPT], "ingress[0].from[0]")],
        "out": [([ACCEPT], "")],
    }
    items: list[dict[str, Any]] = [
        {"map": {**TABLE, "name": "in4", "elem": [["10.244.2.3", to("goto", "in")]]}},
        {"map": {**TABLE, "name": "out4", "elem": [["10.244.1.2", to("goto", "out")], ["10.244.1.5", ACCEPT]]}},
    ]
    for name, rules in chains.items():
        hook = {"hook": "forward", "type": "filter", "prio": -2} if name in ("egress", "ingress") else {}
        items.append({"chain": {**TABLE, "name": f"{name}-{SUM}", **hook}})
        items += [
            {"rule": {**TABLE, "chain": f"{name}-{SUM}", "handle": number, "expr": expr, "comment": comment}}
            for number, (expr, comment) in enumerate(rules)
        ]
    return parse([json.dumps({"nftables": items})])


def words(rules: Ruleset, **changes: Any) -> list[str]:
    return [each.words for each in policed(rules, "forward", replace(PACKET, **changes))]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, "ingress allowed: ingress[0].from[0] of shop/db allows it"),
        ({"target_port": 53}, "ingress allowed: ingress[0].from[1] of dns allows it"),
        ({"target_port": 9}, "ingress allowed: no NetworkPolicy can keep a pod from itself"),
        ({"target_port": 22}, "ingress refused: ingress[0] of no-ssh denies it"),
    ],
)
def test_which_rule_decides(changes: dict[str, Any], said: str):
    assert words(table(), **changes) == ["egress allowed: no policy refuses it", said]


def test_who_refuses_where_no_rule_fits_and_that_the_pods_own_direction_comes_first():
    other = ip_address("10.244.1.3")
    assert words(table(), source=other) == ["ingress refused: no rule of no-ssh, shop/db, shop/shut allows it"]
    assert words(table(), source=ip_address("10.244.1.4")) == [
        "egress refused: no pod here is known to have its address"
    ]


def test_an_audit_lets_pass_what_it_would_refuse():
    found = list(policed(table(ACCEPT), "forward", replace(PACKET, target_port=22)))
    assert found[1].words == "ingress would be refused: ingress[0] of no-ssh denies it"
    assert found[1].verdict.passes is True


def test_what_is_no_policys_is_said_by_its_rule_and_what_is_not_known_is_undecided():
    other = ip_address("10.244.2.9")
    [said] = words(table(), source=ip_address("10.244.9.9"), target=other, mark=7)
    assert said == f"ingress refused: rule of inet weft-policy ingress-{SUM} (handle 1)"
    [said] = words(table(), source=ip_address("10.244.9.9"), target=other, mark=None)
    assert said.startswith("ingress undecided: rule of inet weft-policy ingress")
    assert words(table(), source=ip_address("10.244.9.9"), target=other) == []


def test_whom_no_policy_restricts_has_no_class():
    [said] = words(table(), source=ip_address("10.244.1.5"), target=ip_address("10.244.2.9"))
    assert said == "egress allowed: no policy restricts it"
    [said] = words(table(), mark=8, target=ip_address("10.244.2.9"))
    assert said == "egress allowed: no policy is asked about it"


def test_other_rules_are_asked_apart_and_another_hook_has_no_policies():
    assert not apart(table()).at("forward", 4)
    assert list(policed(table(), "output", PACKET)) == []
