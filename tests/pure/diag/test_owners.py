"""Rules as firewalld, Docker, ufw and kube-proxy write them: what they drop is named with its owner, and no more.

Each listing in data/ is what `nft -j list ruleset` prints of the program's rules, and beside it what iptables-save
prints: Docker 28, ufw 0.36 with its defaults, kube-proxy 1.31 beside flannel's chains, firewalld 1.3 with eth0 in zone
public. In `…-mended` the program was told what the doctor says, and to open the tunnel's port.
"""

import json
from pathlib import Path

import pytest

from tests.pure.diag.doctor.sights import WELL, find
from weft.diag.checks import CHECKS
from weft.diag.finding import Finding, ask
from weft.diag.rules.ruleset import Ruleset, parse
from weft.diag.sight.node import Sight
from weft.model.kernel.marks import BRIDGE_NETFILTER
from weft.model.value import replace

DATA = Path(__file__).with_name("data")
MENDS = {
    "firewalld": [
        "firewall-cmd --zone=trusted --add-source=10.244.0.0/16",
        "firewall-cmd --permanent --zone=trusted --add-source=10.244.0.0/16",
    ],
    "docker": [
        "iptables -I DOCKER-USER -s 10.244.0.0/16 -j ACCEPT",
        "iptables -I DOCKER-USER -d 10.244.0.0/16 -j ACCEPT",
    ],
    "ufw": ["ufw route allow from 10.244.0.0/16", "ufw route allow to 10.244.0.0/16"],
}


def rules_of(name: str) -> Ruleset:
    saved = DATA / f"{name}.saved"
    return parse([(DATA / f"{name}.json").read_text()], {"ip": saved.read_text()} if saved.exists() else {})


def sight(name: str) -> Sight:
    return replace(WELL, rules=rules_of(name), settings={**WELL.settings, BRIDGE_NETFILTER[4]: "1"})


def found(name: str) -> dict[str, Finding]:
    return {finding.problem.where.partition(" ")[0]: finding for finding in find(sight(name))}


@pytest.mark.parametrize("name, code", [("firewalld", "FW-001"), ("docker", "FW-002"), ("ufw", "FW-002")])
def test_what_is_dropped_is_named_with_its_owner(name: str, code: str):
    forwarding = found(name)["forwarding"]
    assert forwarding.problem.code == code
    assert forwarding.problem.seen.lower().endswith(f", which is {name}'s")
    assert list(map(str, forwarding.fix)) == MENDS[name]
    assert all(command.does for command in forwarding.fix)


def test_what_is_not_received_is_named_with_its_owner():
    receiving = found("firewalld")["receiving"]
    assert receiving.problem.code == "REACH-001"
    assert receiving.problem.hint.endswith("Have firewalld accept UDP port 8472 from and to the nodes")
    assert found("ufw")["receiving"].problem.hint.endswith("Have ufw accept UDP port 8472 from and to the nodes")
    assert "receiving" not in found("docker")  # it has no rules for that
    for name in ("firewalld", "ufw", "docker", "kube-proxy", "firewalld-mended", "ufw-mended", "docker-mended"):
        undecided = {answer.check: answer.unseen for answer in ask(CHECKS, sight(name)).answers if answer.unseen}
        assert not undecided, name


@pytest.mark.parametrize("name", ["firewalld-mended", "docker-mended", "ufw-mended", "kube-proxy"])
def test_rules_that_let_pods_through_alarm_nobody(name: str):
    assert not found(name)


@pytest.mark.parametrize(
    "chain, name",
    [("DOCKER-ISOLATION-STAGE-2", "Docker"), ("ufw-reject-forward", "ufw"), ("FWD_public_deny", "firewalld")],
)
def test_a_chain_of_a_programs_own_is_its_own_whatever_stands_beside(chain: str, name: str):
    forward = {
        "family": "ip",
        "table": "filter",
        "chain": "FORWARD",
        "handle": 1,
        "expr": [{"jump": {"target": chain}}],
    }
    items = [
        {
            "chain": {
                "family": "ip",
                "table": "filter",
                "name": "FORWARD",
                "hook": "forward",
                "type": "filter",
                "prio": 0,
            }
        },
        {"chain": {"family": "ip", "table": "filter", "name": chain}},
        {"rule": forward},
        {"rule": {**forward, "chain": chain, "expr": [{"drop": None}]}},
    ]
    [finding] = find(rules=parse([json.dumps({"nftables": items})]))
    assert finding.problem.seen.endswith(f", which is {name}'s")
