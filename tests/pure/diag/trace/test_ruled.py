"""Which rule dropped probes, by the steps that the kernel tells of."""

from ipaddress import ip_address
from typing import Any

import pytest

from weft.diag.trace.hops import End, Hop, Leg, Way
from weft.diag.trace.outcome import Answers, outcome
from weft.diag.trace.probes import ProbesSeen, patterns, questions
from weft.diag.trace.ruled import Ruling, decisive, dropped, ends_of_dropped, explained
from weft.model.errors import Problem
from weft.model.kernel.nftrace import Pattern, Step
from weft.wire.icmp import MARK

RULING = Ruling(family="ip", table="x", chain="p", handle=4, count=3)


def step(packet: int, table: str, verdict: str = "continue", **more: Any) -> Step:
    return Step(
        packet=packet, family="ip", table=table, chain="p", verdict=verdict, **{"kind": "rule", "handle": 4, **more}
    )


def test_drops_of_marked_packets_count_even_if_one_has_the_number_of_an_earlier():
    steps = [
        *(step(1, "weft-trace-7"), step(1, "x", "drop"), step(1, "weft-trace-7"), step(1, "x", "drop")),
        *(
            step(2, "weft-trace-7", handle=0),
            step(2, "weft-trace-8"),
            step(2, "x", "drop"),
            step(3, "weft-trace-7"),
            step(3, "x", "accept"),
        ),
        *(step(4, "weft-trace-7"), step(4, "y", "drop", kind="policy", handle=0)),
    ]
    assert dropped(steps, {"weft-trace-7"}) == [
        Ruling(family="ip", table="x", chain="p", handle=4, count=2),
        Ruling(family="ip", table="y", chain="p", handle=0, count=1),
    ]


def test_what_drops_neighbour_discovery_is_told_so():
    asking = bytes(6) + b"\x3a\xff" + bytes(32)
    steps = [step(1, "weft-trace-7", header=asking), step(1, "x", "drop")]
    [ruling] = dropped(steps, {"weft-trace-7"})
    assert ruling.asking
    assert "drops neighbour discovery for them, as the kernel tells" in explained("node1", ruling, 3, pod=False).seen
    assert questions([ip_address("fd01::a"), ip_address("10.0.0.1")]) == [
        Pattern(8, ip_address("fd01::a").packed, ip_address("fd01::a").packed)
    ]


FOUR = bytes.fromhex("4500002cb49c4000400188327f0000017f000002")
SIX = bytes.fromhex("60000000001800ff" + "fd01000000000000000000000000000a" + "fd01000000000000000000000000000b")


def test_the_ends_of_packets_that_one_table_dropped():
    steps = [
        *(step(1, "weft-trace-7", header=FOUR), step(1, "p", "drop")),
        *(step(2, "weft-trace-7", header=SIX), step(2, "p", "drop")),
        *(step(3, "weft-trace-7", header=FOUR[:19]), step(3, "p", "drop")),
        *(step(4, "weft-trace-7"), step(4, "p", "drop")),
        *(step(5, "weft-trace-7", header=bytes([*FOUR[:19], 9])), step(5, "x", "drop")),
        *(step(6, "weft-trace-8", header=bytes([*FOUR[:19], 8])), step(6, "p", "drop")),
    ]
    ends = [("127.0.0.1", "127.0.0.2"), ("fd01::a", "fd01::b")]
    expected = {(ip_address(source), ip_address(target)) for source, target in ends}
    assert ends_of_dropped(steps, {"weft-trace-7"}, "p") == expected


@pytest.mark.parametrize(
    "ruling, code, words",
    [
        (RULING, "FW-002", "a rule of ip x p (handle 4) drops them, as the kernel tells"),
        (
            Ruling(family="ip", table="x", chain="p", handle=4, count=2, text="udp dport 8472 drop"),
            "FW-002",
            "rule 'udp dport 8472 drop' of ip x p (handle 4) drops 2 of 3 lost packets, as the kernel tells",
        ),
        (
            Ruling(family="inet", table="firewalld", chain="f", handle=0, count=3),
            "FW-001",
            "the policy of chain f of inet firewalld",
        ),
    ],
)
def test_a_ruling_in_words(ruling: Ruling, code: str, words: str):
    assert decisive([Ruling(family="ip", table="z", chain="z", handle=1, count=1), ruling]) == ruling
    problem = explained("node2", ruling, 3, pod=False)
    assert (problem.code, problem.where) == (code, "node2")
    assert problem.seen.startswith(words)
    assert decisive([]) is None


@pytest.mark.parametrize(
    "table, chain, beside, hint",
    [
        ("filter", "FORWARD", ["FORWARD", "DOCKER-USER"], "Have Docker accept this"),
        ("weft-policy", "p", [], "'weft policy explain A B' says why"),
        ("x", "p", [], "Have the program that made it accept this"),
    ],
)
def test_whose_the_rule_is(table: str, chain: str, beside: list[str], hint: str):
    ruling = Ruling(family="ip", table=table, chain=chain, handle=1, count=3, beside=beside)
    problem = explained("node2", ruling, 3, pod=False)
    assert problem.hint.startswith(hint)
    assert ruling.is_policys == (table == "weft-policy")


def test_what_probes_look_like_behind_an_ip_header():
    first, *others = patterns("icmp", [1000, 1002])
    assert first == Pattern(8, MARK + (1000).to_bytes(8, "big"), MARK + (1002).to_bytes(8, "big"))
    assert Pattern(58, first.first, first.last) in others  # within VXLAN
    asks, answers, *_ = patterns("tcp", [1, 5])
    assert (asks, answers) == (Pattern(4, b"\0\0\0\1", b"\0\0\0\5"), Pattern(8, b"\0\0\0\2", b"\0\0\0\6"))


POD = End(node="node1", address="10.0.0.2", pod="pod1")
FORETOLD = Problem(code="FW-002", where="input", seen="another rule")


def lost(*counts: int, foretold: Problem | None = None, pod: str = "", **more: Any) -> Any:
    devices = ("eth0", "cni0")
    legs = [
        Leg(
            node="node1",
            pod=pod,
            direction="there",
            way=Way(hops=(Hop(what="received by", seen="", device=device),), end="sent"),
            counted={device: count},
        )
        for device, count in zip(devices, counts, strict=True)
    ]
    if foretold is not None:
        last = legs[-1]
        legs[-1] = Leg(
            node=last.node,
            direction="there",
            way=Way(hops=last.way.hops, end="dropped", problem=foretold),
            counted=last.counted,
        )
    return outcome(legs, Answers(sent=3, reached=0, seen=ProbesSeen(**more)), due=True)


def test_the_kernels_word_comes_before_what_was_foretold():
    ruled = {"node1": [RULING]}
    named = "FW-002 node1: a rule of ip x p (handle 4) drops them, as the kernel tells."
    assert lost(3, 0, ruled=ruled).verdict.startswith(named)
    assert lost(3, 0, ruled=ruled).verdict.endswith("; weft trace had foretold that it passes there")
    other = lost(3, 3, foretold=FORETOLD, ruled=ruled).verdict
    assert other.startswith(named)
    assert other.endswith("; foretold was FW-002 input: another rule")
    assert lost(3, 0, ruled=ruled).ruling == RULING
    elsewhere = lost(3, 0, ruled={"node9": [RULING]})
    assert (elsewhere.problem.code, elsewhere.ruling) == ("LOST-001", None)


@pytest.mark.parametrize("text, said", [("", ""), ("udp dport 9 drop", ": 'udp dport 9 drop'")])
def test_the_kernel_confirms_what_was_foretold(text: str, said: str):
    ruling = Ruling(family="ip", table="x", chain="p", handle=4, count=3, text=text)
    foretold = Problem(code="REACH-001", where="input", seen="dropped by rule of ip x p (handle 4)")
    found = lost(3, 3, foretold=foretold, ruled={"node1": [ruling]})
    seen = f"REACH-001 input: dropped by rule of ip x p (handle 4){said}, as the kernel tells"
    assert found.verdict == f"the packet is dropped on node1: {seen}"
    assert found.ruling == ruling


def test_what_pods_and_other_families_drop_was_not_foretold():
    bridge = Ruling(family="bridge", table="x", chain="p", handle=4, count=3)
    assert "foretold" not in lost(3, 0, ruled={"node1": [bridge]}).verdict
    inside = lost(3, 0, pod="pod1", ruled={"pod1": [RULING]}).verdict
    assert inside.startswith("CHECK-002 pod pod1: a rule of ip x p (handle 4) drops them, as the kernel tells")
    assert "foretold" not in inside
