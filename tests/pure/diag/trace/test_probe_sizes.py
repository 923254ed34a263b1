"""Large probes: where they are lost, who says so, and how large the largest is that passes."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.pure.diag.trace.probing import IN, KNOWN, NUMBERS, following, hops, seen_up_to
from weft.diag.trace.hops import End, Way
from weft.diag.trace.probe_report import (
    TraceReport,
    passed,
    proved,
    searched,
    tried_lines,
)
from weft.diag.trace.probe_report import tried as put_together
from weft.diag.trace.probes import Kind, ProbesSeen, Sent, TooLarge
from weft.diag.trace.ruled import Ruling
from weft.diag.trace.sized import Sized
from weft.model.errors import Problem


def sized(lost_at: int, known: Any = None, told: dict[str, TooLarge] | None = None, **fields: Any) -> TraceReport:
    """A trace of 1,450 bytes, of which smaller packets have been tried."""
    sent = fields.pop("sent", Sent())
    what = Sized(size=1450, **{"searched": True} | fields)
    counted = seen_up_to(lost_at, known, told=told or {}, sent=sent)
    return put_together(following(), known or KNOWN, counted, what)


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
    unread = put_together(following(), KNOWN, ProbesSeen(unread=9), Sized(size=99))
    assert unread.verdict.endswith("try again; nobody tells pod1 the MTU")


def test_which_passed():
    seen = ProbesSeen(seen={("pod1", "eth0", "back"): {1}, ("pod2", "eth0", "there"): {1, 3}})
    assert passed(following(), NUMBERS, seen) == [True, False, False]
    assert passed(following(kind="udp"), NUMBERS, seen) == [True, True, False]


@pytest.mark.parametrize("kind, where", [("icmp", ("pod1", "eth0", "back")), ("udp", ("pod2", "eth0", "there"))])
def test_the_largest_that_passes_is_searched_by_what_is_seen_at_both_ends(kind: Kind, where: Any):
    def count(sizes: Sequence[int]) -> tuple[list[int], ProbesSeen]:
        numbers = list(range(len(sizes)))
        return numbers, ProbesSeen(seen={where: {each for each in numbers if sizes[each] <= 1350}})

    found = searched(Sized(size=1450), following(kind=kind), count)
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

    found = proved(following(size=size), KNOWN, seen_up_to(5), count=count, look_again=look_again)
    assert looked == looks
    assert ("the packet is dropped on node1" in found.verdict) == bool(looks)


def test_where_all_is_well_nothing_more_is_sent_or_looked_at():
    def fails(*_: Any) -> Any:
        raise AssertionError("there is no need")

    seen = seen_up_to(99)
    found = proved(following(size=1450), KNOWN, seen, count=fails, look_again=fails)
    assert (found.well, found.sized) == (True, Sized(size=1450))
    answered = ProbesSeen(seen={key: at for key, at in seen.seen.items() if key[0] != "pod2"})
    far = following(end=End(node="far", address="192.0.2.9"), beyond="far", size=1450)
    assert proved(far, KNOWN, answered, count=fails, look_again=fails).well


def test_where_a_rule_is_known_to_drop_probes_neighbours_are_not_looked_at_again():
    def look_again(*_: Any) -> Any:
        raise AssertionError("there is no need")

    seen = seen_up_to(5, ruled={"node1": [Ruling(family="netdev", table="x", chain="out", handle=4, count=3)]})
    found = proved(following(), KNOWN, seen, count=look_again, look_again=look_again)
    assert (found.well, found.ruling) == (False, seen.ruled["node1"][0])


def test_nothing_is_searched_without_a_size_nor_by_datagrams_to_where_nobody_looks():
    def count(_: Sequence[int]) -> tuple[list[int], ProbesSeen]:
        raise AssertionError("something is sent")

    assert searched(None, following(kind="udp"), count) is None
    assert searched(Sized(size=1450), following(kind="udp", beyond="far"), count) == Sized(size=1450)
