"""A policy as the text of a chain, as nft takes it."""

import pytest

from tests.support.policy.deciding import SETTINGS
from weft.desired.policy.names import peers_set
from weft.desired.policy.text import rendered
from weft.model.policy import EVERYTHING, NAME_LABEL, PodPeer, Requirement, Selector
from weft.wire.policy import read_policy


def lines(*rules, direction="ingress"):
    spec = {"podSelector": {}, "policyTypes": [direction.title()], direction: list(rules)}
    policy, problems = read_policy({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
    assert not problems
    return list(rendered(policy, direction, SETTINGS).chain.rules)


@pytest.mark.parametrize(
    "rule, text",
    [
        ({}, ['counter accept comment "ingress[0]"']),
        ({"ports": [{"port": 80}]}, ['tcp dport 80 counter accept comment "ingress[0]"']),
        (
            {"ports": [{"port": 80}, {"port": 8000, "endPort": 8100}, {"port": 8050}, {"protocol": "UDP"}]},
            [
                'tcp dport { 80, 8000-8100 } counter accept comment "ingress[0]"',
                'meta l4proto udp counter accept comment "ingress[0]"',
            ],
        ),
        (
            {"ports": [{"port": "http"}]},
            [
                f"meta l4proto tcp ip{each} daddr . meta l4proto . th dport @ports{family}-http-tcp"
                ' counter accept comment "ingress[0]"'
                for family, each in ((4, ""), (6, "6"))
            ],
        ),
        (
            {"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.64/26"]}}], "ports": [{"port": 80}]},
            ['ip saddr { 192.0.2.0/26, 192.0.2.128/25 } tcp dport 80 counter accept comment "ingress[0].from"'],
        ),
        (
            {"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "2001:db8::/32"}}]},
            [
                'meta nfproto ipv4 counter accept comment "ingress[0].from"',
                'ip6 saddr 2001:db8::/32 counter accept comment "ingress[0].from"',
            ],
        ),
        (
            {"from": [{"namespaceSelector": {}}]},
            [
                (
                    "ip saddr 10.244.0.0/16 ip saddr & 0.0.0.255 != { 0.0.0.0, 0.0.0.1 }"
                    ' counter accept comment "ingress[0].from[0]"'
                ),
                (
                    "ip6 saddr fd00:244::/48 ip6 saddr & ::ffff:ffff:ffff:ffff != { ::, ::1 }"
                    ' counter accept comment "ingress[0].from[0]"'
                ),
            ],
        ),
        (
            {"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": "http"}]},
            [
                (
                    "ip saddr 192.0.2.0/24 meta l4proto tcp ip daddr . meta l4proto . th dport @ports4-http-tcp"
                    ' counter accept comment "ingress[0].from"'
                )
            ],
        ),
    ],
)
def test_a_rule(rule, text):
    assert lines(rule) == text


def test_pods_are_a_set_that_policies_of_the_namespace_share():
    own = PodPeer(pods=EVERYTHING, namespaces=Selector((Requirement(NAME_LABEL, "In", ("ns",)),)))
    names = [peers_set(own, family).name for family in (4, 6)]
    assert lines({"to": [{"podSelector": {}}]}, direction="egress") == [
        f'ip daddr @{names[0]} counter accept comment "egress[0].to[0]"',
        f'ip6 daddr @{names[1]} counter accept comment "egress[0].to[0]"',
    ]


def test_a_long_name_is_cut_and_tells_policies_apart():
    found = {
        rendered(
            read_policy({"metadata": {"name": "x" * 252 + end, "namespace": "n" * 63}, "spec": {"podSelector": {}}})[0],
            "ingress",
            SETTINGS,
        ).chain.name
        for end in "ab"
    }
    assert len(found) == 2
    assert all(len(name) < 255 and name.startswith(f"in/{'n' * 63}/x") for name in found)
