"""Which trials a check of a lab consists of, and how each is judged."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest
from click import Command

from tests.pure.checks import MTU, report, service, tried
from weft.diag import sizes
from weft.diag.check.causes import causes
from weft.diag.check.judging import described, judged, untried
from weft.diag.check.scenarios import BY_NAME, CONCERNS, DEMANDS, SCENARIOS
from weft.diag.check.trial import Outcome, Trial
from weft.diag.trace.command import trace
from weft.lab.commands.trace import trace as lab_trace
from weft.lab.report import LabReport
from weft.lab.spec import HostPort
from weft.lab.trials import trials
from weft.model.value import replace


def test_every_demand_of_the_model_and_what_pods_do_among_themselves_has_scenarios():
    assert len(BY_NAME) == len(SCENARIOS)
    assert {demand for scenario in SCENARIOS for demand in scenario.demands} == set(DEMANDS)
    assert {scenario.concern for scenario in SCENARIOS} == set(CONCERNS)


# Of three nodes with two pods each, by one family: pairs, times protocols.
QUICK = {
    "pod-loopback": 3 * 3,
    "pod-itself": 3 * 3,
    "pod-pod-same": 6 * 3,
    "pod-pod-other": 6 * 3,
    "pod-pod-mtu": 6,
    "pod-pod-more": 6,
    "node-pod-same": 3 * 3,
    "node-pod-other": 6 * 3,
    "pod-node-same": 3 * 3,
    "pod-node-other": 6 * 3,
    "node-node": 6 * 3,
}
FULL = {
    "pod-loopback": 6 * 3,
    "pod-itself": 6 * 3,
    "pod-pod-same": 6 * 3,
    "pod-pod-other": 24 * 3,
    "pod-pod-mtu": 24,
    "pod-pod-more": 24,
    "pod-pod-many": 24 * 2,
    "node-pod-same": 6 * 3,
    "node-pod-other": 12 * 3,
    "pod-node-same": 6 * 3,
    "pod-node-other": 12 * 3,
    "node-node": 6 * 3,
}


def test_what_leaves_a_pod_for_a_known_place_can_be_traced():
    doors = ("service", "node-port", "host-port")
    alone = {scenario.name for scenario in SCENARIOS if not scenario.between_ends and scenario.target not in doors}
    assert alone == {"pod-loopback", "pod-itself"}
    assert not any(scenario.between_ends for scenario in SCENARIOS if scenario.target in doors)


@pytest.mark.parametrize("quick, counts", [(True, QUICK), (False, FULL)])
def test_everything_is_tried_once(quick: bool, counts: dict[str, int]):
    wanted = trials(report(), quick=quick)
    assert Counter(trial.scenario for trial in wanted) == counts
    assert len({(t.source, t.target, t.scenario, t.protocol) for t in wanted}) == len(wanted)
    both = trials(report(families=(4, 6)), quick=quick)
    assert Counter(trial.family for trial in both) == {4: len(wanted), 6: len(wanted)}
    assert all((":" in trial.address) == (trial.family == 6) for trial in both)


def test_a_trial_says_from_where_to_where():
    wanted = trials(report(nodes=2, pods=1, mtu=(1450, 1400)), quick=True)
    [there, _] = [trial for trial in wanted if trial.scenario == "pod-pod-mtu"]
    assert there == Trial(
        scenario="pod-pod-mtu",
        source="pod1-1",
        target="pod2-1",
        from_node="node1",
        to_node="node2",
        family=4,
        protocol="udp",
        address="10.244.2.2",
        size=1400,
    )
    sizes = {trial.scenario: trial.size for trial in wanted}
    assert (sizes["pod-pod-more"], sizes["pod-pod-other"]) == (1401, 0)
    assert {trial.address for trial in wanted if trial.scenario == "pod-loopback"} == {"127.0.0.1"}
    assert {t.address for t in wanted if t.scenario == "node-node"} == {"172.31.0.11", "172.31.0.12"}


# Of two nodes with two pods each, and a Service of one pod of each, by one family; in a quick and in a full check.
TO_SERVICES = {
    "pod-service": (2, 4),
    "pod-service-own": (2, 2),
    "node-service": (2, 2),
    "pod-node-port": (4, 8),
    "outside-node-port": (2, 2),
}


@pytest.mark.parametrize("quick", [True, False])
def test_services_are_tried_from_everywhere(quick: bool):
    lab = report(nodes=2)
    lab = msgspec.structs.replace(lab, services=[service(lab, "pod1-2", "pod2-1")])
    wanted = [trial for trial in trials(lab, quick=quick) if trial.behind]
    assert Counter(trial.scenario for trial in wanted) == {name: n[not quick] for name, n in TO_SERVICES.items()}
    own = [trial.source for trial in wanted if trial.scenario == "pod-service-own"]
    assert own == ["pod1-2", "pod2-1"]
    first = next(trial for trial in wanted if trial.scenario == "outside-node-port")
    assert first == Trial(
        scenario="outside-node-port",
        source="outside",
        target="web",
        from_node="outside",
        to_node="node1",
        family=4,
        protocol="tcp",
        address="172.31.0.11",
        port=30080,
        listens=8080,
        behind=tuple(lab.services[0].endpoints),
    )


@pytest.mark.parametrize(
    "pods, fields, scenarios",
    [
        ((), {}, set()),
        (("pod1-1",), {"node_port": 0}, {"pod-service", "pod-service-own", "node-service"}),
        (("pod1-1",), {"protocol": "UDP"}, set(TO_SERVICES)),
    ],
)
def test_a_service_is_tried_as_far_as_it_leads_anywhere(pods, fields, scenarios):
    lab = report(nodes=2, families=(4, 6))
    lab = msgspec.structs.replace(lab, services=[service(lab, *pods, **fields)])
    wanted = [trial for trial in trials(lab, quick=True) if trial.target == "web"]
    assert {trial.scenario for trial in wanted} == scenarios
    assert {trial.protocol for trial in wanted} <= {"udp" if fields.get("protocol") else "tcp"}
    for trial in wanted:
        assert {":" in trial.address, *(":" in each.address for each in trial.behind)} == {trial.family == 6}
        assert trial.port == (80 if trial.to_node == "" else 30080)


def with_ports(lab: LabReport, pod: str, *ports: HostPort) -> LabReport:
    pods = [msgspec.structs.replace(each, ports=ports) if each.name == pod else each for each in lab.pods]
    return msgspec.structs.replace(lab, pods=pods)


@pytest.mark.parametrize("quick", [True, False])
def test_ports_of_a_pod_s_node_are_tried_from_everywhere(quick: bool):
    ports = HostPort(outside=8080, inside=80), HostPort(outside=53, inside=5353, protocol="UDP")
    wanted = [trial for trial in trials(with_ports(report(nodes=2), "pod2-2", *ports), quick=quick) if trial.behind]
    others = 2 if quick else 3
    assert Counter((trial.scenario, trial.protocol, trial.port, trial.listens) for trial in wanted) == {
        (scenario, *port): count
        for scenario, count in (("pod-host-port", others), ("pod-host-port-own", 1), ("outside-host-port", 1))
        for port in (("tcp", 8080, 80), ("udp", 53, 5353))
    }
    assert {(trial.target, trial.to_node, trial.address) for trial in wanted} == {("pod2-2", "node2", "172.31.0.12")}
    assert {trial.source for trial in wanted if trial.scenario == "pod-host-port-own"} == {"pod2-2"}
    both = with_ports(report(nodes=2, families=(4, 6)), "pod2-2", *ports)
    both.pods[-1].addresses.pop()
    assert {trial.family for trial in trials(both, quick=quick) if trial.behind} == {4}


def test_a_pod_that_lacks_a_family_is_not_asked_by_it():
    lab = report(nodes=2, pods=1, families=(4, 6))
    lab.pods[0].addresses.pop()
    by_six = {(t.source, t.target) for t in trials(lab, quick=True) if t.family == 6}
    assert by_six
    assert not any("pod1-1" in pair for pair in by_six)


def test_nodes_alone_try_each_other():
    assert {trial.scenario for trial in trials(report(pods=0), quick=False)} == {"node-node"}
    assert trials(report(nodes=1, pods=0), quick=False) == []


def trial(scenario: str, **fields: object) -> Trial:
    [first, *_] = [each for each in trials(report(families=(4, 6)), quick=False) if each.scenario == scenario]
    return replace(first, **fields)


OTHER = trial("pod-pod-other", protocol="udp")
TO_WEB = replace(trial("pod-pod-other"), scenario="pod-service", target="web", address="10.96.0.11", port=80)
TO_WEB = replace(TO_WEB, protocol="tcp", to_node="", listens=8080)
WAY = "pod1-1 -> pod2-1 (10.244.2.2), UDP by IPv4: "


@pytest.mark.parametrize(
    "asked, outcome, fault, words",
    [
        (OTHER, Outcome(answered=1, own="a", seen="a"), "", f"{WAY}as it should be"),
        (OTHER, Outcome(answered=0, own="a"), "lost", f"{WAY}nothing arrived"),
        (OTHER, Outcome(answered=0, own="a", error="No route"), "lost", f"{WAY}nothing arrived; No route"),
        (
            OTHER,
            Outcome(answered=0, own="a", seen="a"),
            "lost",
            f"{WAY}it arrived from a, and no answer came back",
        ),
        (
            OTHER,
            Outcome(answered=1, own="a"),
            "unseen",
            f"{WAY}answered, and not by pod2-1, which saw nothing",
        ),
        (
            OTHER,
            Outcome(answered=1, own="a", seen="b"),
            "translated",
            f"{WAY}seen there as b, and the source is a: translated on the way",
        ),
        # What leaves the pod network may be translated.
        (
            trial("pod-node-other", protocol="tcp"),
            Outcome(answered=1, own="a", seen="b"),
            "",
            "pod1-1 -> node2 (172.31.0.12), TCP by IPv4: as it should be",
        ),
        (
            trial("pod-pod-mtu"),
            Outcome(answered=0, own="a", refused=1400, by="10.0.0.1"),
            "narrow",
            "UDP of 1450 bytes by IPv4: refused by 10.0.0.1 with an MTU of 1400: smaller packets pass",
        ),
        (trial("pod-pod-more"), Outcome(answered=0, refused=MTU), "", None),
        (trial("pod-pod-more"), Outcome(answered=1, seen="a"), "unrefused", "it was answered, so it was not refused"),
        (
            trial("pod-pod-more"),
            Outcome(answered=0, refused=1500),
            "unrefused",
            "refused by its own kernel with an MTU of 1500, and that of pods is 1450",
        ),
        (trial("pod-pod-more"), Outcome(answered=0), "unrefused", "lost, and no error said why"),
        (
            trial("pod-pod-more"),
            Outcome(answered=0, error="Operation not permitted"),
            "unrefused",
            "lost, and no error said why: Operation not permitted",
        ),
        (trial("pod-pod-many"), Outcome(answered=31, own="a", seen="a"), "lost", "31 of 32 flows were answered"),
        (trial("pod-pod-many"), Outcome(answered=32, own="a", seen="a"), "", None),
        (
            TO_WEB,
            Outcome(answered=0, own="a", error="Connection refused"),
            "lost",
            "pod1-1 -> web (10.96.0.11 port 80), TCP by IPv4: nothing arrived; Connection refused",
        ),
        (TO_WEB, Outcome(answered=1, own="a"), "unseen", "answered, and not by web, which saw nothing"),
        (TO_WEB, Outcome(answered=1, own="a", theirs=True), "", None),
    ],
)
def test_an_outcome_is_judged(asked: Trial, outcome: Outcome, fault: str, words: str | None):
    [one] = judged([asked], [outcome])
    assert one.fault == fault
    if words is not None:
        assert described(one).endswith(words)


def test_without_losses_nothing_fails():
    everything = tried(lambda _: False, quick=False, families=(4, 6))
    assert not [each for each in everything if each.fault]


def test_a_refusal_is_not_missing_where_everything_is_lost():
    large, more = trial("pod-pod-mtu"), trial("pod-pod-more")
    other = replace(more, target="pod3-1")
    nothing = Outcome(answered=0, error="Network is unreachable")
    assert [each.fault for each in judged([large, more, other], [nothing] * 3)] == ["lost", "lost", "unrefused"]
    assert [each.fault for each in judged([large, more], [nothing, Outcome(answered=1)])] == ["lost", "unrefused"]
    passed = Outcome(answered=1, seen="a", own="a")
    assert [each.fault for each in judged([more, large], [nothing, passed])] == ["unrefused", ""]
    assert causes(judged([large, more], [nothing] * 2), "unrefused") == []


def test_datagrams_to_a_program_of_a_pod_s_own_are_not_tried():
    asked, theirs = [TO_WEB, replace(TO_WEB, protocol="udp")], [Outcome(answered=0, theirs=True)] * 2
    assert [each.trial.protocol for each in judged(asked, theirs)] == ["tcp"]
    said = ["web: a program in its pods has UDP port 8080, and need not answer a check's datagrams"]
    assert untried(asked, theirs) == untried(asked * 2, theirs * 2) == said
    assert untried(asked, [Outcome(answered=1)] * 2) == []


@pytest.mark.parametrize("limit", [68, 69, 100, 1350, 1399, 1448, 1449])
def test_the_largest_size_is_found_in_a_few_rounds(limit: int):
    bounds, rounds = sizes.Bounds(low=68, high=1450), 0
    while between := bounds.between(40):
        assert len(between) <= 40
        rounds += 1
        bounds = bounds.narrowed((size, size <= limit) for size in between)
    assert (bounds.low, bounds.high, rounds) == (limit, limit + 1, 2)


@pytest.mark.parametrize("size", [69, 1450, 9000, 65535])
@pytest.mark.parametrize("share", [0, 0.5, 0.97, 1])
def test_the_largest_that_passes_is_tried_until_it_is_sure(size: int, share: float):
    limit, rounds = round(68 + share * (size - 69)), list[int]()

    def passing(tried: Sequence[int]) -> list[bool]:
        rounds.append(len(tried))
        return [each <= limit for each in tried]

    assert sizes.largest(size, passing) == limit
    assert sum(rounds) <= sizes.MOST / 2
    assert max(rounds) <= 6


@pytest.mark.parametrize("command", [trace, lab_trace])
def test_a_search_that_ends_in_doubt_sends_no_more_packets_than_the_commands_say(command: Command):
    sent = 0

    def passing(tried: Sequence[int]) -> list[bool]:
        nonlocal sent
        sent += len(tried)
        return [each == 68 or max(tried) == 69 for each in tried]

    assert sizes.largest(65535, passing) is None
    assert sent == sizes.MOST
    assert f" by up to {sizes.MOST} more " in " ".join((command.help or "").split())


@pytest.mark.parametrize(
    "passes, found",
    [
        (lambda size: size < 0, 0),
        (lambda size: size != 414, None),  # a larger one passes
        (lambda size: 68 < size < 700, None),  # and the smallest is lost
        (lambda size: size % 2 == 0, None),
    ],
)
def test_where_size_does_not_decide_no_largest_is_said(passes: Callable[[int], bool], found: int | None):
    assert sizes.largest(1450, lambda tried: [passes(size) for size in tried]) == found


# The largest that was found is tried again: it is lost now and then, or a larger one passes.
@pytest.mark.parametrize("again", [(1, 0, 1, 0, 0, 0), (1, 1, 1, 0, 1, 0)])
def test_chance_is_no_size(again: Sequence[int]):
    def passing(doubtful: int) -> Callable[[Sequence[int]], Sequence[bool]]:
        tries = iter([list(map(bool, again))] * doubtful)
        return lambda tried: (
            (next(tries, None) if {*tried} == {1350, 1351} else None) or [size <= 1350 for size in tried]
        )

    assert sizes.largest(1450, passing(2)) is None
    assert sizes.largest(1450, passing(1)) == 1350


def test_a_node_behind_a_nat_is_tried_at_its_own_address_by_those_behind_the_same_one():
    made = report(3)
    nodes = [replace(node, segment=segment) for node, segment in zip(made.nodes, (1, 2, 2), strict=True)]
    found = trials(replace(made, nodes=nodes, behind_nat=[2]), quick=True)
    tried_ = {(each.from_node, each.to_node) for each in found if each.scenario in ("node-node", "pod-node-other")}
    assert tried_ == {("node2", "node1"), ("node3", "node1"), ("node2", "node3"), ("node3", "node2")}
    assert {each.to_node for each in found if each.scenario == "node-pod-other"} == {"node1", "node2", "node3"}
