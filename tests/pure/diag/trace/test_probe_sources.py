"""What NAT makes of a probe's source, as it was seen at each device."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.pure.diag.trace.probing import NUMBERS, POD1, following, hops, seen_up_to
from weft.diag.trace.hops import End, Hop, Way
from weft.diag.trace.probe_report import (
    SourceSeen,
    TraceReport,
    tried_lines,
)
from weft.diag.trace.probe_report import tried as put_together
from weft.diag.trace.probes import Kind, ProbesSeen, TooLarge, Wanted
from weft.model.errors import Problem
from weft.wire.icmp import marked_request

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
    what = following(end=end, kind=kind, beyond=beyond, source="pod1", target="outside")
    return put_together(what, visits, counted)


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
    return put_together(following(end=end, source="pod1", target="web"), visits, counted)


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
