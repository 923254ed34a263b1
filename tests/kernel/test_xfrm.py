"""IPsec policies in a real kernel: put, changed, listed and removed, beside those of others."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.support.netns import Netns
from weft.daemon.backends.ipsec import IPSEC, policies
from weft.daemon.backends.ipsec.policies import Policies
from weft.desired.backends.ipsec.objects import Direction, Policy
from weft.model.value import replace


def policy(direction: Direction, number: int = 2) -> Policy:
    return Policy(
        direction=direction,
        src=IPv4Network("10.5.1.0/24"),
        dst=IPv4Network(f"10.5.{number}.0/24"),
        tunnel_src=IPv4Address("192.168.0.1"),
        tunnel_dst=IPv4Address("192.168.0.2"),
    )


@pytest.fixture
def opened(netns: Netns) -> Iterator[Policies]:
    made = netns.call(Policies.open)
    assert made is not None
    with closing(made):
        yield made


@pytest.mark.spec("flannel.md §6.7/policies")
def test_iproute2_reads_what_was_put(netns: Netns, opened: Policies):
    assert opened.change([policy("out")], []) == {}
    assert [" ".join(line.split()) for line in netns.run("ip xfrm policy").splitlines()] == [
        "src 10.5.1.0/24 dst 10.5.2.0/24",
        "dir out priority 0 ptype main",
        "tmpl src 192.168.0.1 dst 192.168.0.2",
        "proto esp reqid 11 mode tunnel",
    ]


def test_all_directions_are_listed_changed_and_removed(opened: Policies):
    three = [policy("in"), policy("out"), policy("fwd")]
    opened.change(three, [])
    assert sorted(opened.list(), key=repr) == sorted(three, key=repr)
    moved = replace(three[1], tunnel_dst=IPv4Address("192.168.0.9"))
    assert opened.change([moved], [three[0], policy("in", 77)]) == {}, "what is absent has been removed well"
    assert {each.direction: each for each in opened.list()} == {"out": moved, "fwd": three[2]}


def test_thousands_are_put_in_one_go(opened: Policies):
    many = [
        replace(policy("out"), dst=IPv4Network((int(IPv4Address("10.64.0.0")) + 256 * number, 24)))
        for number in range(3000)
    ]
    assert opened.change(many, []) == {}
    assert {each.key for each in opened.list()} == {each.key for each in many}


def test_policies_of_others_are_neither_seen_nor_removed(netns: Netns, opened: Policies):
    opened.change([policy("out")], [])
    for other in (
        "src 10.7.1.0/24 dst 10.7.2.0/24 dir out tmpl src 1.1.1.1 dst 1.1.1.2 proto esp reqid 12 mode tunnel",
        "src 10.7.3.0/24 dst 10.7.4.0/24 dir in priority 7 tmpl src 1.1.1.1 dst 1.1.1.2 proto esp reqid 11 mode tunnel",
        "src fd00::/64 dst fd01::/64 dir out tmpl src fd02::1 dst fd02::2 proto esp reqid 11 mode tunnel",
        "src 10.7.5.0/24 dst 10.7.6.0/24 dir fwd action block",
        "src 10.5.1.7/24 dst 10.5.7.9/24 dir out tmpl src 1.1.1.1 dst 1.1.1.2 proto esp reqid 11 mode tunnel",
    ):
        netns.run(f"ip xfrm policy add {other}")
    assert opened.list() == [policy("out")]
    assert netns.call(policies.present) == [policy("out")]
    ours = partial(IPSEC.remains.remove, lambda: [IPv4Network("10.5.0.0/16")])
    assert netns.call(ours) == ["the kernel's IPsec policies"]
    assert netns.call(ours) == []
    assert netns.run("ip xfrm policy").count("src ") == 9


def test_policies_of_other_networks_are_another_programs(netns: Netns, opened: Policies):
    flanneld = replace(policy("in"), src=IPv4Network("10.1.1.0/24"), dst=IPv4Network("10.1.2.0/24"))
    astride = replace(policy("fwd"), dst=IPv4Network("10.1.2.0/24"))
    opened.change([policy("out"), flanneld, astride], [])
    netns.call(partial(IPSEC.remains.remove, lambda: [IPv4Network("10.5.0.0/16")]))
    assert {each.key for each in opened.list()} == {flanneld.key, astride.key}
    assert netns.call(partial(IPSEC.remains.remove, list)) == []


def test_a_kernel_tells_whether_it_has_esp_and_keeps_nothing_of_the_trial(netns: Netns):
    why = netns.call(policies.missing)
    assert why == "" or "not" in why
    assert netns.run("ip xfrm state") == ""
