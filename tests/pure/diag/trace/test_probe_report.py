"""The legs of a trace, and where probes that were counted at its devices were lost."""

import struct
from typing import Any

import pytest

from tests.pure.diag.trace.probing import FIRST, IN, KNOWN, NUMBERS, OUT, POD1, POD2, following, hops
from weft.diag.trace.grown import by_probes, difference, queues_in, telling
from weft.diag.trace.hops import LOOPBACK, End, Hop, Leg, Way, counted, legs
from weft.diag.trace.outcome import Answers, Outcome, outcome
from weft.diag.trace.points import parted
from weft.diag.trace.probe_report import (
    TraceReport,
    tried_diagram,
    tried_lines,
)
from weft.diag.trace.probe_report import _came_back as came_back
from weft.diag.trace.probe_report import tried as put_together
from weft.diag.trace.probes import Kind, ProbesSeen, Sent, Wanted
from weft.model.errors import Problem
from weft.model.value import replace
from weft.wire.icmp import marked_request

NODE2 = End(node="node2", address="172.31.0.12")


DROPPED = Problem(code="FW-002", where="forward", seen="dropped by a rule")


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
        (4, "LOST-001 node1: flannel.1 of node1 took 3, eth0 sent 0"),
        (5, "REACH-001 node1 to node2: eth0 of node1 sent 3, eth0 of node2 received 0"),
        (6, "LOST-001 node2: eth0 of node2 received 3, flannel.1 received 0"),
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
    for count, said in (
        (3, code),
        (9, code),
        (2, "REACH-001"),
        (10, "REACH-001"),
    ):  # two are not three, and ten are others'
        result = outcome(found, Answers(sent=3, reached=0, seen=ProbesSeen(grown={place: {counter: count}})), due=True)
        assert result.problem is not None
        assert result.problem.code == said
        assert (counter in result.verdict) == (said != "REACH-001")


def test_what_grows_without_probes_is_not_theirs():
    assert by_probes({"a": 9, "b": 3, "c": 4}, {"a": 3, "c": 2}, times=3.0) == {"b": 3}
    xfrm, queue, route = "XfrmInNoPols", "Queue.tbf.eth0", "IpExt.InNoRoutes"
    grown = difference({xfrm: 1, queue: 4}, {xfrm: 1, queue: 6, route: 2, "Ip.InReceives": 9})
    assert grown == {queue: 2, route: 2, "Ip.InReceives": 9}
    assert telling(grown) == {queue: 2, route: 2}
    assert queues_in(grown) == {queue: 2}


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
    found = put_together(following(numbers=numbers), KNOWN, ProbesSeen(seen=counted_at))
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
    assert tried(0, 3, known=known).verdict.startswith("LOST-001 node1: cni0 of node1 received 3")
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
    unread = outcome(lost, Answers(sent=3, reached=1, seen=ProbesSeen(unread=70)), due=True)
    assert unread.verdict.startswith("1 of 3 answers came back; 70 packets were not read")
    assert (unread.well, unread.problem) == (False, None)
    refusing = ProbesSeen(sent=Sent(refusal="Permission denied"))
    kernel = outcome(lost, Answers(sent=3, reached=0, seen=refusing), due=True)
    assert kernel.verdict == "ROUTE-003 pod1: pod1 sent 0 by eth0: its kernel says 'Permission denied'"


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
        return put_together(following(end=end, kind=kind, beyond="192.0.2.2"), visits, counted)

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
    seen = {("pod1", "eth0", "there"): {1, 3}, ("pod1", "eth0", "back"): {1, 3}}
    service = following(replace(POD1, address="10.96.0.1"), POD1, kind="tcp", numbers=[1, 3])
    refused = put_together(service, visits, ProbesSeen(seen=seen, to={}))
    assert (refused.reached, refused.tried) == (0, 2)
    came = put_together(service, visits, ProbesSeen(seen=seen, to={1: POD1.address, 3: "10.244.9.9"}))
    assert (came.reached, came.tried, came.elsewhere) == (1, 1, 1)


def test_an_answer_that_is_still_wrapped_has_not_come_back_to_a_node():
    node = End(node="node1", address="10.244.1.0")
    own = Way(hops=hops("received by:eth0", "unwrapped by:flannel.1", "delivered"), end="delivered")
    back = [Leg(node="node1", direction="back", way=own)]
    wrapped = {("node1", "eth0", "back"): set(NUMBERS)}
    assert came_back(node, back, ProbesSeen(seen=wrapped)) == set()
    unwrapped = wrapped | {("node1", "flannel.1", "back"): set(NUMBERS[:2])}
    assert came_back(node, back, ProbesSeen(seen=unwrapped)) == set(NUMBERS[:2])


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
