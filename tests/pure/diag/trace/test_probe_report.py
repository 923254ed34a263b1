"""The legs of a trace, and where probes that were counted at its devices were lost."""

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from weft.diag.trace.grown import by_probes, difference
from weft.diag.trace.hops import LOOPBACK, End, Hop, Leg, Way, counted, legs
from weft.diag.trace.outcome import Answers, Outcome, Sized, outcome, parted
from weft.diag.trace.probe_report import (
    Asked,
    SourceSeen,
    TraceReport,
    passed,
    proved,
    searched,
    tried_diagram,
    tried_lines,
)
from weft.diag.trace.probe_report import tried as put_together
from weft.diag.trace.probes import Kind, ProbesSeen, Sent, TooLarge, Wanted
from weft.model.errors import Problem
from weft.model.value import replace
from weft.wire.icmp import marked_request

POD1 = End(node="node1", address="10.244.1.2", pod="pod1", host_end="veth1")
POD2 = End(node="node2", address="10.244.2.2", pod="pod2", host_end="veth2")
NODE2 = End(node="node2", address="172.31.0.12")
DROPPED = Problem(code="FW-002", where="forward", seen="dropped by a rule")


def hops(*devices: str) -> tuple[Hop, ...]:
    """`what:device`, or what alone."""
    pairs = (each.partition(":") for each in devices)
    return tuple(Hop(what=what, seen="", device=device) for what, _, device in pairs)


OUT = Way(hops=hops("from the pod by:cni0", "route", "out by:flannel.1", "outer packet by:eth0"), end="sent")
IN = Way(hops=hops("received by:eth0", "unwrapped by:flannel.1", "out by:cni0"), end="delivered")
FIRST: Any = ("node1", {"there": OUT, "back": IN})
KNOWN: Any = [FIRST, ("node2", {"there": IN, "back": OUT})]


def steps(found: list[Leg]) -> list[str]:
    return [f"{leg.place} {hop.device}" for leg in found for hop in leg.way.hops if hop.device]


THERE = [
    *("pod1 eth0", "node1 veth1", "node1 cni0", "node1 flannel.1", "node1 eth0"),
    *("node2 eth0", "node2 flannel.1", "node2 cni0", "node2 veth2", "pod2 eth0"),
]


def test_between_pods_all_devices_are_passed_there_and_back():
    found = legs(POD1, POD2, KNOWN)
    assert steps(found) == [*THERE, *reversed(THERE)]
    assert [(leg.place, leg.direction) for leg in found] == [
        *(("pod1", "there"), ("node1", "there"), ("node2", "there"), ("pod2", "there")),
        *(("pod2", "back"), ("node2", "back"), ("node1", "back"), ("pod1", "back")),
    ]


def test_to_a_node_and_on_one_node():
    assert (POD1.place, NODE2.place) == ("pod1", "node2")
    assert steps(legs(POD1, NODE2, KNOWN))[:8] == THERE[:8]
    same = Way(hops=hops("from the pod by:veth1", "out by:veth2"), end="delivered")
    back = Way(hops=hops("from the pod by:veth2", "out by:veth1"), end="delivered")
    other = End(node="node1", address="10.244.1.3", pod="pod3", host_end="veth2")
    found = legs(POD1, other, [("node1", {"there": same, "back": back})])
    assert steps(found) == [
        *(
            "pod1 eth0",
            "node1 veth1",
            "node1 veth2",
            "pod3 eth0",
            "pod3 eth0",
            "node1 veth2",
            "node1 veth1",
            "pod1 eth0",
        )
    ]


def test_the_legs_end_where_the_packet_does():
    dropped = Way(hops=hops("received by:eth0"), end="dropped", problem=DROPPED)
    found = legs(POD1, POD2, [FIRST, ("node2", {"there": dropped, "back": OUT})])
    assert steps(found) == THERE[:6]


def tried(seen: int, lost_at: int, *, known: Any = None, answers: bool = True, hidden: tuple[int, ...] = ()) -> Outcome:
    """Three probes, of which `seen` alone pass the device of this number and those behind it."""
    found = legs(POD1, POD2, known or KNOWN)
    numbers = iter(range(99))

    def at(*_: Any) -> int:
        number = next(numbers)
        return 0 if number in hidden else 3 if number < lost_at else seen

    found = [counted(leg, at) for leg in found]
    reached = seen if lost_at < 20 else 3
    return outcome(found, Answers(sent=3, reached=reached), due=answers)


def test_all_is_well_even_where_a_cipher_hides_probes():
    assert tried(0, 20) == Outcome(verdict="it arrives, and the answer comes back", well=True, leg=7)
    assert parted([counted(leg, lambda *_: 3) for leg in legs(POD1, POD2, KNOWN)], 3) is None
    assert tried(0, 7, hidden=(4, 5)).verdict.startswith("LOST-001 node2: flannel.1 of node2 received 3, cni0 sent 0")


@pytest.mark.parametrize(
    "lost_at, said",
    [
        (0, "LOST-001 pod1: pod1 sent 0 by eth0"),
        (1, "CHECK-001 pod pod1: eth0 of pod1 sent 3, veth1 of node1 received 0"),
        (3, "LOST-001 node1: cni0 of node1 received 3, flannel.1 sent 0"),
        (4, "REACH-001 node1: flannel.1 of node1 took 3, eth0 sent 0"),
        (5, "REACH-001 node1 to node2: eth0 of node1 sent 3, eth0 of node2 received 0"),
        (6, "REACH-001 node2: eth0 of node2 received 3, flannel.1 received 0"),
        (9, "CHECK-001 pod pod2: veth2 of node2 received 3, eth0 of pod2 received 0"),
        (10, "LOST-001 pod2: pod2 received 3 and answered 0"),
        (15, "REACH-001 node2 to node1: eth0 of node2 sent 3, eth0 of node1 received 0"),
    ],
)
def test_the_first_device_that_did_not_see_them(lost_at: int, said: str):
    found = tried(0, lost_at)
    assert found.verdict.startswith(said)
    assert not found.well
    assert found.leg == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 6][lost_at]


@pytest.mark.parametrize(
    "place, counter, code",
    [
        ("node1", "TcpExt.IPReversePathFilter", "KERN-003"),
        ("node1", "XfrmOutPolBlock", "XFRM-001"),
        ("node1", "Ip.OutNoRoutes", "ROUTE-003"),
        ("node2", "Udp.NoPorts", "VTEP-004"),
        ("node2", "Ip.InReceives", "REACH-001"),  # which every packet counts
    ],
)
def test_a_counter_that_grew_by_the_lost_probes_says_why(place: str, counter: str, code: str):
    numbers = iter(range(99))
    found = [counted(leg, lambda *_: 3 if next(numbers) < 5 else 0) for leg in legs(POD1, POD2, KNOWN)]
    for count, said in ((3, code), (2, "REACH-001")):  # two are not three
        result = outcome(found, Answers(sent=3, reached=0, grown={place: {counter: count}}), due=True)
        assert result.problem is not None
        assert result.problem.code == said
        assert (counter in result.verdict) == (said != "REACH-001")


def test_what_grows_without_probes_is_not_theirs():
    assert by_probes({"a": 9, "b": 3, "c": 4}, {"a": 3, "c": 2}, times=3.0) == {"b": 3}
    assert difference({"a": 1}, {"a": 1, "b": 2}) == {"b": 2}


SILENT = Problem(code="REACH-001", where="link eth0", seen="172.31.0.12 does not answer ARP on eth0")
ASTRAY = Problem(code="ROUTE-002", where="packets to 10.244.2.0/24", seen="a table of a VPN takes them")


def suspecting(what: str, problem: Problem, before: str, way: Way = OUT) -> Way:
    """A way on which something is suspected before a device."""
    doubt = Hop(what=what, seen=problem.seen, passes=None, suspect=problem)
    at = [hop.device for hop in way.hops].index(before)
    return replace(way, hops=(*way.hops[:at], doubt, *way.hops[at:]), end="undecided")


@pytest.mark.parametrize(
    "way, lost_at, said",
    [
        (suspecting("neighbour", SILENT, "eth0"), 4, str(SILENT)),
        # It has answered since: they left, and it was not that.
        (suspecting("neighbour", SILENT, "eth0"), 5, "REACH-001 node1 to node2: eth0 of node1 sent 3"),
        (suspecting("neighbour", SILENT, "eth0"), 3, "LOST-001 node1: cni0 of node1 received 3"),
        (suspecting("route", ASTRAY, "flannel.1"), 5, str(ASTRAY)),
        (suspecting("route", ASTRAY, "flannel.1"), 7, "LOST-001 node2: flannel.1 of node2 received 3"),
        (suspecting("route", ASTRAY, "flannel.1"), 20, "it arrives, and the answer comes back"),
    ],
)
def test_what_was_suspected_is_named_where_they_are_lost_and_nowhere_else(way: Way, lost_at: int, said: str):
    between = lost_at == 5
    known: Any = [("node1", {"there": way, "back": IN}), KNOWN[1]]
    assert tried(0, lost_at, known=known).verdict.startswith(said)
    # It comes before what was predicted of a packet that does not get there.
    drop = Way(hops=hops("received by:eth0", "rules at input"), end="dropped", problem=DROPPED)
    known[1] = ("node2", {"there": drop, "back": OUT})
    found = tried(0, lost_at, known=known)
    if between:
        # That they leave one node and do not come to the other is seen, whatever is predicted there.
        assert found.verdict.startswith(said) or found.problem == ASTRAY
        assert found.verdict.endswith("; beyond that, the packet is dropped on node2: FW-002")
    elif said in (str(SILENT), str(ASTRAY)):
        assert found.verdict == f"{said}; beyond that, the packet is dropped on node2: FW-002"
        assert found.problem in (SILENT, ASTRAY)
    else:
        assert str(DROPPED) in found.verdict


@pytest.mark.parametrize("lost_at", range(21))
@pytest.mark.parametrize("seen", [0, 1])
def test_no_step_counts_as_reached_to_which_no_probe_came(lost_at: int, seen: int):
    """Up to the device that is the first without a probe; with some that came on, all are reached."""
    numbers = [7, 9, 11]
    passed = [(leg, hop) for leg in legs(POD1, POD2, KNOWN) for hop in leg.way.hops if hop.device]
    counted_at = {
        (leg.place, hop.device, leg.direction): set(numbers[: 3 if number < lost_at else seen])
        for number, (leg, hop) in enumerate(passed)
    }
    found = put_together(
        Asked(source="a", target="b", kind="icmp", numbers=numbers), POD1, POD2, KNOWN, ProbesSeen(seen=counted_at)
    )
    marks = [(hop.device, hop.reached) for leg in found.legs for hop in leg.way.hops]
    reached = [device for device, came in marks if device and came]
    everything = [device for device, _ in marks if device]
    assert reached == (everything if seen else everything[:lost_at])
    firsts = [came for _, came in marks]
    assert firsts == sorted(firsts, reverse=True)
    ends = [leg.way.end for leg in found.legs if not all(hop.reached for hop in leg.way.hops)]
    assert set(ends) <= {"lost"}
    text = "\n".join(tried_lines(found, explain=False))
    assert ("     lost" in text) == bool(ends)
    assert text.count(" · ") == sum(not hop.reached for leg in found.legs[: found.last + 1] for hop in leg.way.hops)
    assert ("-x" in tried_diagram(found)) == bool(ends)


def test_a_pod_reaches_itself_without_leaving():
    itself = Way(hops=LOOPBACK, end="delivered")
    found = legs(POD1, POD1, [("node1", {"there": itself, "back": itself})])
    assert [(leg.place, leg.direction, leg.way.end) for leg in found] == [
        ("pod1", "there", "delivered"),
        ("pod1", "back", "delivered"),
    ]
    assert steps(found) == ["pod1 lo", "pod1 lo"]
    # By a Service it leaves, and comes back.
    assert steps(legs(POD1, POD1, [("node1", {"there": OUT, "back": OUT})]))[:3] == THERE[:3]


def test_a_link_that_is_down_where_they_would_come_in_explains_the_silence_before():
    known: Any = [("node1", {"there": suspecting("neighbour", SILENT, "eth0"), "back": IN})]
    down = Problem(code="IFACE-002", where="link eth0", seen="it is down")
    way = Way(hops=hops("received by"), end="dropped", problem=down)
    found = tried(0, 4, known=[*known, ("node2", {"there": way, "back": OUT})])
    assert found.verdict == f"the packet is dropped on node2: {down}"


def test_a_pod_to_which_no_node_of_the_way_leads_has_no_end_there():
    found = legs(POD1, POD2, [FIRST])
    assert [step for step in steps(found) if "veth2" in step] == []


def test_some_are_lost():
    assert tried(2, 5).verdict.startswith("REACH-001 node1 to node2: eth0 of node1 sent 3, eth0 of node2 received 2")


def test_a_datagram_need_not_be_answered():
    found = tried(0, 10, answers=False)
    assert (found.verdict, found.well, found.leg) == ("it arrives; pod2 does not answer", True, 3)


def test_what_was_predicted_to_be_dropped():
    dropped = [
        FIRST,
        ("node2", {"there": Way(hops=hops("received by:eth0"), end="dropped", problem=DROPPED), "back": OUT}),
    ]
    assert tried(0, 6, known=dropped).verdict == f"the packet is dropped on node2: {DROPPED}"
    assert tried(0, 20, known=dropped).verdict == (
        f"3 of 3 answers came back, and the packet was predicted to be dropped on node2: {DROPPED}"
    )
    back = [
        ("node1", {"there": OUT, "back": Way(hops=hops("received by:eth0"), end="dropped", problem=DROPPED)}),
        KNOWN[1],
    ]
    assert tried(0, 16, known=back).verdict == f"the answer is dropped on node1: {DROPPED}"


def test_what_was_not_told():
    doubtful = Hop(what="rules at forward", seen="undecided", passes=None)
    known = [("node1", {"there": Way(hops=(doubtful, *OUT.hops), end="undecided"), "back": IN}), KNOWN[1]]
    assert tried(0, 3, known=known).verdict.startswith(
        "the rules that were read do not decide it; FW-002 node1: cni0 of node1 received 3"
    )
    found = [counted(leg, lambda *_: 3) for leg in legs(POD1, POD2, KNOWN)]
    assert outcome(found, Answers(sent=3, reached=2), due=True).verdict.startswith(
        "2 of 3 answers came back, and no device"
    )


def test_what_answers_alone_tell():
    found = [counted(leg, lambda *_: 3) for leg in legs(POD1, POD2, KNOWN)]
    refused = outcome(found, Answers(sent=3, reached=3, denied=3), due=True)
    assert (refused.verdict, refused.well) == ("it arrives, and is refused: nothing listens at the port", True)
    beyond = outcome(found, Answers(sent=3, reached=3, denied=3), due=True, beyond="192.0.2.2")
    assert beyond.verdict == "192.0.2.2 refuses it: nothing listens at the port, or a firewall says so"
    lost = [counted(leg, lambda *_: 0) for leg in legs(POD1, POD2, KNOWN)]
    unread = outcome(lost, Answers(sent=3, reached=1, unread=70), due=True)
    assert unread.verdict.startswith("1 of 3 answers came back; 70 packets were not read")
    assert (unread.well, unread.problem) == (False, None)
    kernel = outcome(lost, Answers(sent=3, reached=0, taken=Sent(refusal="Permission denied")), due=True)
    assert kernel.verdict == "FW-002 pod1: pod1 sent 0 by eth0: its kernel says 'Permission denied'"


def test_what_goes_on_to_where_nothing_is_counted():
    there = Way(hops=hops("from the pod by:cni0", "outer packet by:eth0"), end="sent", to="192.0.2.2")
    visits: Any = [("node1", {"there": there, "back": IN})]
    end = End(node="192.0.2.2", address="10.244.2.2")

    def seen(there: set[int], back: set[int]) -> ProbesSeen:
        devices = {("pod1", "eth0"): (there, back), ("node1", "cni0"): (there, back), ("node1", "eth0"): (there, back)}
        return ProbesSeen(
            seen={
                (*place, direction): numbers
                for place, both in devices.items()
                for direction, numbers in zip(("there", "back"), both, strict=True)
            },
            to={},
        )

    def report(counted: ProbesSeen, kind: Kind = "icmp") -> TraceReport:
        asked = Asked(source="a", target="b", kind=kind, numbers=[1, 3, 5])
        return put_together(asked, POD1, end, visits, counted, beyond="192.0.2.2")

    well = report(seen({1, 3, 5}, {1, 3, 5}))
    assert (well.verdict, well.reached, well.well) == ("it arrives, and the answer comes back", 3, True)
    silent = report(seen({1, 3, 5}, set()))
    assert (silent.reached, silent.well) == (0, False)
    assert silent.verdict.startswith("REACH-001 node1 to 192.0.2.2: eth0 of node1 sent 3, and eth0 received 0 answers.")
    datagrams = report(seen({1, 3, 5}, set()), "udp")
    assert (datagrams.verdict, datagrams.well) == ("it leaves for 192.0.2.2, and nothing answers", True)
    kept = report(seen(set(), set()))
    assert kept.verdict.startswith("LOST-001 pod1: pod1 sent 0 by eth0")


def test_what_an_end_sends_itself_has_not_arrived_by_that():
    both = Way(hops=hops("from the pod by:cni0"), end="delivered")
    visits: Any = [("node1", {"there": both, "back": both})]
    asked = Asked(source="a", target="b", kind="tcp", numbers=[1, 3])
    seen = {("pod1", "eth0", "there"): {1, 3}, ("pod1", "eth0", "back"): {1, 3}}
    service = replace(POD1, address="10.96.0.1")
    refused = put_together(asked, service, POD1, visits, ProbesSeen(seen=seen, to={}))
    assert (refused.reached, refused.tried) == (0, 2)
    came = put_together(asked, service, POD1, visits, ProbesSeen(seen=seen, to={1: POD1.address, 3: "10.244.9.9"}))
    assert (came.reached, came.tried, came.elsewhere) == (1, 1, 1)


def test_a_frame_is_counted_where_it_was_seen():
    wanted = Wanted(
        kind="icmp", numbers=[7], chosen={"10.0.0.2": bytes((10, 0, 0, 2)), "10.0.0.3": bytes((10, 0, 0, 3))}
    )
    found = ProbesSeen(seen={}, to={})
    address = bytes((10, 0, 0, 1, 10, 0, 0, 2))
    found.note("pod1", "eth0", address + marked_request(4, 7), wanted)
    found.note("pod1", "eth0", address + marked_request(4, 8), wanted)
    found.note("node1", "cni0", bytes((10, 0, 0, 2, 10, 0, 0, 1)) + b"\0" + marked_request(4, 7)[1:], wanted)
    assert not found.denied
    reset = struct.pack("!HHIIBBHHH", 80, 40000, 0, 8, 0x50, 0x14, 0, 0, 0)
    ProbesSeen.note(found, "pod1", "eth0", bytes(20) + reset, Wanted(kind="tcp", numbers=[7]))
    assert found.denied == {7}
    found.seen.pop(("pod1", "eth0", "back"))
    assert found.seen == {("pod1", "eth0", "there"): {7}, ("node1", "cni0", "back"): {7}}
    assert found.to == {7: "10.0.0.2"}
    assert found.towards("10.0.0.2", [7, 8]) == {7, 8}
    assert found.towards("10.0.0.3", [7]) == set()
    assert found.sent_to("10.0.0.2") == {7}


def test_as_text_and_as_a_diagram():
    legs_ = [Leg(node="node1", direction="there", way=OUT, counted={"cni0": 3, "flannel.1": 3, "eth0": 0})]
    report = TraceReport(
        source="a",
        target="b",
        legs=[*legs_, *legs_],
        tried=3,
        reached=0,
        elsewhere=2,
        verdict="lost",
        well=False,
        last=0,
    )
    said = list(tried_lines(report, explain=False))
    assert said[0] == "node1, there"
    assert " +3 from the pod by" in said[1]
    assert said[-2:] == ["0 of 3 probes were answered; 2 went to other pods", "lost"]
    assert sum(line == "node1, there" for line in said) == 1
    assert list(tried_lines(replace(report, elsewhere=0), explain=True))[-2] == "0 of 3 probes were answered"
    assert tried_diagram(report).startswith("sequenceDiagram\n  participant p0 as node1\n")


NUMBERS = [1, 3, 5]


def seen_up_to(lost_at: int, visits: Any = None, end: End = POD2, **fields: Any) -> ProbesSeen:
    """What is counted if three probes pass the devices before this one and none behind it."""
    passing = [(leg, hop) for leg in legs(POD1, end, visits or KNOWN) for hop in leg.way.hops if hop.device]
    came = {(leg.place, hop.device, leg.direction): set(NUMBERS) for leg, hop in passing[:lost_at]}
    return ProbesSeen(seen=came, **fields)


def sized(lost_at: int, known: Any = None, told: dict[str, TooLarge] | None = None, **fields: Any) -> TraceReport:
    """A trace of 1,450 bytes, of which smaller packets have been tried."""
    sent = fields.pop("sent", Sent())
    what = Sized(size=1450, **{"searched": True} | fields)
    counted = seen_up_to(lost_at, known, told=told or {}, sent=sent)
    asked = Asked(source="a", target="b", kind="icmp", numbers=NUMBERS)
    return put_together(asked, POD1, POD2, known or KNOWN, counted, sized=what)


TOLD = TooLarge(mtu=1400, by="10.244.1.1")
TOO_LARGE = Problem(code="MTU-001", where="flannel.1", seen="1450 bytes are too large for flannel.1, MTU 1400")
NARROW: Any = [
    ("node1", {"there": Way(hops=hops("from the pod by:cni0", "size"), end="dropped", problem=TOO_LARGE), "back": IN}),
]


@pytest.mark.parametrize(
    "lost_at, fields, code, said",
    [
        # It is lost where nothing was foreseen: the size is the cause if smaller ones pass there.
        (5, {"largest": 1400}, "MTU-001", "node1 to node2: 1450 bytes are too large: eth0 of node1 sent 3, eth0 of"),
        (5, {"largest": 1400}, "MTU-001", "received 0; nobody tells pod1 the MTU; the largest that passes has 1400 by"),
        (5, {"largest": 1400, "told": {"pod1": TOLD}}, "MTU-001", "0; 10.244.1.1 tells pod1 MTU 1400; the largest"),
        (5, {"largest": 0}, "REACH-001", "node2 received 0; nobody tells pod1 the MTU; small ones are lost, too. See"),
        (5, {"largest": None}, "REACH-001", "no size up to which all pass was found: chance, a rule, or a limit on"),
        (5, {"searched": False}, "REACH-001", "eth0 of node2 received 0; nobody tells pod1 the MTU. See what"),
        # The word does not come to the sender.
        (5, {"largest": 1400, "told": {"node1": TOLD}}, "MTU-001", "at node1, 10.244.1.1 was seen to tell MTU 1400"),
        # Of an answer, who answers is the sender.
        (15, {"largest": 1400, "told": {"pod2": TOLD}}, "MTU-001", "of node1 received 0; 10.244.1.1 tells pod2 MTU 1"),
        # Foreseen.
        (3, {"known": NARROW, "largest": 1400, "told": {"pod1": TOLD}}, "MTU-001", "on node1: MTU-001 flannel.1: 1450"),
        (3, {"known": NARROW, "largest": 1400}, "MTU-001", "Something drops ICMP's 'fragmentation needed'"),
        (3, {"known": NARROW, "largest": 0}, "MTU-001", "MTU 1400; nobody tells pod1 the MTU; small ones"),
        # Its own kernel refuses it, whatever is foreseen behind that.
        (0, {"sent": Sent(refusal="Message too long", mtu=1400), "largest": 1400, "known": NARROW}, "MTU-001",
         "MTU-001 pod1: eth0 carries packets up to 1400 bytes; its own kernel tells pod1 MTU 1400; the largest"),
    ],
)  # fmt: skip
def test_a_packet_that_is_too_large(lost_at: int, fields: dict[str, Any], code: str, said: str):
    found = sized(lost_at, **fields)
    assert (found.well, found.problem.code) == (False, code)
    assert said in found.verdict
    assert str(found.problem) in found.verdict
    assert found.sized is not None
    assert found.sized.size == 1450
    assert "0 of 3 probes of 1450 bytes were answered" in list(tried_lines(found, explain=False))


def test_a_large_packet_that_passes():
    found = sized(20, searched=False)
    assert (found.verdict, found.sized) == ("it arrives, and the answer comes back", Sized(size=1450))
    unread = put_together(
        Asked(source="a", target="b", kind="icmp", numbers=NUMBERS),
        *(POD1, POD2, KNOWN),
        ProbesSeen(unread=9),
        sized=Sized(size=99),
    )
    assert unread.verdict.endswith("try again; nobody tells pod1 the MTU")


def test_which_passed():
    seen = ProbesSeen(seen={("pod1", "eth0", "back"): {1}, ("pod2", "eth0", "there"): {1, 3}})
    assert passed(NUMBERS, "icmp", POD1, POD2, seen) == [True, False, False]
    assert passed(NUMBERS, "udp", POD1, POD2, seen) == [True, True, False]


@pytest.mark.parametrize("kind, where", [("icmp", ("pod1", "eth0", "back")), ("udp", ("pod2", "eth0", "there"))])
def test_the_largest_that_passes_is_searched_by_what_is_seen_at_both_ends(kind: Kind, where: Any):
    def count(sizes: Sequence[int]) -> tuple[list[int], ProbesSeen]:
        numbers = list(range(len(sizes)))
        return numbers, ProbesSeen(seen={where: {each for each in numbers if sizes[each] <= 1350}})

    asked = Asked(source="a", target="b", kind=kind, numbers=NUMBERS)
    found = searched(Sized(size=1450), asked, POD1, POD2, count, beyond="")
    assert found == Sized(size=1450, searched=True, largest=1350)


@pytest.mark.parametrize("size, limit, looks", [(1450, 1350, 0), (1450, 0, 1), (0, 0, 1)])
def test_it_is_looked_again_where_no_smaller_packet_passes(size: int, limit: int, looks: int):
    looked = 0

    def count(sizes: Sequence[int]) -> tuple[list[int], ProbesSeen]:
        numbers = list(range(len(sizes)))
        passing = {each for each in numbers if sizes[each] <= limit}
        return numbers, ProbesSeen(seen={("pod1", "eth0", "back"): passing})

    def look_again() -> Any:
        nonlocal looked
        looked += 1
        return NARROW

    found = proved(
        Asked(source="a", target="b", kind="icmp", numbers=NUMBERS),
        *(POD1, POD2, KNOWN, seen_up_to(5)),
        beyond="",
        sized=Sized(size=size) if size else None,
        count=count,
        look_again=look_again,
    )
    assert looked == looks
    assert ("the packet is dropped on node1" in found.verdict) == bool(looks)


def test_where_all_is_well_nothing_more_is_sent_or_looked_at():
    def fails(*_: Any) -> Any:
        raise AssertionError("there is no need")

    asked = Asked(source="a", target="b", kind="icmp", numbers=NUMBERS)
    seen, size = seen_up_to(99), Sized(size=1450)
    found = proved(asked, POD1, POD2, KNOWN, seen, beyond="", sized=size, count=fails, look_again=fails)
    assert (found.well, found.sized) == (True, size)
    answered = ProbesSeen(seen={key: at for key, at in seen.seen.items() if key[0] != "pod2"})
    far = {"beyond": "far", "sized": size, "count": fails, "look_again": fails}
    assert proved(asked, POD1, End(node="far", address="192.0.2.9"), KNOWN, answered, **far).well


def test_nothing_is_searched_without_a_size_nor_by_datagrams_to_where_nobody_looks():
    def count(_: Sequence[int]) -> tuple[list[int], ProbesSeen]:
        raise AssertionError("something is sent")

    asked = Asked(source="a", target="b", kind="udp", numbers=NUMBERS)
    assert searched(None, asked, POD1, POD2, count, beyond="") is None
    assert searched(Sized(size=1450), asked, POD1, POD2, count, beyond="far") == Sized(size=1450)


OUTSIDE = End(node="outside", address="172.31.0.1", device="underlay")
UNKNOWN = Problem(code="NFT-002", where="packets to 172.31.0.1", seen="they leave as from 10.244.1.2: no rule")
KEPT = Hop(what="NAT at postrouting", seen="10.244.1.2 stays as it is", suspect=UNKNOWN)
SNAT = Hop(what="SNAT", seen="10.244.1.2 becomes 172.31.0.11")


def leaving(nat: Hop, lost_at: int, *, kind: Kind = "icmp", seen: str = "10.244.1.2", beyond: str = "") -> TraceReport:
    """A trace to the outside, with what NAT is predicted to do and the source that the uplink shows."""
    there = Way(hops=(*hops("from the pod by:cni0"), nat, *hops("out by:eth0")), end="sent", to="172.31.0.1")
    back = Way(hops=hops("out by:cni0"), end="delivered")
    visits: Any = [("node1", {"there": there, "back": back})]
    end = End(node=beyond, address="172.31.0.1") if beyond else OUTSIDE
    before, after = {"10.244.1.2": Counter(NUMBERS)}, {seen: Counter(NUMBERS)}
    sources = {
        ("pod1", "eth0"): before,
        ("node1", "cni0"): before,
        ("node1", "eth0"): after,
        ("outside", "underlay"): after,
    }
    counted = seen_up_to(lost_at, visits, end, sources=sources)
    asked = Asked(source="pod1", target="outside", kind=kind, numbers=NUMBERS)
    return put_together(asked, POD1, end, visits, counted, beyond=beyond)


def test_the_source_is_said_as_it_was_seen():
    found = leaving(SNAT, 99, seen="172.31.0.11")
    assert (found.well, found.verdict) == (True, "it arrives, and the answer comes back")
    assert found.sources == [
        SourceSeen(place="pod1", device="eth0", address="10.244.1.2"),
        SourceSeen(place="node1", device="eth0", address="172.31.0.11"),
    ]
    assert [(leg.place, leg.direction) for leg in found.legs] == [
        *(("pod1", "there"), ("node1", "there"), ("outside", "there")),
        *(("outside", "back"), ("node1", "back"), ("pod1", "back")),
    ]
    text = "\n".join(tried_lines(found, explain=False))
    assert "out by" in text
    assert ", from 172.31.0.11\n" in text
    assert "seen to come from 10.244.1.2 (eth0 of pod1), then from 172.31.0.11 (eth0 of node1)\n" in text


@pytest.mark.parametrize("beyond, lost_at", [("", 5), ("172.31.0.1", 4)])
def test_nobody_outside_can_answer_a_pods_own_address(beyond: str, lost_at: int):
    found = leaving(KEPT, lost_at, beyond=beyond)
    assert (found.well, found.problem, found.verdict) == (False, UNKNOWN, str(UNKNOWN))
    datagrams = leaving(KEPT, lost_at, kind="udp", beyond=beyond)
    assert datagrams.well
    assert datagrams.verdict.endswith(f": {UNKNOWN.seen}")
    # Where it is answered it was no fault, and where the answer is lost later, another one.
    assert leaving(KEPT, 99, beyond=beyond).verdict == "it arrives, and the answer comes back"
    later = leaving(KEPT, lost_at + 1, beyond=beyond)
    assert later.problem != UNKNOWN or beyond
    # It is lost before it leaves.
    assert leaving(KEPT, 3, beyond=beyond).problem.code == "LOST-001"
    # What was seen to be translated has left with another address, whatever was predicted.
    assert leaving(KEPT, lost_at, seen="172.31.0.11", beyond=beyond).problem != UNKNOWN


def test_a_translation_that_packets_do_not_show():
    found = leaving(SNAT, 5)
    assert found.problem is not None
    assert (found.problem.code, found.problem.seen) == ("NFT-002", "they leave as from 10.244.1.2")
    assert "notrack" in found.problem.hint
    said = [hop.seen for leg in found.legs for hop in leg.way.hops if hop.what == "SNAT"]
    assert said == ["10.244.1.2 becomes 172.31.0.11; yet eth0 shows 10.244.1.2"]
    assert leaving(SNAT, 5, seen="172.31.0.11").problem.code == "LOST-001"


def changing(
    there: dict[str, str], sources: dict[tuple[str, str], str], end: End, *, kept: Sequence[int] = ()
) -> TraceReport:
    """A trace from pod1 whose nodes are passed as `there` says, with the sources that devices have shown, in turn.

    Probes that `kept` their own source came with it once more to each device that shows both.
    """
    back = Way(hops=hops("out by:cni0"), end="delivered")
    visits: Any = [
        (node.rstrip("'"), {"there": Way(hops=hops(*words.split(", ")), end="sent"), "back": back})
        for node, words in there.items()
    ]
    known = {at: {key: Counter(NUMBERS) for key in words.split()} for at, words in sources.items()}
    for at in (at for at, words in sources.items() if words == BOTH):
        known[at][OWN].update(kept)
    counted = seen_up_to(99, visits, end, sources=known, to=dict.fromkeys(NUMBERS, end.address))
    asked = Asked(source="pod1", target="web", kind="icmp", numbers=NUMBERS)
    return put_together(asked, POD1, end, visits, counted)


OWN, NODES = "10.244.1.2", "172.31.0.12"
BOTH = f"{OWN} {NODES}"


def test_a_pod_that_reaches_itself_shows_each_source_once():
    """What comes back to it passes the same devices again, with another source."""
    there = {"node1": "host end:veth1, from the pod by:cni0, SNAT, out by:cni0"}
    devices = (("pod1", "eth0"), ("node1", "veth1"), ("node1", "cni0"))
    found = changing(there, dict.fromkeys(devices, BOTH), POD1)
    assert (found.well, found.verdict) == (True, "it arrives, and the answer comes back")
    assert found.sources == [
        SourceSeen(place="pod1", device="eth0", address=OWN),
        SourceSeen(place="node1", device="cni0", address=NODES),
    ]
    seen = [hop.seen for hop in found.legs[1].way.hops]
    assert seen == ["", "", "", f", from {NODES}"]
    kept = changing(there, dict.fromkeys(devices, OWN), POD1)
    assert [hop.suspect is not None for hop in kept.legs[1].way.hops if hop.what == "SNAT"] == [True]


def test_a_port_of_another_node_that_leads_back_shows_each_source_once():
    there = {
        "node1": "from the pod by:cni0, out by:eth0",
        "node2": "received by:eth0, SNAT, out by:eth0",
        "node1'": "received by:eth0, out by:cni0, port:veth3",
    }
    own = dict.fromkeys((("pod1", "eth0"), ("node1", "veth1")), OWN)
    both = dict.fromkeys((("node1", "cni0"), ("node1", "eth0"), ("node2", "eth0")), BOTH)
    other = End(node="node1", address="10.244.1.3", pod="pod3", host_end="veth3")
    found = changing(there, own | both | {("node1", "veth3"): NODES, ("pod3", "eth0"): NODES}, other)
    assert [(each.place, each.device, each.address) for each in found.sources] == [
        ("pod1", "eth0", OWN),
        ("node2", "eth0", NODES),
    ]


def test_a_device_that_has_shown_the_old_source_before_breaks_no_translation():
    there = {"node2": "received by:eth0, unwrapped by:flannel.1, SNAT, out by:eth0"}
    sources = {("pod1", "eth0"): OWN, ("node2", "eth0"): BOTH, ("node2", "flannel.1"): OWN}
    found = changing(there, sources, OUTSIDE)
    assert [hop.suspect for leg in found.legs for hop in leg.way.hops if hop.what == "SNAT"] == [None]
    assert [each.address for each in found.sources] == [OWN, NODES]


def test_a_translation_of_some_probes_alone_is_broken():
    """The device is passed once, so it shows both sources because some probes have kept theirs."""
    there = {"node1": "from the pod by:cni0, SNAT, out by:eth0"}
    sources = {("pod1", "eth0"): OWN, ("node1", "cni0"): OWN, ("node1", "eth0"): BOTH}
    found = changing(there, sources, OUTSIDE)
    [suspect] = [hop.suspect for leg in found.legs for hop in leg.way.hops if hop.what == "SNAT"]
    assert suspect is not None
    assert (suspect.code, suspect.seen) == ("NFT-002", f"they leave as from {OWN}")
    assert [each.address for each in found.sources] == [OWN, NODES]


def test_a_translation_of_some_probes_alone_is_broken_where_packets_pass_a_device_twice():
    there = {"node2": "received by:eth0, unwrapped by:flannel.1, SNAT, out by:eth0"}
    sources = {("pod1", "eth0"): OWN, ("node2", "eth0"): BOTH, ("node2", "flannel.1"): OWN}
    found = changing(there, sources, OUTSIDE, kept=NUMBERS[:1])
    [suspect] = [hop.suspect for leg in found.legs for hop in leg.way.hops if hop.what == "SNAT"]
    assert suspect is not None
    assert (suspect.code, suspect.where, suspect.seen) == ("NFT-002", "link eth0", f"they leave as from {OWN}")
    assert [each.address for each in found.sources] == [OWN, NODES]


def test_what_is_said_of_a_probe_and_where_it_comes_from_are_kept():
    found = ProbesSeen()
    wanted = Wanted(kind="icmp", numbers=[7])
    inner = bytes((0x45, *bytes(8), 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)) + marked_request(4, 7)
    error = bytes((0x45, *bytes(8), 1, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1, 3, 4, 0, 0, 0, 0, 5, 120)) + inner
    found.note("node1", "eth0", error, wanted)
    found.note("node2", "eth0", inner, wanted)
    found.note("node2", "eth0", inner, wanted)
    assert (found.told, found.seen) == ({"node1": TooLarge(mtu=1400, by="10.0.0.9")}, {("node2", "eth0", "there"): {7}})
    assert found.sources_at("node2", "eth0", {7}) == ["10.0.0.1"]
    assert found.sources_at("node2", "eth0", {8}) == found.sources_at("node2", "eth1", {7}) == []
