"""What NAT makes of packets, from a listing of nft: tests/kernel/test_trace.py compares it with the kernel's."""

import json
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import ADDRESSES, ETH0, LINKS, ROUTES, VXLAN
from tests.pure.diag.rules.test_verdict import asks, field, meta
from tests.pure.diag.trace.test_trace import NODE, ON, PEER, POD, code, packet, steps, way
from weft.diag.rules.matching import Packet, calculated
from weft.diag.rules.nat import Outcome, outcomes
from weft.diag.rules.ruleset import Ruleset, parse
from weft.diag.trace.hops import Addressed
from weft.diag.trace.predict import Entry
from weft.model.kernel.reported import AddressInfo, PortInfo, RouteInfo
from weft.model.value import replace

PACKET = packet(target="10.96.0.9")
MARK: dict[str, Any] = {"meta": {"key": "mark"}}
MARKED = {"mangle": {"key": MARK, "value": {"|": [MARK, 0x4000]}}}
MASQUERADE, RETURN, ACCEPT, CONTINUE = {"masquerade": None}, {"return": None}, {"accept": None}, {"continue": None}
HOOKS = {
    "P": ("prerouting", -100),
    "O": ("output", -100),
    "Q": ("postrouting", 100),
    "R": ("prerouting", -100),
    "I": ("input", 100),
}


def dnat(address: Any = "10.244.2.3", **more: Any) -> dict[str, Any]:
    return {"dnat": {"addr": address, **more}}


def to(kind: str, chain: str) -> dict[str, Any]:
    return {kind: {"target": chain}}


def by_chance(*verdicts: dict[str, Any]) -> dict[str, Any]:
    key = {"numgen": {"mode": "random", "mod": len(verdicts), "offset": 0}}
    return {"vmap": {"key": key, "data": {"set": [[number, each] for number, each in enumerate(verdicts)]}}}


def ruleset(saved: dict[str, str] | None = None, **content: Any) -> Ruleset:
    """Chains by name, of which P, O, Q, R and I are at hooks of NAT, and maps by @name in lower case."""
    base = {"family": "ip", "table": "nat"}
    items: list[Any] = []
    for name, rules in content.items():
        hook = HOOKS.get(name)
        at = {} if hook is None else {"hook": hook[0], "type": "nat", "prio": hook[1], "policy": "accept"}
        items.append(
            {"map": {**base, "name": name, "elem": rules}}
            if name.islower()
            else {"chain": {**base, "name": name, **at}}
        )
    for name, rules in content.items():
        if name.isupper():
            items += [{"rule": {**base, "chain": name, "handle": n, "expr": each}} for n, each in enumerate(rules)]
    return parse([json.dumps({"nftables": items})], saved)


def found(hook: str = "prerouting", of: Packet = PACKET, **content: Any) -> list[Outcome]:
    return outcomes(ruleset(**content), hook, of)


def ends(outcomes: list[Outcome]) -> list[str]:
    """Where the packet goes, how it is marked, and whether that is sure."""
    made = ((each, each.translation) for each in outcomes)
    return [f"{to and (to.address, to.port)} {each.mark}{' ?' if each.doubt else ''}" for each, to in made]


def end(address: str = "10.244.2.3", port: int = 0, mark: int | None = 0) -> str:
    return f"{(ip_address(address), port)} {mark}"


@pytest.mark.parametrize(
    "content, expected",
    [
        ({}, ["None 0"]),
        ({"P": [[dnat()]]}, [end()]),
        ({"P": [[dnat(port=8080)]]}, [end(port=8080)]),
        ({"P": [[dnat(family="ip6")]]}, ["None 0"]),
        ({"P": [[field("ip", "daddr", "10.96.0.8"), dnat()]]}, ["None 0"]),
        ({"P": [[RETURN], [dnat()]]}, ["None 0"]),
        ({"P": [[CONTINUE], [dnat()]]}, [end()]),
        ({"P": [[MARKED, dnat()]]}, [end(mark=0x4000)]),
        ({"P": [[MARKED, field("ip", "daddr", "1.1.1.1")], [dnat()]]}, [end(mark=0x4000)]),
        ({"P": [[meta("cpu", 1), field("ip", "daddr", "1.1.1.1"), dnat()]]}, ["None 0"]),
        ({"P": [[meta("cpu", 1), dnat()]]}, [f"{end()} ?", "None 0 ?"]),
        ({"P": [[dnat(5)]]}, ["(None, 0) 0 ?"]),
        ({"P": [[dnat("nowhere")]]}, ["(None, 0) 0 ?"]),
        ({"P": [[{"redirect": {"port": 81}}]]}, ["(None, 81) 0"]),
        ({"P": [[by_chance(to("goto", "A"), to("goto", "B"))]], "A": [[dnat("10.0.0.1")]], "B": [[dnat("10.0.0.2")]]},
         [end("10.0.0.1"), end("10.0.0.2")]),
        ({"P": [[dnat({"map": {"key": {"numgen": {}}, "data": {"set": [[0, "10.0.0.1"], [1, "10.0.0.2"]]}}})]]},
         [end("10.0.0.1"), end("10.0.0.2")]),
        ({"P": [[dnat({"map": {"key": {"meta": {"key": "l4proto"}}, "data": "@m"}})]],
          "m": [["udp", "10.0.0.1"], ["tcp", {"concat": ["10.0.0.2", 81]}]]}, [end("10.0.0.2", 81)]),
        ({"P": [[dnat({"map": {"key": {"meta": {"key": "l4proto"}}, "data": "@m"}})], [dnat()]], "m": []}, [end()]),
        ({"P": [[dnat({"map": {"key": {"meta": {"key": "cpu"}}, "data": {"set": [[1, "10.0.0.1"]]}}})]]},
         [f"{end('10.0.0.1')} ?", "None 0 ?"]),
        ({"P": [[to("jump", "A")], [dnat("10.0.0.2")]], "A": [[MARKED], [RETURN], [dnat()]]},
         [end("10.0.0.2", mark=0x4000)]),
        ({"P": [[to("goto", "A")], [dnat("10.0.0.2")]], "A": []}, ["None 0"]),
        ({"P": [[to("jump", "A")]], "A": [[to("jump", "A")]]}, ["None 0"]),
        ({"P": [[to("jump", "NONE")], [dnat()]]}, [end()]),
        # Of one priority the newest chain is asked first; "accept" ends one alone.
        ({"P": [[dnat("10.0.0.1")]], "R": [[dnat("10.0.0.2")]]}, [end("10.0.0.2")]),
        ({"P": [[dnat("10.0.0.1")]], "R": [[ACCEPT], [dnat("10.0.0.2")]]}, [end("10.0.0.1")]),
    ],
)  # fmt: skip
def test_where_packets_are_sent(content: dict[str, Any], expected: list[str]):
    assert ends(found(**content)) == expected


def test_jumps_of_jumps_are_not_followed_again_and_again():
    """Ten jumps in each of fifteen chains are 10^15 ways to the last."""
    chains = {f"C{number}": [[to("jump", f"C{number + 1}")]] * 10 for number in range(15)}
    assert ends(found(P=[[to("jump", "C0")]], C15=[[dnat()]], **chains)) == [end()]
    assert ends(found(P=[[to("jump", "C0")]], C15=[], **chains)) == ["None 0"]


def test_by_maps_of_several_fields():
    key = {"concat": [{"payload": {"protocol": "ip", "field": "daddr"}}, {"meta": {"key": "l4proto"}},
                      {"payload": {"protocol": "th", "field": "dport"}}]}  # fmt: skip
    rules: dict[str, Any] = {"P": [[{"vmap": {"key": key, "data": "@m"}}]], "A": [[dnat()]], "m": [
        [{"elem": {"val": {"concat": ["10.96.0.9", "udp", 80]}, "comment": "x"}}, {"drop": None}],
        [{"concat": ["10.96.0.9", "tcp", 80]}, to("goto", "A")],
    ]}  # fmt: skip
    assert ends(found(**rules)) == [end()]
    assert ends(found(of=replace(PACKET, target_port=81), **rules)) == ["None 0"]
    # A port that is not known may be it; of what has none of the fields, nothing is.
    assert ends(found(of=replace(PACKET, target_port=0), **rules)) == [f"{end()} ?", "None 0 ?"]
    assert ends(found(of=packet("fd00::1", "fd00::2"), **rules)) == ["None 0"]
    rules["P"] = [[{"vmap": {"key": key, "data": "@unknown"}}]]
    assert ends(found(**rules)) == ["None 0 ?"]
    rules["P"] = [[{"vmap": {"key": key, "data": {"set": [["10.96.0.9", to("goto", "A")]]}}}]]
    assert ends(found(**rules)) == [f"{end()} ?", "None 0 ?"]


@pytest.mark.parametrize(
    "value, expected",
    [
        (7, 7),
        ({"|": [MARK, 0x4000]}, 0x4001),
        ({"&": [MARK, 0xFFFE]}, 0),
        ({"^": [{"&": [MARK, 0]}, 3]}, 3),
        ({"|": [{"meta": {"key": "cpu"}}, 1]}, None),
        ({"|": [MARK, MARK]}, None),
        (MARK, 1),
        ("x", None),
    ],
)
def test_marks(value: Any, expected: int | None):
    assert calculated(value, replace(PACKET, mark=1), Ruleset()) == expected


def test_the_nodes_own_address_and_what_was_translated():
    local = {"match": {"op": "==", "left": {"fib": {"result": "type", "flags": ["daddr"]}}, "right": "local"}}
    for kind, expected in (("local", [end()]), ("unicast", ["None 0"]), ("", [f"{end()} ?", "None 0 ?"])):
        assert ends(found(of=replace(PACKET, kind=kind), P=[[local, dnat()]])) == expected
    translated = asks({"ct": {"key": "status"}}, "dnat", "in")
    ours = replace(PACKET, translated=frozenset(("dnat",)))
    assert ends(found("postrouting", ours, Q=[[translated, MASQUERADE]])) == ["(None, 0) 0"]
    assert ends(found("postrouting", Q=[[translated, MASQUERADE]])) == ["None 0"]


def xt(kind: str, name: str) -> dict[str, Any]:
    return {"xt": {"type": kind, "name": name}}


@pytest.mark.parametrize(
    "line, expr, expected",
    [
        ("-m statistic --mode random --probability 0.5 -j A", [xt("match", "statistic"), to("jump", "A")],
         [end(), "None 0"]),
        ("-p tcp -m tcp -j DNAT --to-destination 10.244.2.3:81", [xt("match", "tcp"), xt("target", "DNAT")],
         [end(port=81)]),
        ("-p udp -m udp -j DNAT --to-destination 10.244.2.3", [xt("match", "udp"), xt("target", "DNAT")], ["None 0"]),
        ("-p tcp -m tcp --tcp-flags SYN SYN -j A", [xt("match", "tcp"), to("jump", "A")], [f"{end()} ?", "None 0 ?"]),
        ("-m addrtype --dst-type LOCAL -j A", [xt("match", "addrtype"), to("jump", "A")], ["None 0"]),
        ("-m addrtype ! --dst-type LOCAL -j A", [xt("match", "addrtype"), to("jump", "A")], [end()]),
        ("-m addrtype --src-type LOCAL -j A", [xt("match", "addrtype"), to("jump", "A")], [f"{end()} ?", "None 0 ?"]),
        ("-m mark ! --mark 0x4000/0x4000 -j A", [xt("match", "mark"), to("jump", "A")], [end()]),
        ("-m mark --mark 0x1 -j A", [xt("match", "mark"), to("jump", "A")], ["None 0"]),
        ("-m mark -j A", [xt("match", "mark"), to("jump", "A")], [f"{end()} ?", "None 0 ?"]),
        ("-m mark --mark 0 -m mark --mark 1 -j A", [xt("match", "mark"), to("jump", "A")], [f"{end()} ?", "None 0 ?"]),
        ("-m physdev -j A", [xt("match", "physdev"), to("jump", "A")], [f"{end()} ?", "None 0 ?"]),
        ("-j MARK --set-xmark 0x4000/0x4000", [xt("target", "MARK")], ["None 16384"]),
        ("-j MARK --set-xmark 0x4000/0x0", [xt("target", "MARK")], ["None 16384"]),
        ("-j REDIRECT --to-ports 81", [xt("target", "REDIRECT")], ["(None, 81) 0"]),
        ("-j SNAT --to-source 10.0.0.1", [xt("target", "SNAT")], [end("10.0.0.1")]),
        ("-j DNAT --to-destination [fd00::1]:80", [xt("target", "DNAT")], [end("fd00::1", 80)]),
        ("-j MASQUERADE --random-fully", [xt("target", "MASQUERADE")], ["(None, 0) 0"]),
        ("-j DNAT --random", [xt("target", "DNAT")], ["None 0 ?"]),
        ("-j DNAT --to-destination 10.0.0.1-10.0.0.9", [xt("target", "DNAT")], ["None 0 ?"]),
        ("-d 10.96.0.8 -j NETMAP --to 10.0.0.0/24", [field("ip", "daddr", "10.96.0.8"), xt("target", "NETMAP")],
         ["None 0"]),
        ("-j NETMAP --to 10.0.0.0/24", [xt("target", "NETMAP")], ["None 0 ?"]),
        ("-j REDIRECT", [xt("target", "REDIRECT")], ["(None, 0) 0"]),
        ("-j REDIRECT --to-ports 80-90", [xt("target", "REDIRECT")], ["None 0 ?"]),
        ("-j LOG", [xt("target", "LOG")], ["None 0"]),
    ],
)  # fmt: skip
def test_rules_of_iptables(line: str, expr: list[Any], expected: list[str]):
    content = {"P": [expr], "A": [[dnat()]]}
    saved = {"ip": f"*nat\n:P ACCEPT\n-A P {line}\nCOMMIT\n"}
    assert ends(outcomes(ruleset(saved, **content), "prerouting", replace(PACKET, kind="unicast"))) == expected


def test_marks_outside_of_nat_are_not_followed():
    rules = ruleset(P=[[to("jump", "A")], [by_chance(to("goto", "A"))]], A=[[MARKED]])
    assert not rules.marks
    base = {"family": "ip", "table": "t"}
    items = [
        {"chain": {**base, "name": "f", "hook": "forward", "type": "filter", "prio": 0}},
        *({"chain": {**base, "name": name}} for name in "mn"),
        {"map": {**base, "name": "v", "elem": [["tcp", to("jump", "n")]]}},
        {"rule": {**base, "chain": "f", "handle": 1, "expr": [to("jump", "m")]}},
        {"rule": {**base, "chain": "m", "handle": 2, "expr": [to("jump", "f"), to("jump", "gone")]}},
        {"rule": {**base, "chain": "m", "handle": 3, "expr": [{"vmap": {"key": MARK, "data": "@v"}}]}},
        {"rule": {**base, "chain": "n", "handle": 4, "expr": [MARKED]}},
    ]
    assert parse([json.dumps({"nftables": items})]).marks


# Through a node

SERVICE: dict[str, Any] = {
    "P": [[field("ip", "daddr", "10.96.0.9"), MARKED, by_chance(to("goto", "A"), to("goto", "B"))]],
    "A": [[dnat(port=8080)]],
    "B": [[dnat("10.244.2.4", port=8080)]],
    "Q": [[asks({"&": [MARK, 0x4000]}, 0), RETURN], [MASQUERADE]],
}  # fmt: skip
SERVICE["O"] = SERVICE["P"]


def test_to_a_service_and_the_answer():
    own = AddressInfo(index=VXLAN, ip=ip_address("10.244.1.0"), prefixlen=32)
    there = way(of=PACKET, rules=ruleset(**SERVICE), addresses=(*ADDRESSES, own))
    assert (there.end, there.to) == ("sent", "192.168.0.2")
    # Bridge netfilter changes nothing: the route of where it is sent leads to another device.
    assert way(of=PACKET, rules=ruleset(**SERVICE), addresses=(*ADDRESSES, own), settings=ON).to == "192.168.0.2"
    assert [hop.seen for hop in there.hops if hop.what == "DNAT"] == [
        "10.96.0.9:80 becomes 10.244.2.3:8080, or by chance 10.244.2.4:8080, by rule of ip nat A (handle 0)"
    ]
    assert [hop.seen for hop in there.hops if hop.what == "SNAT"] == [
        "10.244.1.2 becomes 10.244.1.0, by rule of ip nat Q (handle 1)"
    ]
    assert there.packet == Addressed(source="10.244.1.0", target="10.244.2.3", source_port=40000, target_port=8080)
    answer = replace(packet("10.244.2.3", "10.244.1.0"), source_port=8080, target_port=40000, state="established")
    back = way(PEER, of=answer, original=PACKET)
    assert [hop.seen for hop in back.hops if hop.what == "conntrack"] == [
        "10.244.1.0 becomes 10.244.1.2 again",
        "10.244.2.3 becomes 10.96.0.9 again",
    ]
    assert (back.end, steps(back)[-1]) == ("delivered", "delivered")


def test_from_the_node_itself():
    node, of = Entry(kind="node"), packet("192.168.0.1", "10.96.0.9")
    assert code(way(node, of=of, rules=ruleset(**SERVICE), routes=ROUTES[1:])) == "ROUTE-001"
    out = RouteInfo(dst=ip_network("10.96.0.0/16"), index=ETH0, via=ip_address("192.168.0.2"))
    there = way(node, of=of, rules=ruleset(**SERVICE), routes=(*ROUTES[1:], out))
    assert there.to == "192.168.0.2"
    assert steps(there)[0] == "DNAT"


@pytest.mark.parametrize("entry", [NODE, POD], ids=["the node", "a pod"])
def test_to_the_node_itself_a_source_changes_at_input_behind_the_filter(entry: Entry):
    source = "10.244.1.1" if entry is NODE else "10.244.1.2"
    of = packet(source, "10.244.1.1")
    without = way(entry, of=of)
    found = way(entry, of=of, rules=ruleset(I=[[field("ip", "saddr", source), {"snat": {"addr": "10.9.9.9"}}]]))
    assert (found.end, found.packet) == ("delivered", replace(without.packet, source="10.9.9.9"))
    *before, translated, last = found.hops
    assert (*before, last) == without.hops
    assert (translated.what, translated.seen) == ("SNAT", f"{source} becomes 10.9.9.9, by rule of ip nat I (handle 0)")


def test_between_pods_of_one_node():
    content = {
        **SERVICE,
        "A": [[dnat("10.244.1.3", port=8080)]],
        "P": [[field("ip", "daddr", "10.96.0.9"), to("goto", "A")]],
    }
    assert way(of=PACKET, rules=ruleset(**content)).hops[-1].seen == "to 10.244.1.3 behind cni0"
    assert way(of=PACKET, rules=ruleset(**content), settings=ON).hops[-1].seen == "to 10.244.1.3 on the same bridge"
    answer = replace(packet("10.244.1.3", "10.244.1.2"), state="established")
    seen = way(of=answer, original=PACKET, settings=ON)
    assert (seen.end, steps(seen)[-2:]) == ("delivered", ["conntrack", "delivered"])
    # Without bridge netfilter the bridge passes it on as it is, and it answers nobody.
    assert code(way(of=answer, original=PACKET)) == "KERN-001"
    assert way(of=answer, original=packet(target="10.244.1.3")).end == "delivered"


def test_a_pod_reaches_itself_by_hairpin():
    itself = ruleset(P=[[field("ip", "daddr", "10.96.0.9"), dnat("10.244.1.2", port=8080)]], Q=[[MASQUERADE]])
    *others, port = LINKS
    off = replace(port, index=port.index + 1, name="veth2", port=PortInfo(hairpin=False))
    seen = way(of=PACKET, rules=itself, settings=ON)
    assert seen.hops[-1].seen == "to 10.244.1.2 on the same bridge"
    lost = way(of=PACKET, rules=itself, settings=ON, links=(*others, off))
    assert (code(lost), lost.hops[-1].what) == ("BRIDGE-003", "hairpin")
    assert way(of=PACKET, rules=itself, settings=ON, links=(*LINKS, off)).end == "undecided"
    # Where no bridge asks the rules the node does, and sends the packet as its own.
    assert way(of=PACKET, rules=itself, links=(*others, off)).hops[-1].seen == "to 10.244.1.2 behind cni0"


def test_the_order_of_two_tables_is_not_told():
    def both(first: str, second: str) -> list[str]:
        items: list[Any] = []
        for table, address in (("a", first), ("b", second)):
            base = {"family": "ip", "table": table}
            chain = {**base, "name": "p", "hook": "prerouting", "type": "nat", "prio": -100}
            items += [{"chain": chain}, {"rule": {**base, "chain": "p", "handle": 1, "expr": [dnat(address)]}}]
        return ends(outcomes(parse([json.dumps({"nftables": items})]), "prerouting", PACKET))

    assert both("10.0.0.1", "10.0.0.1") == [end("10.0.0.1")]
    assert both("10.0.0.1", "10.0.0.2") == [f"{end('10.0.0.2')} ?"]


def test_what_can_not_be_told_of_nat():
    seen = way(of=PACKET, rules=ruleset(P=[[meta("cpu", 1), dnat()]]))
    assert seen.end == "undecided"
    assert seen.hops[1].seen == "undecided: rule of ip nat P (handle 0)"
    nowhere = way(of=packet(), rules=ruleset(P=[[{"redirect": {"port": 81}}]]), addresses=())
    assert nowhere.end == "undecided"
    many = [to("goto", name) for name in "ABCDEF"]
    chains = {name: [[dnat(f"10.244.2.{number}")]] for number, name in enumerate("ABCDEF", 3)}
    [hop] = [hop for hop in way(of=PACKET, rules=ruleset(P=[[by_chance(*many)]], **chains)).hops if hop.what == "DNAT"]
    assert "or by chance 10.244.2.4, 10.244.2.5, 10.244.2.6, 10.244.2.7, …, by" in hop.seen
    assert hop.others[:2] == ("10.244.2.4", "10.244.2.5")
