"""What failures have in common, in words and with the reason."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.checks import Sent, tried
from tests.pure.reach import reached, reaches
from weft.diag.check.causes import Cause, Place, _Candidate, _cheapest, causes, trips_of
from weft.diag.check.evidence import Evidence, concerned, reason
from weft.diag.check.judging import Attempt, described, judged, made, measured, tried_again
from weft.diag.check.report import conclusion, sentence
from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import FAULTS, EndpointReport, Outcome, Trial, Tried
from weft.model.errors import Problem
from weft.model.value import replace


def is_large(sent: Sent) -> bool:
    return BY_NAME[sent.trial.scenario].size == "mtu"


def is_forwarded_by_node3(sent: Sent) -> bool:
    """A packet of pods that node3 forwards, and that is no answer: rules let those pass."""
    trial = sent.trial
    between_pods = trial.scenario.startswith("pod-pod")
    passes = "node3" in (sent.start, sent.end) and (
        between_pods or (sent.crosses and "node-node" not in trial.scenario)
    )
    return passes and not sent.back and "node3" not in (trial.source, trial.target)


# Losses as faults of a lab have them, and what is concluded.
LOSSES = {
    "nothing of the pod network reaches node1": (
        lambda sent: sent.way == "overlay" and sent.crosses and sent.end == "node1",
        "every packet through the pod network from others to node1 is lost",
    ),
    "node2 is deaf": (
        lambda sent: sent.crosses and sent.end == "node2",
        "every packet from others to node2 is lost",
    ),
    "node2 is dumb": (
        lambda sent: sent.crosses and sent.start == "node2",
        "every packet from node2 to others is lost",
    ),
    "node3 forwards nothing": (is_forwarded_by_node3, "every lost packet is from or to node3"),
    "node1 and node2 are parted": (
        lambda sent: {sent.start, sent.end} == {"node1", "node2"},
        "every packet between node1 and node2 is lost",
    ),
    "one direction of one pair": (
        lambda sent: (sent.start, sent.end) == ("node3", "node2"),
        "every packet from node3 to node2 is lost",
    ),
    "a narrow way between two": (
        lambda sent: is_large(sent) and {sent.start, sent.end} == {"node1", "node3"},
        "every packet of 1450 bytes between node1 and node3 is lost",
    ),
    "IPv6 between nodes' addresses": (
        lambda sent: sent.trial.family == 6 and sent.way == "underlay",
        "every IPv6 packet between addresses of nodes is lost",
    ),
    "UDP": (lambda sent: sent.trial.protocol == "udp", "every UDP packet is lost"),
    "TCP of a node": (
        lambda sent: sent.trial.protocol == "tcp" and sent.crosses and "node2" in (sent.start, sent.end),
        "every TCP packet between node2 and others is lost",
    ),
    "everything": (lambda _: True, "every packet is lost"),
    "two nodes of five, of different kinds": (
        lambda sent: sent.crosses and (sent.end == "node1" or (sent.end == "node4" and sent.trial.protocol == "icmp")),
        "every packet from others to node1 is lost; every ICMP packet from others to node4 is lost",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_a_cause_in_common(name: str):
    loss, words = LOSSES[name]
    everything = tried(loss, families=(4, 6), nodes=5 if "five" in name else 3)
    assert conclusion(everything, causes(everything, "lost"), []) == words


def test_without_losses_there_is_no_cause():
    everything = tried(lambda _: False)
    assert [cause for fault in FAULTS for cause in causes(everything, fault)] == []
    assert conclusion(everything, [], []) == "everything reaches everything: 138 trials, and none failed"


@pytest.mark.parametrize(
    "fault, outcome, words",
    [
        (
            "translated",
            Outcome(answered=1, own="a", seen="b"),
            "every packet from node1 to others arrives from another address than its sender's",
        ),
        ("unseen", Outcome(answered=1, own="a"), "answered by another than its target"),
        ("unrefused", Outcome(answered=0), 'vanish: no "fragmentation needed" comes back'),
    ],
)
def test_other_faults_have_causes_too(fault: str, outcome: Outcome, words: str):
    everything = [
        replace(each, outcome=outcome, fault=fault)
        if each.trial.from_node == "node1" != each.trial.to_node
        and (BY_NAME[each.trial.scenario].size == "more") == (fault == "unrefused")
        and (BY_NAME[each.trial.scenario].forbids_nat or fault != "translated")  # what others see is not looked at
        else each
        for each in tried(lambda _: False)
    ]
    [cause] = causes(everything, fault)
    assert (cause.place, cause.passed) == (Place(kind="from", nodes=("node1",)), 0)
    assert words in sentence(cause, alone=True)
    assert causes(everything, "lost") == []


def to_web(scenario: str, source: str, node: str = "", **fields: object) -> Tried:
    """A trial to a Service of pods on node1 and node2, answered by the one on node1 unless it failed."""
    behind = (
        EndpointReport(pod="pod1", node="node1", address="a"),
        EndpointReport(pod="pod2", node="node2", address="b"),
    )
    trial = Trial(
        scenario=scenario,
        source=source,
        target="web",
        from_node=source.replace("pod", "node"),
        to_node=node,
        family=4,
        protocol="udp",
        address="c",
        behind=behind,
    )
    lost = Outcome(answered=0)
    outcome = fields.get("outcome", Outcome(answered=1, seen="a", at="pod1") if not fields else lost)
    return Tried(trial=trial, outcome=outcome, fault="lost" if fields else "")  # type: ignore[arg-type]


def test_services_that_fail_alone_are_named_as_the_way():
    assert to_web("pod-service", "pod1").trial.ends == ("pod1", "web")
    lost = [to_web("pod-service", f"pod{number}", failed=True) for number in (1, 2, 3)]
    everything = [*tried(lambda _: False), *lost]
    assert conclusion(everything, causes(everything, "lost"), []) == "every packet through Services is lost"


INSIDE = ("node1", "node1")


@pytest.mark.parametrize(
    "one, trips",
    [
        (to_web("pod-service", "pod3"), [("", (("node3", "node1"),)), ("back", (("node1", "node3"),))]),
        (
            to_web("outside-node-port", "outside", "node2"),
            [
                ("", (("outside", "node2"),)),
                ("", (("node2", "node1"),)),
                ("back", (("node1", "node2"),)),
                ("back", (("node2", "outside"),)),
            ],
        ),
        (
            to_web("pod-service", "pod1", failed=True),
            [("failed", (INSIDE,), (("node1", "node2"),))],
        ),
        (
            to_web("pod-service", "pod3", outcome=Outcome(answered=0, seen="a", at="pod2")),
            [("", (("node3", "node2"),)), ("failed back", (("node2", "node3"),))],
        ),
        # A program of a pod's own has answered, and it is not known which.
        (
            replace(to_web("pod-service", "pod3"), outcome=Outcome(answered=1, theirs=True)),
            [("", (("node3", "node1"),), (("node3", "node2"),))],
        ),
    ],
)
def test_a_packet_to_a_service_leads_to_one_of_its_pods(one: Tried, trips: list):
    found = list(trips_of(one, "lost"))
    said = [" ".join(["failed"] * trip.failed + ["back"] * trip.back) for trip in found]
    assert [(words, *trip.paths) for words, trip in zip(said, found, strict=True)] == trips


def test_a_node_whose_rules_for_services_are_gone_is_found():
    lost = [to_web("pod-service", "pod3", failed=True), to_web("outside-node-port", "outside", "node3", failed=True)]
    fine = [to_web("pod-service", f"pod{node}") for node in (1, 2)]
    fine += [to_web("outside-node-port", "outside", f"node{node}") for node in (1, 2)]
    [found] = causes([*tried(lambda _: False), *lost, *fine], "lost")
    assert (found.place, found.failed) == (Place(kind="node", nodes=("node3",)), 2)
    assert concerned([found]) == ["node3"]
    assert "outside" not in concerned([replace(found, place=Place(kind="anywhere"))])


NODES = ("node1", "node2", "node3")
PLACES = st.one_of(
    st.just(Place(kind="anywhere")),
    st.builds(
        lambda kind, node: Place(kind=kind, nodes=(node,)),
        st.sampled_from(("node", "others", "to", "from")),
        st.sampled_from(NODES),
    ),
    st.permutations(NODES).map(lambda nodes: Place(kind="direction", nodes=tuple(nodes[:2]))),
    st.permutations(NODES).map(lambda nodes: Place(kind="pair", nodes=tuple(sorted(nodes[:2])))),
)
TRAITS = st.fixed_dictionaries(
    {},
    optional={
        "family": st.sampled_from(("4", "6")),
        "protocol": st.sampled_from(("icmp", "udp", "tcp")),
        "size": st.just("mtu"),
        "way": st.sampled_from(("inside", "overlay", "underlay")),
    },
).map(lambda traits: tuple(traits.items()))
PLANTED = st.tuples(PLACES, TRAITS)


def leads_by(sent: Sent, place: Place) -> bool:
    ends = sent.start, sent.end
    return {
        "anywhere": True,
        "node": place.nodes[:1] in ((sent.start,), (sent.end,)),
        "others": sent.crosses and place.nodes[:1] in ((sent.start,), (sent.end,)),
        "from": sent.crosses and place.nodes[:1] == (sent.start,),
        "to": sent.crosses and place.nodes[:1] == (sent.end,),
        "direction": place.nodes == ends,
        "pair": set(place.nodes) == set(ends),
    }[place.kind]


def planted(*names: tuple[Place, tuple[tuple[str, str], ...]]) -> list[Tried]:
    """A check of a lab in which all trips are lost that match one of these."""

    def loss(sent: Sent) -> bool:
        trial = sent.trial
        size = BY_NAME[trial.scenario].size
        traits = {("family", str(trial.family)), ("protocol", trial.protocol), ("way", sent.way), ("size", size)}
        return any(leads_by(sent, place) and set(wanted) <= traits for place, wanted in names)

    return tried(loss, families=(4, 6))


def failed_legs(everything: list[Tried]) -> int:
    return sum(trip.failed for each in everything for trip in trips_of(each, "lost"))


@pytest.mark.long
@reaches(lost=0.3)
@settings(max_examples=60)
@given(PLANTED)
def test_one_cause_is_found_as_one(name):
    everything = planted(name)
    found = causes(everything, "lost")
    assert sum(cause.failed for cause in found) == failed_legs(everything)
    assert len(found) == (1 if failed_legs(everything) else 0)
    if found:
        reached("lost")


@pytest.mark.long
@reaches(lost=0.5)
@settings(max_examples=60)
@given(PLANTED, PLANTED)
def test_two_causes_are_never_taken_for_more(one, other):
    found = causes(planted(one, other), "lost")
    assert len(found) <= 2
    if found:
        reached("lost")


@settings(max_examples=40)
@given(st.sets(st.integers(0, 131), max_size=20))
def test_whatever_fails_is_explained_and_no_cause_is_superfluous(chosen):
    everything = [each for each in tried(lambda _: False) if BY_NAME[each.trial.scenario].size != "more"]
    for number in chosen:
        everything[number] = replace(everything[number], outcome=Outcome(answered=0), fault="lost")
    found = causes(everything, "lost")
    explained = [{id(each) for each in cause.examples} for cause in found]
    assert set().union(*explained) == {id(each) for each in everything if each.fault}
    for number, own in enumerate(explained):
        assert own - set().union(*explained[:number], *explained[number + 1 :])


def cause(kind: str = "to", nodes: tuple[str, ...] = ("node1",), traits: tuple = ()) -> Cause:
    loss, _ = LOSSES["nothing of the pod network reaches node1"]
    [found] = causes(tried(loss), "lost")
    return replace(found, place=Place(kind=kind, nodes=nodes), traits=traits)


def piece(node: str, by: str, code: str) -> Evidence:
    return Evidence(node=node, by=by, problem=Problem(code=code, where="w", seen="s"))


ORDER = [
    piece("node1", "doctor", "FW-001"),  # the doctor's word for what the trace met
    piece("node1", "trace", "FW-002"),
    piece("node1", "doctor", "KERN-002"),
    piece("node2", "trace", "ROUTE-001"),
    piece("node1", "doctor", "REACH-001"),
    piece("node2", "doctor", "LEASE-005"),
    replace(piece("node1", "doctor", "BRIDGE-002"), weight="warning"),
]


@pytest.mark.parametrize("best", range(len(ORDER)))
def test_what_was_seen_comes_before_what_was_concluded(best: int):
    rest = [*reversed(ORDER[best:]), piece("node1", "doctor", "CNI-001"), piece("node9", "trace", "FW-002")]
    if best == 1:
        rest.append(piece("node2", "doctor", "FW-002"))
    assert reason(cause(), rest) == ORDER[best]


def test_other_faults_than_losses_have_no_reason():
    assert reason(replace(cause(), fault="translated"), ORDER) is None


def test_a_narrow_way_explains_only_what_is_lost_for_its_size():
    narrow = piece("node1", "doctor", "MTU-001")
    assert reason(cause(), [narrow]) is None
    assert reason(cause(traits=(("size", "mtu"),)), [narrow]) == narrow


def test_the_largest_size_that_arrives_is_measured():
    def attempt(wanted: Sequence[Trial]) -> list[Outcome]:
        return [Outcome(answered=int(trial.size <= 1350), own="a", seen="a") for trial in wanted]

    loss, _ = LOSSES["a narrow way between two"]
    [found] = causes(tried(loss), "lost")
    assert measured(found, attempt).limit == 1350
    assert measured(cause(), attempt) == cause()


def test_a_port_without_hairpin_explains_only_what_pods_send_themselves():
    hairpin = piece("node1", "doctor", "BRIDGE-003")
    assert reason(cause(), [hairpin]) is None
    [loss, *_] = cause().examples
    for scenario, why in {"pod-itself": None, "pod-service-own": hairpin, "pod-host-port-own": hairpin}.items():
        example = replace(loss, trial=replace(loss.trial, scenario=scenario))
        assert reason(replace(cause(), examples=(example,)), [hairpin]) == why


def test_the_nodes_that_a_cause_names_are_examined_or_all_that_it_touches():
    assert concerned([cause(), cause("direction", ("node3", "node2"))]) == ["node1", "node3", "node2"]
    assert concerned([cause(), cause("anywhere", ())]) == ["node1", "node2", "node3"]


@pytest.mark.parametrize(
    "given_, words, several",
    [
        ({}, "every lost packet is from others to node1", "packets from others to node1 were lost"),
        ({"kind": "node"}, "every lost packet is from or to node1", "packets from or to node1 were lost"),
        (
            {"kind": "others"},
            "every lost packet is between node1 and others",
            "packets between node1 and others were lost",
        ),
        ({"kind": "anywhere", "nodes": ()}, "28 packets were lost, with no node in common", "packets were lost"),
        (
            {"kind": "pair", "nodes": ("node1", "node2")},
            "every lost packet is between node1 and node2",
            "packets between node1 and node2 were lost",
        ),
        (
            {"kind": "others", "traits": (("family", "6"), ("protocol", "udp"), ("size", "mtu"), ("way", "inside"))},
            "every lost packet is one of the IPv6 UDP packets of 1450 bytes inside a node between node1 and others",
            "IPv6 UDP packets of 1450 bytes inside a node between node1 and others were lost",
        ),
    ],
)
def test_what_not_all_of_its_kind_suffer_is_said_so(given_: dict, words: str, several: str):
    one = replace(cause(**given_), passed=3)
    one = replace(one, examples=tuple(replace(e, trial=replace(e.trial, size=1450)) for e in one.examples))
    assert sentence(one, alone=True) == words
    assert sentence(one, alone=False) == f"{one.failed} {several}"
    once = several.replace("packets", "packet").replace("were", "was")
    assert sentence(replace(one, failed=1), alone=False) == f"1 {once}"


def test_what_passes_now_and_then_is_not_all_lost():
    """Whatever was lost when everything was tried: if one of the same passes when it is tried again, some are."""
    one = cause(traits=(("protocol", "tcp"),))
    assert not one.passed

    def attempt(some: int) -> Attempt:
        return lambda wanted: [Outcome(answered=int(number < some)) for number in range(len(wanted))]

    assert tried_again(one, attempt(0)) == one
    assert tried_again(one, attempt(1)).partly
    # Of few each is tried several times: by chance all of two may be lost once more.
    few = replace(one, examples=one.examples[:2])
    assert tried_again(
        few, lambda wanted: [Outcome(answered=int(number == 11)) for number in range(len(wanted))]
    ).partly
    assert sentence(tried_again(one, attempt(2)), alone=True) == (
        "some TCP packets from others to node1 were lost, others like them were not"
    )
    flows = replace(one, examples=tuple(replace(e, outcome=Outcome(answered=1)) for e in one.examples))
    assert tried_again(flows, attempt(0)).partly
    # Of these it is known already, or nothing is to be known.
    assert not tried_again(replace(one, passed=1), attempt(9)).partly
    assert not tried_again(replace(one, fault="narrow"), attempt(9)).partly


def test_what_a_pod_s_own_link_is_too_narrow_for_is_made_again_as_large_as_that_may_be():
    trial = replace(cause().examples[0].trial, scenario="pod-pod-mtu", size=1500)
    own, router = Outcome(answered=0, refused=1450), Outcome(answered=0, refused=1450, by="10.0.0.1")
    asked = list[int]()

    def attempt(wanted: Sequence[Trial]) -> list[Outcome]:
        asked.extend(each.size for each in wanted)
        return [Outcome(answered=1, own="a", seen="a") if each.size < 1500 else own for each in wanted]

    trials, outcomes = made([trial, replace(trial, scenario="pod-pod-more", size=1501)], attempt)
    assert ([each.size for each in trials], asked) == ([1450, 1501], [1500, 1501, 1450])
    assert not [each.fault for each in judged(trials, outcomes) if each.fault]
    arrived = Outcome(answered=0, own="a", seen="a")
    [found] = judged([replace(trial, scenario="pod-pod-more", size=1501)], [arrived])
    assert described(found).endswith("it arrived, and the answer, as large, was lost: no error said why")
    # A router's word is about the way.
    trials, outcomes = made([trial], lambda wanted: [router for _ in wanted])
    assert [each.size for each in trials] == [1500]
    [found] = judged(trials, outcomes)
    assert found.fault == "narrow"
    assert described(found).endswith("refused by 10.0.0.1 with an MTU of 1450: smaller packets pass")


@pytest.mark.parametrize(
    "outcome, words",
    [
        (Outcome(answered=0), 'vanish: no "fragmentation needed" comes back'),
        (Outcome(answered=0, refused=1300, by="a"), "are refused with an MTU of 1300, which is not that of pods"),
        (Outcome(answered=1), "arrive, though pods' MTU is smaller"),
    ],
)
def test_what_becomes_of_too_large_packets_is_said_and_explained_by_an_mtu(outcome: Outcome, words: str):
    one = cause("direction", ("node1", "node2"))
    one = replace(one, fault="unrefused", examples=tuple(replace(e, outcome=outcome) for e in one.examples))
    assert sentence(one, alone=True) == f"packets that are too large from node1 to node2 {words}"
    narrow = piece("node1", "doctor", "MTU-001")
    for fault in ("unrefused", "narrow"):
        assert reason(replace(one, fault=fault), [piece("node2", "doctor", "FW-002"), narrow]) == narrow


def test_the_conclusion_names_reason_node_and_measured_size():
    large = replace(cause(traits=(("size", "mtu"),)), limit=1350)
    narrow = piece("node1", "doctor", "MTU-001")
    assert conclusion([], [large], [narrow]) == (
        "every packet larger than 1350 bytes from others to node1 is lost: MTU-001 w: s"
    )
    pair = cause("pair", ("node1", "node2"))
    assert conclusion([], [pair], [piece("node2", "trace", "FW-002")]) == (
        "every packet between node1 and node2 is lost: FW-002 on node2, w: s"
    )


def candidate(explains: int, cost: float) -> _Candidate:
    return _Candidate(
        place=Place(kind="node", nodes=(bin(explains),)), traits=(), explains=explains, passed=0, cost=cost
    )


@pytest.mark.parametrize(
    "offered, chosen",
    [
        ([(0b011, 1.2), (0b100, 2.5), (0b111, 3.0)], [0b111]),  # the first two look cheaper for each trip
        ([(0b111, 2.0), (0b1001, 1.4), (0b0110, 1.5), (0b1000, 4.0)], [0b1001, 0b0110]),
        ([(0b0001, 1.0), (0b0010, 1.0), (0b0100, 1.0), (0b1111, 9.0), (0b1000, 1.0)], [1, 2, 4, 8]),
        # The first that is taken turns out to explain nothing that the others do not.
        ([(0b000110, 1.0), (0b000011, 1.2), (0b001100, 1.2), (0b110000, 1.2)], [0b000011, 0b001100, 0b110000]),
    ],
    ids=["one", "two", "each its own", "three"],
)
def test_the_cheapest_set_of_causes_is_taken(offered, chosen):
    candidates = sorted((candidate(*each) for each in offered), key=lambda each: each.order)
    everything = max(explains for explains, _ in offered).bit_length()
    assert sorted(each.explains for each in _cheapest(candidates, everything)) == sorted(chosen)
