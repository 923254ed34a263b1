"""The tutorial's judges, on what a lab looked like at the end of each lesson, and on what went wrong before."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scripts.docs import tutorial
from weft.lab.tutorial import demands, pages, seen
from weft.lab.tutorial.lesson import Lesson, judged, paragraphs, right
from weft.lab.tutorial.lessons import LESSONS
from weft.lab.tutorial.pages import Progress, before, drawing, position
from weft.lab.tutorial.seen import HERE, Link, NodeSeen, Seen, Space
from weft.model.value import replace

Change = Callable[[Seen], Seen]
BARE = Seen(nodes={name: NodeSeen(forwards=False, spaces={HERE: Space()}) for name in ("node1", "node2")})


def named(name: str) -> Lesson:
    return LESSONS[position(name)]


def space(node: str, name: str, change: Callable[[Space], Space]) -> Change:
    """Change one namespace."""

    def changed(old: Seen) -> Seen:
        spaces = old.nodes[node].spaces
        of_node = replace(old.nodes[node], spaces=spaces | {name: change(spaces[name])})
        return replace(old, nodes=old.nodes | {node: of_node})

    return changed


def gone(node: str, name: str) -> Change:
    """Take a namespace away."""

    def changed(old: Seen) -> Seen:
        spaces = {each: space for each, space in old.nodes[node].spaces.items() if each != name}
        return replace(old, nodes=old.nodes | {node: replace(old.nodes[node], spaces=spaces)})

    return changed


def moved(name: str, source: str, target: str) -> Change:
    """Have a namespace on another node."""

    def changed(old: Seen) -> Seen:
        there = replace(old.nodes[target], spaces=old.nodes[target].spaces | {name: old.nodes[source].spaces[name]})
        return replace(gone(source, name)(old), nodes=gone(source, name)(old).nodes | {target: there})

    return changed


def link(node: str, name: str, inside: str = HERE, **fields: Any) -> Change:
    """Change fields of a link."""

    def changed(old: Space) -> Space:
        new = msgspec.structs.replace(old.links[name], **fields)
        return replace(old, links=old.links | {name: new})

    return space(node, inside, changed)


def without(node: str, name: str, inside: str = HERE) -> Change:
    """Take a link away."""
    return space(
        node, inside, lambda old: replace(old, links={each: old.links[each] for each in old.links if each != name})
    )


def table(node: str, which: str, inside: str = HERE, *, keep: Callable[[Any], Any]) -> Change:
    """Change each entry of a table, or leave it out."""
    return space(node, inside, lambda old: replace(old, **{which: tuple(filter(None, map(keep, getattr(old, which))))}))


def entry(key: str, **fields: Any) -> Callable[[Any], Any]:
    """Change the fields of the entries for a destination or a MAC; leave them out without any."""

    def keep(old: Any) -> Any:
        if key not in (old.dst, getattr(old, "mac", "")):
            return old
        return msgspec.structs.replace(old, **fields) if fields else None

    return keep


def answer(**answers: str | None) -> Change:
    return lambda old: replace(old, answers=old.answers | answers)


def info(**data: Any) -> seen.Info:
    there = {"id": 1, "port": 8472, "local": "172.31.0.11", "learning": False}
    return seen.Info(info_kind="vxlan", info_data=there | data)


def address(*addresses: str) -> list[seen.Address]:
    return [seen.Address(local=each.partition("/")[0], prefixlen=int(each.partition("/")[2])) for each in addresses]


def still(node: NodeSeen) -> NodeSeen:
    return replace(node, forwards=False)


WRONG: list[tuple[str, Change, str]] = [
    ("namespace", gone("node1", "red"), "node1 has a network namespace red: 'ip netns' on node1 lists none"),
    ("bridge", gone("node1", "red"), "node1 has a network namespace red: 'ip netns' on node1 lists blue"),
    ("namespace", moved("red", "node1", "node2"), "node1 has a network namespace red: it is on node2"),
    ("namespace", link("node1", "lo", "red", flags=["LOOPBACK"]), "lo of red on node1 is up: it is down"),
    (
        "namespace",
        without("node1", "lo", "red"),
        "lo of red on node1 is up: there is no such link: red on node1 has none",
    ),
    ("namespace", answer(itself=None), "red pings itself at 127.0.0.1: no answer"),
    (
        "veth",
        without("node1", "vethred"),
        (
            "vethred of node1 and eth0 of red on node1 are the ends of a veth pair: "
            "there is no such link: node1 has lo, eth0"
        ),
    ),
    (
        "veth",
        without("node1", "eth0", "red"),
        (
            "vethred of node1 and eth0 of red on node1 are the ends of a veth pair: "
            "there is no such link: red on node1 has lo"
        ),
    ),
    ("veth", link("node1", "vethred", link_index=99), "the ends of a veth pair: each is the end of another pair"),
    (
        "veth",
        link("node1", "vethred", link_index=0, linkinfo=seen.Info(info_kind="bridge")),
        "the ends of a veth pair: vethred is no veth",
    ),
    (
        "veth",
        link("node1", "eth0", "red", addr_info=address("10.244.1.2/32")),
        "eth0 of red on node1 has the address 10.244.1.2/24: it has 10.244.1.2/32",
    ),
    ("veth", link("node1", "vethred", addr_info=[]), "vethred of node1 has the address 10.244.1.1/24: it has none"),
    ("veth", link("node1", "vethred", flags=[]), "vethred of node1 is up: it is down"),
    ("veth", answer(red=None), "node1 pings red at 10.244.1.2: no answer"),
    ("bridge", without("node1", "cni0"), "node1 has a bridge cni0: there is no such link: node1 has lo, eth0, vethred"),
    ("bridge", link("node1", "cni0", linkinfo=seen.Info()), "node1 has a bridge cni0: cni0 is of type none"),
    (
        "bridge",
        link("node1", "vethred", addr_info=address("10.244.1.1/24")),
        "cni0 of node1 has the address 10.244.1.1/24: vethred has it, too: 'ip address del 10.244.1.1/24 dev vethred'",
    ),
    (
        "bridge",
        lambda old: link("node1", "cni0", addr_info=[])(
            link("node1", "vethred", addr_info=address("10.244.1.1/24"))(old)
        ),
        "cni0 of node1 has the address 10.244.1.1/24: vethred has it instead",
    ),
    ("bridge", link("node1", "vethblue", master=""), "vethblue of node1 is a port of cni0: its master is none"),
    (
        "bridge",
        table("node1", "routes", "red", keep=entry("default")),
        "red on node1 has the route default via 10.244.1.1: no route has the destination default",
    ),
    (
        "bridge",
        table("node1", "routes", "blue", keep=entry("default", gateway="10.244.1.2")),
        "blue on node1 has the route default via 10.244.1.1: default leads via 10.244.1.2 dev eth0",
    ),
    (
        "nodes",
        lambda old: replace(old, nodes={name: still(node) for name, node in old.nodes.items()}),
        "node1 forwards packets: net.ipv4.ip_forward is 0",
    ),
    (
        "vxlan",
        table("node1", "routes", keep=entry("10.244.2.0/24", gateway="", dev="eth0")),
        "node1 has the route 10.244.2.0/24 via 10.244.2.0 dev flannel.1: 10.244.2.0/24 leads via no gateway dev eth0",
    ),
    (
        "vxlan",
        link("node1", "flannel.1", linkinfo=info(port=4789, learning=True)),
        (
            "flannel.1 of node1 has VNI 1, port 8472, local 172.31.0.11, nolearning:"
            " its port is 4789 and it was made without `nolearning`"
        ),
    ),
    ("vxlan", link("node1", "flannel.1", mtu=1500), "flannel.1 of node1 has MTU 1450: it has 1500"),
    (
        "vxlan",
        table("node1", "neighbours", keep=entry("10.244.2.0")),
        (
            "permanent neighbour 10.244.2.0 → 0e:00:00:00:00:02, which is node2's flannel.1, on node1: "
            "flannel.1 has no neighbour 10.244.2.0"
        ),
    ),
    (
        "vxlan",
        table("node1", "neighbours", keep=entry("10.244.2.0", lladdr="0e:00:00:00:00:01")),
        "on node1: found 0e:00:00:00:00:01",
    ),
    ("vxlan", table("node1", "neighbours", keep=entry("10.244.2.0", lladdr="")), "on node1: found no MAC"),
    (
        "vxlan",
        table("node1", "neighbours", keep=entry("10.244.2.0", state=["STALE"])),
        "on node1: it is STALE, not permanent",
    ),
    (
        "vxlan",
        table("node1", "fdb", keep=entry("0e:00:00:00:00:02")),
        "node1's FDB has 0e:00:00:00:00:02 behind 172.31.0.12: flannel.1 has no entry for that MAC",
    ),
    (
        "vxlan",
        table("node1", "fdb", keep=entry("0e:00:00:00:00:02", dst="172.31.0.13")),
        "behind 172.31.0.12: it is behind 172.31.0.13",
    ),
    ("vxlan", link("node2", "eth0", "green", mtu=1500), "eth0 of green on node2 has MTU 1450: it has 1500"),
    (
        "vxlan",
        lambda old: replace(old, frames=()),
        "the ping crosses eth0 of node2 inside VXLAN: 0 packets were captured there, none is VXLAN with a ping",
    ),
    (
        "cni",
        without("node2", "eth0", "pink"),
        "eth0 of pink on node2 has an address of 10.244.2.0/24: pink has no eth0: it is not attached",
    ),
    (
        "cni",
        link("node2", "eth0", "pink", addr_info=address("10.244.1.7/24")),
        "eth0 of pink on node2 has an address of 10.244.2.0/24: it has 10.244.1.7/24",
    ),
    ("cni", answer(pink=None), "no file of /var/lib/cni/networks/hand names the container pink"),
    ("plugin", answer(version=None), "/run/plugins/label on node1 answers VERSION: 'echo {}"),
    (
        "plugin",
        link("node1", "eth0", "purple", link_index=99),
        "the other end of it has the altname pod-purple: eth0 of purple is no end of a veth pair",
    ),
    ("services", answer(service="red\nred\nred\nred"), "red answers some, and blue the others: red answered all"),
    ("services", answer(rules=None), "node2 has a rule for 10.96.0.10: 'nft list ruleset' does not name it"),
    ("policy", answer(yellow="red"), "yellow does not get it: red answered it"),
    ("policy", answer(ping=None), "blue pings red: the policy is about port 80 alone: no answer from 10.244.1.2"),
]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_that_was_followed_is_right(lesson: Lesson):
    found = judged(lesson, tutorial.record_of(lesson))
    assert right(found), found[-1]
    assert len({demand.what for demand in found}) == len(found) > 2


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_nothing_is_right_where_nothing_is(lesson: Lesson):
    nobody = replace(BARE, answers={attempt.name: None for attempt in lesson.attempts})
    found = judged(lesson, nobody)
    assert not right(found)
    assert found[-1].problem


@pytest.mark.parametrize(
    "name, change, said", WRONG, ids=[f"{name}-{number}" for number, (name, *_) in enumerate(WRONG)]
)
def test_what_is_wrong_is_said(name: str, change: Change, said: str):
    lesson = named(name)
    before = tutorial.record_of(lesson)
    after = change(before)
    assert after != before
    last = judged(lesson, after)[-1]
    assert said in f"{last.what}: {last.problem}", last


@pytest.mark.parametrize(
    "demand",
    [
        demands.up(BARE, "node1", "x"),
        demands.kind(BARE, "node1", "x", "bridge"),
        demands.address(BARE, "node1", "x", "10.0.0.1/24"),
        demands.port(BARE, "node1", "x", "cni0"),
        demands.mtu(BARE, "node1", "x", 1450),
    ],
)
def test_what_is_demanded_of_a_link_that_is_not_there(demand: demands.Demand):
    assert demand.problem == "there is no such link: node1 has none"


def test_without_the_label_the_pair_has_no_further_name():
    record = tutorial.record_of(named("plugin"))
    [label] = [link for link in record.nodes["node1"].spaces[HERE].links.values() if link.altnames]
    last = judged(named("plugin"), link("node1", label.ifname, altnames=[])(record))[-1]
    assert last.what == f"{label.ifname} has the altname pod-purple"
    assert last.problem == "it has none"


def pasted(command: str) -> str:
    """A command as a page has it. One of several lines works when it is pasted: a here-document ends at the margin."""
    return f"\n{command}\n" if "\n" in command else f"  $ {command}\n"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_has_all_that_a_learner_needs(lesson: Lesson):
    assert lesson.question.endswith("?")
    assert len(paragraphs(lesson.hints)) == 2
    assert paragraphs(lesson.why)
    assert paragraphs(lesson.answer)
    assert any(typed.look for typed in lesson.typed)
    assert [typed for typed in lesson.rest if typed.changes]
    assert {typed.node for typed in (*lesson.typed, *lesson.rest)} <= set(BARE.nodes)
    assert not [typed for typed in (*lesson.typed, *lesson.rest) if typed.fails and typed.changes]
    assert lesson.solution == tuple(typed for typed in (*lesson.typed, *lesson.rest) if typed.changes)
    shown = pages.page(lesson, BARE, "sh %s")
    assert f"of {len(LESSONS)}: {lesson.title}\n{lesson.question}\n" in shown
    *vague, last = pages.hints(lesson, "sh %s")
    assert all(pasted(typed.command) in shown for typed in lesson.typed)
    assert all(pasted(typed.command) in f"{last}\n" for typed in lesson.rest)
    assert len(vague) == 2
    assert all(typed.command.splitlines()[0] in last for typed in lesson.rest)
    # The page alone is not the solution, nor are the hints before the last.
    assert [typed for typed in lesson.rest if pasted(typed.command) not in shown]
    assert not [typed for typed in lesson.rest if any(typed.command in hint for hint in vague)] or len(lesson.rest) > 1


def test_lessons_have_names_of_their_own():
    names = [lesson.name for lesson in LESSONS]
    assert len(set(names)) == len(names)
    assert [lesson.name for lesson in before(LESSONS[2])] == names[:2]


def test_what_ip_and_bridge_print_is_read():
    lines = (
        *(
            "1",
            "",
            '[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"]}]',
            '[{"dst":"default","gateway":"10.0.0.1"}]',
        ),
        *('[{"dst":"10.0.0.1","lladdr":"02::","state":["STALE"]}]', '[{"mac":"02::","dst":"10.0.0.2"}]'),
        *("red", '[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK"],"addr_info":[{"local":"::1"}]}]', "[]", "", ""),
    )
    node = seen.read("\n".join(lines) + "\n")
    assert node.forwards
    assert list(node.spaces) == [HERE, "red"]
    own, red = node.spaces.values()
    assert own.links["lo"].up
    assert not red.links["lo"].up
    assert red.links["lo"].addresses == []
    assert (own.routes[0].gateway, own.neighbours[0].state, own.fdb[0].dst) == ("10.0.0.1", ["STALE"], "10.0.0.2")
    assert (red.routes, red.neighbours, red.fdb) == ((), (), ())


def test_a_drawing_shows_what_is_down_and_what_is_bare():
    links = {
        "eth0": Link(ifindex=2, ifname="eth0", mtu=1500, flags=["UP"], addr_info=address("172.31.0.11/16")),
        "cni0": Link(ifindex=3, ifname="cni0", mtu=1500, linkinfo=seen.Info(info_kind="bridge")),
        "v": Link(ifindex=4, ifname="v", mtu=1450, flags=["UP"], master="cni0", link_index=2),
    }
    end = Link(ifindex=2, ifname="eth0", mtu=1500, link_index=4, linkinfo=seen.Info(info_kind="veth"))
    spaces = {
        HERE: Space(
            links=links, routes=(seen.Route("10.1.0.0/24", "172.31.0.12", "eth0"), seen.Route("172.31.0.0/16"))
        ),
        "red": Space(links={"eth0": end}),
        "odd": Space(),
    }
    drawn = drawing(Seen(nodes={"node1": NodeSeen(forwards=True, spaces=spaces)}))
    assert drawn == (
        "node1, forwards packets\n"
        "├ eth0 172.31.0.11/16\n"
        "├ cni0 (bridge) DOWN\n"
        "│ └ v mtu 1450 ═══ eth0 DOWN of red\n"
        "├ namespace odd: lo DOWN\n"
        "└ route 10.1.0.0/24 via 172.31.0.12 dev eth0"
    )


def test_a_verdict_shows_the_packet_and_the_answer_only_when_all_is_right():
    lesson, record = named("vxlan"), tutorial.record_of(named("vxlan"))
    said = pages.verdict(lesson, judged(lesson, record), record)
    assert "VXLAN  VNI 1, a whole frame follows\n" in said
    assert pages.wrapped(paragraphs(lesson.answer)[0]) in said
    wrong = answer(green=None)(record)
    said = pages.verdict(lesson, judged(lesson, wrong), wrong)
    assert said.splitlines()[-1] == "✗ red pings green on node2: no answer from 10.244.2.2"
    assert "VNI 1, a whole" not in said


def test_the_overview_marks_what_is_done_and_where_one_is():
    assert not re.search("[✓→]", pages.overview(None))
    shown = pages.overview(Progress(lesson="bridge", done=["namespace", "veth"])).splitlines()
    assert [bool(re.match("   ✓", line)) for line in shown[1:4]] == [True, True, False]
    assert shown[3].startswith("→")
