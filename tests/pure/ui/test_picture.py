"""What the page shows, of what a lab and its daemons say."""

from pathlib import Path

import msgspec
import pytest

from tests.support.pages import Seen, lab, peer, public, state, subnet
from weft.diag.check.trial import EndpointReport
from weft.lab import protocol
from weft.lab.links import ITSELF, Cut, Link
from weft.lab.places import Place
from weft.lab.report import Carried, ServiceReport, TrafficReport, WayReport
from weft.model.errors import ConfigError, Problem
from weft.model.node.history import Event
from weft.model.node.nodestate import LoopState, RefusedState
from weft.model.value import replace
from weft.ui import picture as ui
from weft.ui.measuring import Measured, due, noted
from weft.ui.sources import LabSource
from weft.ui.words import told

UNIX = 1_000_000.0
PROBLEM = Problem(code="ADDR-002", where="lease x", seen="clashes")


def shown(seen, measured=None):
    return ui.picture(ui.of_lab(seen.lab, seen.states, unix=UNIX), measured or {})


def edge(seen, measured=None):
    return shown(seen, {} if measured is None else {("node1", "node2"): measured})["edge/node1/node2"]


def test_a_lab_that_is_well():
    found = shown(lab(3))
    assert [name for name in found if name.startswith(("node", "edge"))] == [
        *("node/node1", "node/node2", "node/node3"),
        *("edge/node1/node2", "edge/node1/node3", "edge/node2/node3"),
    ]
    assert found["lab"]["name"] == "made"
    assert found["node/node2"]["order"] == 1
    assert found["node/node2"]["pods"] == ["pod2-1", "pod2-2"]
    assert found["pod/pod2-1"] == {"name": "pod2-1", "node": "node2", "addresses": ["10.244.2.2/24"]}
    assert {piece["health"] for piece in found.values() if "health" in piece} == {"well"}
    assert [each["name"] for each in found["node/node1"]["detail"]["peers"]] == ["node2", "node3"]
    msgspec.json.encode(found)  # all of it is JSON


def test_what_the_lab_does_to_links_and_which_services_it_has():
    made = lab(3)
    first, second, third = made.lab.nodes
    service = ServiceReport(
        name="web",
        protocol="TCP",
        addresses=["10.96.0.11"],
        port=80,
        target_port=8080,
        node_port=30080,
        pods=["pod1*"],
        endpoints=[
            EndpointReport(pod="pod1-1", node="node1", address="10.244.1.2"),
            EndpointReport(pod="pod1-1", node="node1", address="fd00::2"),
        ],
    )
    cuts = [
        Cut(source="node3", target="node1"),
        Cut(source="node2", target="store"),
        Cut(source="node1", target="node3"),
    ]
    report = msgspec.structs.replace(
        made.lab,
        nodes=[
            msgspec.structs.replace(first, segment=2),
            msgspec.structs.replace(second, link=Link(delay=20.0)),
            third,
        ],
        services=[service],
        cuts=cuts,
    )
    found = shown(Seen(lab=report, states=made.states), {("node1", "node3"): noted(None, 0.5, at=UNIX, words="")})
    assert found["service/web"]["target"] == "web:80"
    assert found["service/web"]["pods"] == ["pod1-1"]
    assert [found[f"node/node{n}"]["place"] for n in (1, 2, 3)] == [["segment 2"], ["segment 1"], ["segment 1"]]
    assert [found[f"node/node{n}"]["notes"] for n in (1, 2, 3)] == [
        [],
        ["link: delay 20 ms", "cut by the lab: node2 → store"],
        [],
    ]
    assert found["edge/node1/node3"]["health"] == "down"
    assert found["edge/node1/node3"]["words"] == ["cut by the lab: node3 → node1", "cut by the lab: node1 → node3"]
    assert found["edge/node1/node3"]["cut"]
    assert "cut" not in found["edge/node1/node2"]
    assert found["edge/node1/node2"]["words"] == []
    assert [shown(made)[f"node/node{n}"][key] for n in (1, 2, 3) for key in ("place", "notes")] == [[]] * 6
    msgspec.json.encode(found)


def test_two_looks_at_the_same_are_the_same():
    later = lab(3, states={f"node{n}": replace(state(n, 3), seconds=102.0) for n in (1, 2, 3)})
    moved = ui.picture(ui.of_lab(later.lab, later.states, unix=UNIX + 2), {})
    assert ui.changes(shown(lab(3)), moved)["put"].keys() <= {"node/node1", "node/node2", "node/node3"}
    for name in ("node1", "node2", "node3"):
        assert moved[f"node/{name}"]["detail"]["since"] == shown(lab(3))[f"node/{name}"]["detail"]["since"]


def test_only_what_has_changed_is_sent():
    less = lab(2, states={"node1": state(1, 2, peers=[peer(2, lacks=["route: refused"])])})
    assert sorted(ui.changes(shown(lab(2)), shown(less))["put"]) == ["edge/node1/node2", "node/node1"]
    assert ui.changes(shown(lab(3)), shown(lab(2)))["gone"] == [
        *("node/node3", "pod/pod3-1", "pod/pod3-2", "edge/node1/node3", "edge/node2/node3"),
    ]


@pytest.mark.parametrize(
    "own, health, words",
    [
        ({}, "well", []),
        ({"peers": [peer(2, lacks=["route: no"])]}, "poor", ["node1 says of node2: lacks route: no"]),
        ({"peers": [peer(2, trouble=PROBLEM)]}, "down", ["node1 says of node2: unusable ADDR-002 lease x: clashes."]),
        ({"peers": []}, "down", ["node1 knows no lease of node2"]),
    ],
)
def test_an_edge_that_was_not_measured_is_as_the_daemons_say(own, health, words):
    found = edge(lab(2, states={"node1": state(1, 2, **own)}))
    assert (found["health"], [each.rstrip(".") for each in found["words"]]) == (health, [w.rstrip(".") for w in words])
    assert "tried" not in found


@pytest.mark.parametrize(
    "probes, lacks, health",
    [
        ((0.1, 0.3, 0.2), [], "well"),
        ((0.1, None, 0.2), [], "poor"),
        ((0.1, None, None), [], "down"),
        ((None,), [], "down"),
        ((0.1,), ["route: no"], "poor"),
    ],
)
def test_what_was_measured_counts_more(probes, lacks, health):
    seen = lab(2, states={"node1": state(1, 2, peers=[peer(2, lacks=lacks)])})
    found = edge(seen, Measured(probes=probes, at=5.5, words="a probe was translated" if health == "well" else ""))
    assert (found["health"], found["tried"], found["at"]) == (health, len(probes), 5)
    assert found["words"][0].startswith("a probe was translated") if health == "well" else True
    assert found["ms"] == (sorted(p for p in probes if p)[len([p for p in probes if p]) // 2] if any(probes) else None)


def test_a_node_that_is_not_well():
    ill = state(1, 2, ready=False, parts={"lease": PROBLEM})
    poor = state(
        2, 2, store=PROBLEM, loops={"routes": LoopState(rounds=1, repairs={"X-1": 2}, unannounced=0, failing={})}
    )
    found = shown(lab(2, states={"node1": ill, "node2": poor}))
    assert (found["node/node1"]["health"], found["node/node2"]["health"]) == ("down", "poor")
    assert found["node/node1"]["wrong"] == ["lease: ADDR-002 lease x: clashes"]
    assert found["node/node2"]["detail"]["loops"] == [
        {"name": "routes", "repairs": {"X-1": 2}, "failing": {}, "counts": {}}
    ]


def test_a_daemon_that_does_not_answer():
    seen = lab(2)
    seen = replace(seen, states={**seen.states, "node1": None})
    found = shown(seen)
    assert found["node/node1"]["health"] == "unknown"
    assert found["node/node1"]["detail"] is None
    assert found["edge/node1/node2"]["health"] == "unknown"
    nodes = [msgspec.structs.replace(seen.lab.nodes[0], daemon="exited 1"), seen.lab.nodes[1]]
    dead = replace(seen, lab=msgspec.structs.replace(seen.lab, nodes=nodes))
    assert shown(dead)["node/node1"]["health"] == "down"
    assert shown(dead)["node/node1"]["wrong"] == ["weftd has ended with status 1"]
    for daemon, words in {"exited -9": "weftd was killed (SIGKILL)", "none": "weftd: none"}.items():
        nodes[0] = msgspec.structs.replace(nodes[0], daemon=daemon)
        dead = replace(seen, lab=msgspec.structs.replace(seen.lab, nodes=nodes))
        assert shown(dead)["node/node1"]["wrong"] == [words]


def test_a_peer_that_no_node_of_the_lab_is():
    stranger = peer(9, public=["192.0.2.9"])
    found = shown(lab(2, states={"node1": state(1, 2, peers=[peer(2), stranger])}))
    assert [each["name"] for each in found["node/node1"]["detail"]["peers"]] == ["node2", subnet(9)]


def test_until_when_a_lease_lasts_is_the_same_at_the_next_look():
    own = state(1, 1).lease
    found = [
        shown(lab(1, states={"node1": state(1, 1, lease=replace(own, seconds=left))}))["node/node1"]["detail"]["lease"]
        for left in (86_400.0, 86_399.0, None)
    ]
    assert [each["until"] for each in found] == [1_086_400, 1_086_400, None]


def test_one_node_and_its_peers():
    refused = RefusedState(id="10.244.3.0-24", trouble=PROBLEM, subnets=[subnet(3)], public=[public(3)])
    view = ui.of_node("here", state(1, 2, refused=[refused]), unix=UNIX)
    found = ui.picture(view, {("here", public(2)): Measured(probes=(0.0,), at=1)})
    assert view.pairs == [("here", public(2)), ("here", public(3))]
    assert found["lab"] == {
        "kind": "node",
        "name": "here",
        "backend": "vxlan",
        "networks": ["10.244.0.0/16"],
        "store": "",
        "store_state": "ready",
    }
    assert found[f"node/{public(2)}"]["health"] == "well"
    assert found[f"node/{public(3)}"]["wrong"] == [f"{PROBLEM}"]
    assert found["node/here"]["mtu"] == 1450
    assert [found[f"edge/here/{public(n)}"]["health"] for n in (2, 3)] == ["well", "down"]
    assert view.names[subnet(1)] == "here"


def test_one_node_that_waits_for_its_lease():
    waits = state(1, 1, ready=False, lease=None, network=None, uplink=None, store=PROBLEM)
    found = ui.picture(ui.of_node("here", waits, unix=UNIX), {})
    assert (found["node/here"]["health"], found["node/here"]["daemon"]) == ("down", "not ready")
    assert found["lab"]["store_state"] == str(PROBLEM)
    assert found["node/here"]["detail"]["uplink"] is None


@pytest.mark.parametrize(
    "subject, about",
    [
        ("10.244.2.0-24", "node2"),
        ("route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink", "node2"),
        ("fdb 02:00:00:00:00:02 dst 172.31.0.12", "node2"),
        ("10.244.1.0-24", ""),
        ("store", ""),
    ],
)
def test_an_event_names_the_node_that_it_is_about(subject, about):
    seen = lab(2)
    view = ui.of_lab(seen.lab, seen.states, unix=UNIX)
    event = Event(number=3, time=5.0, kind="joined", subject=subject)
    found = told("node1", event, view.names)
    pairs = [["node1", about]] if about else []
    assert (found["pairs"], found["about"], found["id"], found["node"]) == (pairs, ["node1"], "node1/3/5.0", "node1")


ROUTE = "route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink"


@pytest.mark.parametrize(
    "kind, subject, what",
    [
        ("joined", "10.244.2.0-24", "sees node2 (10.244.2.0/24)"),
        ("left", "10.244.2.0-24", "does not see node2 (10.244.2.0/24) any more"),
        ("changed", "10.244.2.0-24", "sees node2 (10.244.2.0/24) changed"),
        ("joined", "node-9", "sees node-9"),
        ("joined", "5 more", "sees 5 more"),
        ("repaired", ROUTE, f"repaired {ROUTE} (node2)"),
        ("lease-taken", "10.244.1.0-24", "lease-taken 10.244.1.0/24"),
        ("store-lost", "store", "store-lost store"),
    ],
)
def test_an_event_reads_as_what_its_node_saw(kind, subject, what):
    seen = lab(2)
    view = ui.of_lab(seen.lab, seen.states, unix=UNIX)
    assert told("node1", Event(number=1, time=5.0, kind=kind, subject=subject), view.names)["what"] == what


@pytest.mark.parametrize(
    "kind, subject, about, pairs",
    [
        ("killed", "node2/weftd", ["node2"], []),
        ("stopped", "store", [], []),
        ("broke", "node3 route-lost", ["node3"], []),
        ("shaped", "node1 link", ["node1"], []),
        ("healed", "all cuts", [], []),
        ("cut", "node1 ↔ store", ["node1"], []),
        ("cut", "node1,node2 → node3", ["node1", "node2", "node3"], [["node1", "node3"], ["node2", "node3"]]),
    ],
)
def test_what_was_done_to_the_lab_is_of_the_nodes_that_it_names(kind, subject, about, pairs):
    seen = lab(3)
    view = ui.of_lab(seen.lab, seen.states, unix=UNIX)
    found = told(ITSELF, Event(number=1, time=5.0, kind=kind, subject=subject), view.names)
    assert (found["node"], found["what"]) == ("the lab", f"{kind} {subject}")
    assert (found["about"], found["pairs"]) == (about, pairs)


def test_what_a_daemon_said_last_stays_when_it_does_not_answer():
    seen = lab(2)
    last = {}
    first = ui.with_last(ui.of_lab(seen.lab, seen.states, unix=UNIX), last, UNIX)
    silent = ui.of_lab(seen.lab, {**seen.states, "node1": None}, unix=UNIX + 60)
    one, two = (node.piece for node in ui.with_last(silent, last, UNIX + 60).nodes)
    assert (one["detail"], one["heard"], one["health"]) == (first.nodes[0].piece["detail"], UNIX, "unknown")
    assert "heard" not in two
    assert "heard" not in first.nodes[0].piece
    fewer = lab(1)
    ui.with_last(ui.of_lab(fewer.lab, fewer.states, unix=UNIX + 70), last, UNIX + 70)
    assert list(last) == ["node1"]
    unknown = ui.with_last(ui.of_lab(fewer.lab, {"node1": None}, unix=UNIX), {}, UNIX).nodes[0].piece
    assert (unknown["detail"], "heard" in unknown) == (None, False)


def test_a_lease_of_both_families_is_known_by_its_name():
    seen = lab(1)
    nodes = [msgspec.structs.replace(seen.lab.nodes[0], subnets=["10.244.1.0/24", "fd00:0:0:1::/64"])]
    both = msgspec.structs.replace(seen.lab, nodes=nodes)
    assert ui.of_lab(both, seen.states, unix=UNIX).names["10.244.1.0-24&fd00-0-0-1---64"] == "node1"


PAIRS = [("a", "b"), ("a", "c")]


def test_who_has_waited_longest_is_measured_next():
    assert due([], {}, now=9.0) is None
    assert due(PAIRS, {}, now=9.0) == ("a", "b")
    well, lost = Measured(probes=(0.1,), at=8.0), Measured(probes=(None,), at=8.0)
    assert due(PAIRS, {("a", "b"): well}, now=9.0) == ("a", "c")
    assert due(PAIRS, {("a", "b"): well, ("a", "c"): well}, now=9.0) is None
    assert due(PAIRS, {("a", "b"): well, ("a", "c"): lost}, now=9.0) == ("a", "c")
    assert due(PAIRS, {("a", "b"): well, ("a", "c"): well}, now=13.0) == ("a", "b")


def test_the_latest_probes_are_kept():
    known = None
    for number in range(12):
        known = noted(known, float(number), at=number)
    assert known is not None
    assert known.probes == tuple(map(float, range(2, 12)))
    assert known.milliseconds == 7.0
    assert noted(known, None, at=1).lost == 1
    assert not noted(known, None, at=1).is_cut
    assert noted(noted(known, None, at=1), None, at=2).is_cut
    assert Measured(probes=(None,), at=1).milliseconds is None


def test_what_is_carried_is_a_piece_of_its_own_in_words():
    seen = lab(2)
    zero = {"sent_packets": 0, "received_packets": 0, "lost": 0}
    busy = Carried(name="pod1-1", node="node1", sent_bytes=1500, received_bytes=0, **zero)
    idle = Carried(name="pod2-1", node="node2", sent_bytes=0, received_bytes=0, **zero)
    ways = [
        WayReport(source="node1", target="node2", bytes=2e6, packets=9, lost=3),
        WayReport(source="node2", target="node1", bytes=10, packets=1, lost=0),
    ]
    carried = TrafficReport(seconds=1.0, nodes=[], pods=[busy, idle], ways=ways)
    assert ui.of_lab(seen.lab, seen.states, unix=UNIX, carried=carried).more["traffic"] == {
        "pods": {"pod1-1": "sends 1.5 kB/s, receives 0 B/s"},
        "ways": {"node1/node2": "2.0 MB/s, 3 packets/s lost", "node2/node1": "10 B/s"},
    }
    assert "traffic" not in shown(seen)


async def test_a_lab_that_cannot_count_what_is_carried_is_shown_all_the_same(monkeypatch):
    seen, source = lab(2), LabSource(Place(Path("/nowhere")))
    refused = True
    nothing = TrafficReport(seconds=1.0, nodes=[], pods=[], ways=[])

    async def ask(request):
        if isinstance(request, protocol.Traffic):
            if refused:
                raise ConfigError(PROBLEM)
            return nothing
        return seen.lab if isinstance(request, protocol.Ps) else seen.states

    monkeypatch.setattr(source, "_ask", ask)
    assert "traffic" not in (await source.look()).more
    refused = False
    assert "traffic" not in (await source.look()).more, "it takes two readings"
    assert (await source.look()).more["traffic"] == {"pods": {}, "ways": {}}
