"""The packet filter's verdict, from a listing of nft: tests/kernel/test_verdict.py compares it with the kernel's."""

import json
from ipaddress import ip_address
from typing import Any

import pytest

from weft.diag.rules.matching import Packet
from weft.diag.rules.ruleset import Ruleset, parse
from weft.diag.rules.verdict import Verdict, judge
from weft.model.value import replace

PACKET = Packet(
    source=ip_address("10.244.1.2"),
    target=ip_address("10.244.2.3"),
    protocol="tcp",
    iif="cni0",
    oif="flannel.1",
    source_port=40000,
    target_port=80,
)
DROP, ACCEPT = {"drop": None}, {"accept": None}


def asks(left: Any, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


def meta(key: str, right: Any, op: str = "==") -> dict[str, Any]:
    return asks({"meta": {"key": key}}, right, op)


def field(protocol: str, name: str, right: Any, op: str = "==") -> dict[str, Any]:
    return asks({"payload": {"protocol": protocol, "field": name}}, right, op)


def rules(*rules: list[dict[str, Any]], policy: str = "accept", family: str = "inet", **others: Any) -> Ruleset:
    """A chain at hook forward with these rules, and what else the table has: chains by name, sets by @name."""
    base = {"family": family, "table": "t"}
    items: list[dict[str, Any]] = [
        {"metainfo": {"version": "1"}},
        {"chain": {**base, "name": "f", "hook": "forward", "type": "filter", "prio": 0, "policy": policy}},
    ]
    for name, content in others.items():
        kind = "chain" if name.isupper() else "set"
        items.append({kind: {**base, "name": name, **({"elem": content} if kind == "set" else {})}})
    chains = {"f": rules, **{name: content for name, content in others.items() if name.isupper()}}
    items += [
        {"rule": {**base, "chain": name, "handle": number, "expr": each}}
        for name, content in chains.items()
        for number, each in enumerate(content)
    ]
    return parse([json.dumps({"nftables": items})])


def verdict(*args: Any, **others: Any) -> bool | None:
    return judge(rules(*args, **others), "forward", PACKET).passes


@pytest.mark.parametrize(
    "statement, expected",
    [
        (meta("iifname", "cni0"), True),
        (meta("iifname", "cni*"), True),
        (meta("oifname", "eth*"), False),
        (meta("oifname", "eth*", "!="), True),
        (meta("l4proto", "tcp"), True),
        (meta("l4proto", 6), True),
        (meta("l4proto", {"set": ["udp", "tcp"]}), True),
        (meta("l4proto", ["udp", 47]), False),
        (meta("nfproto", "ipv4"), True),
        (meta("mark", 1), False),
        (meta("cpu", 0), None),
        (asks({"ct": {"key": "state"}}, ["established", "related"], "in"), False),
        (asks({"ct": {"key": "mark"}}, 7), None),
        (asks("left", "right"), None),
        (field("ip", "saddr", "10.244.1.2"), True),
        (field("ip", "saddr", {"prefix": {"addr": "10.244.1.0", "len": 24}}), True),
        (field("ip", "daddr", {"prefix": {"addr": "10.244.1.0", "len": 24}}), False),
        (field("ip", "daddr", {"range": ["10.244.2.1", "10.244.2.9"]}), True),
        (field("ip", "daddr", {"range": ["first", "last"]}), None),
        (field("ip", "daddr", "host"), None),
        (field("ip", "daddr", {"set": [{"elem": {"val": "10.244.2.3", "timeout": 9}}]}), True),
        (field("ip", "daddr", "@known"), True),
        (field("ip", "daddr", "@unknown"), None),
        (field("ip", "protocol", "tcp"), True),
        (field("ip", "ttl", 1), None),
        (field("ip6", "saddr", "::1"), False),
        (field("ip6", "nexthdr", "tcp"), False),
        (field("tcp", "dport", 80), True),
        (field("th", "dport", {"range": [1, 1024]}), True),
        (field("tcp", "dport", 1024, "<"), True),
        (field("tcp", "dport", 80, ">"), False),
        (field("tcp", "dport", {"prefix": {}}, "<"), None),
        (field("tcp", "flags", "syn"), None),
        (field("udp", "dport", 80), False),
        (field("icmp", "type", "echo-request"), False),
        ({"xt": {"type": "match", "name": "comment"}}, True),
        ({"xt": {"type": "match", "name": "addrtype"}}, None),
        ({"xt": {"type": "target", "name": "LOG"}}, True),
        ({"counter": {"packets": 1, "bytes": 40}}, True),
        ({"limit": {"rate": 5}}, None),
        ({"set": {"op": "add", "set": "@seen", "stmt": [{"limit": {"rate": 5}}]}}, None),
        ({"set": {"op": "update", "set": "@seen", "stmt": [{"counter": None}]}}, True),
        ({"set": {"op": "add", "set": "@seen"}}, True),
        ({"xt": None}, None),
        ("a text", None),
        (asks({"ct": {"key": "status"}}, "dnat"), False),
        (asks({"ct": {"key": "status"}}, ["dnat", "snat"], "!="), True),
        (asks({"ct": {"key": "status"}}, "assured"), None),
        (asks({"&": [{"meta": {"key": "mark"}}, 0x4000]}, 0x4000), False),
        (asks({"&": [{"meta": {"key": "cpu"}}, 1]}, 1), None),
        (asks({"&": [{"payload": {"protocol": "ip", "field": "saddr"}}, "0.0.0.255"]}, "0.0.0.2"), True),
        (asks({"&": [{"payload": {"protocol": "ip", "field": "saddr"}}, "0.0.0.255"]}, "0.0.0.2", "!="), False),
        (asks({"&": [{"payload": {"protocol": "ip6", "field": "saddr"}}, "::ffff"]}, "::2"), False),
        (asks({"&": [{"payload": {"protocol": "ip", "field": "saddr"}}, "::ffff"]}, "::2"), None),
        (field("ether", "saddr", "02:00:00:00:00:01"), None),
        (field("ip", "saddr", {"range": [1, 2]}), None),
        (meta("iifname", {"prefix": {"addr": "10.0.0.0", "len": 8}}), None),
    ],
)
def test_a_rule_asks(statement: dict[str, Any], expected: bool | None):
    """Whether a packet is dropped says whether it matched; by the accepting rule, too, where the policy drops."""
    assert verdict([statement, DROP], known=["10.244.2.3"]) is (None if expected is None else not expected)
    assert verdict([statement, ACCEPT], policy="drop", known=["10.244.2.3"]) is expected


def test_icmp_is_an_echo_and_has_no_ports():
    packet = Packet(source=PACKET.source, target=PACKET.target, protocol="icmp")
    assert judge(rules([field("icmp", "type", "echo-request"), DROP]), "forward", packet).passes is False
    assert judge(rules([field("icmp", "type", "echo-reply"), DROP]), "forward", packet).passes is True
    answer = replace(packet, state="established")
    assert judge(rules([field("icmp", "type", "echo-reply"), DROP]), "forward", answer).passes is False
    assert judge(rules([field("icmp", "code", 0), DROP]), "forward", packet).passes is None
    six = Packet(source=ip_address("fd00::2"), target=ip_address("fd00::3"), protocol="ipv6-icmp")
    for types, passes in ((("nd-router-solicit", "nd-redirect"), True), (("echo-request", "echo-reply"), None)):
        of_types = field("icmpv6", "type", {"range": list(types)})
        assert judge(rules([of_types, DROP]), "forward", six).passes is passes
    assert judge(rules([field("icmpv6", "type", "echo-request"), DROP]), "forward", six).passes is False
    assert judge(rules([field("tcp", "dport", 80), DROP]), "forward", six).passes is True
    assert judge(rules([field("th", "dport", 80), DROP]), "forward", packet).passes is None
    assert str(packet) == "icmp 10.244.1.2 to 10.244.2.3"


def test_what_decides_is_named():
    assert judge(rules([DROP]), "forward", PACKET).by == "rule of inet t f (handle 0)"
    assert judge(rules(policy="drop"), "forward", PACKET).by == "the policy of chain f of inet t"
    undecided = judge(rules([meta("cpu", 0), ACCEPT], policy="drop"), "forward", PACKET)
    assert undecided.by == "the policy of chain f of inet t, unless rule of inet t f (handle 0) accepts it first"
    assert judge(rules(), "forward", PACKET) == Verdict(passes=True)


def test_a_comment_names_a_rule():
    listed = {"family": "ip", "table": "t", "chain": "f", "handle": 3, "expr": [DROP], "comment": "no more"}
    chain = {"family": "ip", "table": "t", "name": "f", "hook": "forward", "type": "filter", "policy": "accept"}
    found = parse([json.dumps({"nftables": [{"chain": chain}, {"rule": listed}]})])
    assert judge(found, "forward", PACKET).by == 'rule "no more" of ip t f (handle 3)'


def test_chains_are_asked_by_family_hook_and_priority():
    assert verdict([DROP], family="ip") is False
    assert verdict([DROP], family="ip6") is True
    assert judge(rules([DROP]), "input", PACKET).passes is True


def test_a_rule_that_only_counts_decides_nothing():
    assert verdict([{"counter": {"packets": 1, "bytes": 40}}]) is True


def test_jumps():
    jump, goto = {"jump": {"target": "SUB"}}, {"goto": {"target": "SUB"}}
    assert verdict([jump], SUB=[[DROP]]) is False
    assert verdict([jump], [ACCEPT], policy="drop", SUB=[[{"return": None}], [DROP]]) is True
    assert verdict([goto], [ACCEPT], policy="drop", SUB=[]) is False
    assert verdict([jump], SUB=[[{"jump": {"target": "SUB"}}]]) is True  # as deep as the kernel goes
    assert verdict([{"jump": {"target": "NONE"}}]) is True
    assert verdict([meta("cpu", 0), jump], SUB=[[DROP]]) is None
    assert verdict([jump], SUB=[[meta("cpu", 0), DROP], [ACCEPT]]) is None
    assert verdict([meta("cpu", 0), jump], SUB=[]) is True
    assert verdict([jump], [DROP], SUB=[[meta("cpu", 0), ACCEPT]]) is None


def test_jumps_of_jumps_are_not_followed_again_and_again():
    """Ten jumps in each of fifteen chains are 10^15 ways to the last."""
    chains = {f"C{number}": [[{"jump": {"target": f"C{number + 1}"}}]] * 10 for number in range(15)}
    assert verdict([{"jump": {"target": "C0"}}], C15=[[meta("l4proto", "udp"), {"drop": None}]], **chains)
    assert not verdict([{"jump": {"target": "C0"}}], C15=[[meta("l4proto", "tcp"), {"drop": None}]], **chains)


def test_xtables_targets():
    assert verdict([{"xt": {"type": "target", "name": "REJECT"}}]) is False
    assert verdict([{"xt": {"type": "target", "name": "LOG"}}], policy="drop") is False
    assert verdict([{"xt": {"type": "target", "name": "NFQUEUE"}}], policy="drop") is None


def test_a_program_that_is_asked_may_do_either():
    assert verdict([{"queue": {"num": 0}}]) is None
    assert verdict([{"queue": {"num": 0}}], policy="drop") is None


def test_a_rule_that_may_leave_its_chain():
    leave = [meta("cpu", 0), {"return": None}]
    assert verdict(leave, [DROP]) is None
    assert verdict(leave, [ACCEPT], policy="drop") is None
    assert verdict(leave) is True
    assert verdict(leave, [ACCEPT]) is True
    dropped = judge(rules(leave, [DROP], policy="drop"), "forward", PACKET)
    first = "rule of inet t f (handle 1)"
    assert (dropped.passes, dropped.by) == (False, f"{first}, if not by the policy of chain f of inet t")
    doubtful = judge(rules([meta("cpu", 0), DROP], [meta("cpu", 1), DROP], [DROP]), "forward", PACKET)
    assert doubtful.by.endswith(", if not by rule of inet t f (handle 0) or rule of inet t f (handle 1)")
    jump = {"jump": {"target": "SUB"}}
    assert verdict([jump], SUB=[leave, [DROP]]) is None
    assert verdict([jump], policy="drop", SUB=[leave, [ACCEPT]]) is None
    assert verdict([{"jump": {"target": "SUB"}}], SUB=[[{"return": None}], [DROP]]) is True


def test_packets_may_be_marked_before():
    mark = {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}
    assert verdict([mark], [meta("mark", 1), DROP]) is None
    assert verdict([{"xt": {"type": "target", "name": "MARK"}}], [meta("mark", 0), DROP]) is None
    assert verdict([{"mangle": {"key": {"payload": {}}, "value": 1}}], [meta("mark", 1), DROP]) is True
    nats = json.dumps({"nftables": [
        {"chain": {"family": "ip", "table": "nat", "name": "M"}},
        {"rule": {"family": "ip", "table": "nat", "chain": "M", "handle": 1, "expr": [mark]}},
    ]})  # fmt: skip
    assert not parse([nats]).marks


def test_a_table_that_sleeps_is_not_asked():
    chain = {"family": "ip", "table": "t", "name": "f", "hook": "forward", "type": "filter", "policy": "drop"}
    asleep = {"table": {"family": "ip", "name": "t", "flags": ["dormant"]}}
    rule = {"family": "ip", "table": "t", "chain": "f", "handle": 3}
    assert judge(
        parse([json.dumps({"nftables": [asleep, {"chain": chain}, {"rule": rule}]})]), "forward", PACKET
    ).passes
    awake = {"table": {"family": "ip", "name": "t"}}
    assert (
        judge(parse([json.dumps({"nftables": [awake, {"chain": chain}, {"rule": rule}]})]), "forward", PACKET).passes
        is False
    )


def test_iptables_save_tells_what_nft_does_not():
    opaque = {"xt": {"type": "match", "name": "conntrack"}}
    chain = {
        "family": "ip",
        "table": "filter",
        "name": "FORWARD",
        "hook": "forward",
        "type": "filter",
        "policy": "drop",
    }
    texts = [[opaque, DROP], [opaque, ACCEPT], [opaque, ACCEPT], [opaque, DROP]]
    listed = [
        {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "handle": n, "expr": expr}}
        for n, expr in enumerate(texts)
    ]
    nft = json.dumps({"nftables": [{"chain": chain}, *listed]})
    saved = (
        "*nat\n-A FORWARD -j NOTHING\n*filter\n:FORWARD DROP [0:0]\n"
        "-A FORWARD -m conntrack --ctstate INVALID -j DROP\n"
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
        "-A FORWARD -m conntrack ! --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n"
    )
    assert judge(parse([nft]), "forward", PACKET).passes is None
    assert judge(parse([nft], {"ip": saved}), "forward", PACKET).passes is True
    other = saved.replace("! --ctstate RELATED,ESTABLISHED", "--ctstate NEW --ctproto 6")
    assert judge(parse([nft], {"ip": other}), "forward", PACKET).passes is None


def test_verdict_maps():
    key = {"meta": {"key": "iifname"}}
    assert verdict([{"vmap": {"key": key, "data": {"set": [["eth0", ACCEPT], ["cni0", DROP]]}}}]) is False
    assert verdict([{"vmap": {"key": key, "data": "@ways"}}], ways=[["cni0", DROP]]) is False
    assert verdict([{"vmap": {"key": key, "data": "@ways"}}], ways=[["eth0", DROP]]) is True
    six = {"payload": {"protocol": "ip6", "field": "saddr"}}
    assert verdict([{"vmap": {"key": six, "data": {"set": [["::1", DROP]]}}}]) is True
    assert verdict([{"vmap": {"key": {"meta": {"key": "cpu"}}, "data": {"set": [[1, ACCEPT], [0, DROP]]}}}]) is None


@pytest.mark.parametrize("text", ["", "{}", '{"nftables": 1}', '{"nftables": [{"chain": {"family": "ip"}}]}'])
def test_what_is_no_listing_is_refused(text: str):
    with pytest.raises(ValueError, match=r"not a ruleset|Expecting"):
        parse([text])
