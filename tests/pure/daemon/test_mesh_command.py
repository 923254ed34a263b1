"""`weft mesh`: what people read of a mesh, and that nothing changes before somebody has agreed."""

import json
import re
from typing import Literal

import click
import pytest
from click.testing import CliRunner

from weft.daemon.commands import mesh
from weft.kernel import daemons
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.node.meshstate import MeshAsk, MeshDone, MeshPath, MeshPeer, MeshRing, MeshState
from weft.model.node.nodestate import NodeState
from weft.model.value import Secret, replace
from weft.web import metrics
from weft.wire.meshpassword import damaged

US = MeshPeer(
    id="node1-0a0a0a0a",
    name="node1",
    key="0a" * 32,
    us=True,
    linked=False,
    subnets=("10.32.32.0/24",),
    blocks=34,
    addresses=("10.0.0.1:51820",),
    links=("node2-0b0b0b0b",),
)
OTHER = MeshPeer(
    id="node2-0b0b0b0b", name="node2", key="0b" * 32, us=False, linked=True, blocks=1, way="direct: port-filtered"
)
RING = MeshRing(id="4f2a91c3" * 4, network="{}", blocks=40, unknown=5, resting=2, removed={"node1-0a0a0a0a": ["cc"]})
STATE = MeshState(
    id=US.id,
    key=US.key,
    ring=RING,
    usable=True,
    agreed=True,
    peers=(US, OTHER),
    removing=("node3-0c0c0c0c",),
    refused={"password": 2},
    ways={"direct": 1},
    moves={"direct": 3, "via": 2},
)
NODE = NodeState(
    version="1", instance="a", pid=1, seconds=1.0, ready=True, parts={}, losses={}, store=None, faults=0, mesh=STATE
)


class Daemon:
    def __init__(self) -> None:
        self.state = NODE
        self.asked: list[MeshAsk] = []

    def mesh(self, _name, ask):
        self.asked.append(ask)
        return ("takes over 33 blocks", "for ever")


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(mesh, "need_root", lambda _: None)
    monkeypatch.setattr(daemons, "choose", lambda wanted: wanted or "a")
    monkeypatch.setattr(daemons, "state", lambda _: made.state)
    monkeypatch.setattr(daemons, "mesh", made.mesh)
    return made


def run(*words: str, stdin: str = "") -> tuple[object, str]:
    ran = CliRunner().invoke(mesh.mesh, words, input=stdin, standalone_mode=False, catch_exceptions=False)
    return ran.return_value, ran.output


def test_the_state_on_one_screen(daemon: Daemon):
    code, text = run("status")
    assert code == 0
    assert text.splitlines() == [
        "peer     node1-0a0a0a0a, key 0a0a0a0a0a0a0a0a…",
        "ring     4f2a91c3, 2 peers, 40 blocks, the owners of 5 unknown",
        "network  {}",
        "subnet   10.32.32.0/24, and 33 in reserve, 2 of them resting",
        "links    1 with 1 other peer; this node knows what they know",
        "removal  of node3-0c0c0c0c is waiting",
    ]
    waits = Problem("MESH-001", "the mesh", "no ring here, nor on node2")
    daemon.state = replace(
        NODE,
        mesh=replace(
            STATE,
            ring=None,
            usable=False,
            agreed=False,
            peers=(),
            strangers={"": ["node2-0b0b0b0b"], "5e" * 16: ["node3-0c0c0c0c"]},
            unreached={"10.0.0.9:51820": Problem("MESH-001", "mesh", "no answer")},
            removing=("node4-0d0d0d0d",),
            waits=waits,
        ),
    )
    code, text = run("status")
    assert code == 1
    assert text.splitlines()[1:] == [
        "links    0 with 0 other peers",
        "others   node2-0b0b0b0b, without a ring",
        "others   node3-0c0c0c0c, of ring 5e5e5e5e",
        "no link  10.0.0.9:51820: MESH-001 mesh: no answer",
        "removal  of node4-0d0d0d0d is waiting",
        f"! {waits}",
    ]


def test_peers_and_ring_as_tables_and_as_json(daemon: Daemon):
    _, text = run("peers")
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["node1-0a0a0a0a", "this", "node", "10.32.32.0/24", "-", "34", "10.0.0.1:51820", "node2-0b0b0b0b"],
        ["node2-0b0b0b0b", "up", "-", "direct:", "port-filtered", "1", "-", "-"],
    ]
    assert [peer["name"] for peer in json.loads(run("peers", "-o", "json")[1])] == ["node1", "node2"]
    _, text = run("ring")
    assert "40 blocks, the owners of 5 unknown, 2 of this node's resting" in text
    assert "node1-0a0a0a0a has what was of cc" in text
    told = json.loads(run("ring", "-o", "json")[1])
    assert told["ring"]["id"] == RING.id
    assert told["owners"] == [
        {"id": "node1-0a0a0a0a", "home": ["10.32.32.0/24"], "reserve": 33},
        {"id": "node2-0b0b0b0b", "home": [], "reserve": 1},
    ]
    assert json.loads(run("status", "-o", "json")[1])["peers"][0]["us"] is True


def test_the_state_as_metrics():
    assert {line for line in metrics.render(NODE).splitlines() if line.startswith("weft_mesh")} == {
        'weft_mesh_links{with="ring"} 1.0',
        'weft_mesh_links{with="other"} 0.0',
        "weft_mesh_members 2.0",
        "weft_mesh_agreed 1.0",
        "weft_mesh_removals_pending 1.0",
        'weft_mesh_way{way="direct"} 1.0',
        'weft_mesh_way_changes_total{way="direct"} 3.0',
        'weft_mesh_way_changes_total{way="via"} 2.0',
        'weft_mesh_refused_total{why="password"} 2.0',
        'weft_mesh_blocks{owner="ours"} 34.0',
        'weft_mesh_blocks{owner="others"} 1.0',
        'weft_mesh_blocks{owner="unknown"} 5.0',
    }


def test_ways_and_the_paths_that_lead_there(daemon: Daemon):
    paths = (
        MeshPath(kind="vxlan", state="silent", why="no echo comes back"),
        MeshPath(kind="direct", state="answers", answered=1.5, mtu=1380),
    )
    way = "via node3-0c0c0c0c (direct): one-way"
    relayed = replace(OTHER, way=way, relays=("node3-0c0c0c0c", "node4-0d0d0d0d"), paths=paths)
    daemon.state = replace(NODE, mesh=replace(STATE, peers=(US, relayed, replace(OTHER, id="node5-0e0e0e0e", way=""))))
    rows = [re.split("  +", line.strip()) for line in run("ways")[1].splitlines()]
    assert rows[1:] == [
        [relayed.id, f"{way}; on node4-0d0d0d0d", "vxlan", "silent", "-", "-", "no echo comes back"],
        [relayed.id, f"{way}; on node4-0d0d0d0d", "direct", "answers", "1 s ago", "1380", "-"],
        ["node5-0e0e0e0e", "it has no subnet", *"-----"],
    ]
    [told] = json.loads(run("ways", "node2-0b0b0b0b", "-o", "json")[1])
    assert (told["way"], told["paths"][1]["state"]) == (way, "answers")
    with pytest.raises(ConfigError, match="no peer is called node9"):
        run("ways", "node9")
    arguments = {each.name: each for each in mesh.rmpeer.params}
    assert [item.value for item in arguments["peers"].shell_complete(click.Context(mesh.rmpeer), "node2")] == [
        relayed.id
    ]
    daemon.state = replace(NODE, mesh=None)
    assert arguments["peers"].shell_complete(click.Context(mesh.rmpeer), "node2") == []


def test_without_a_ring_nobody_owns_anything(daemon: Daemon):
    daemon.state = replace(NODE, mesh=replace(STATE, ring=None, peers=()))
    with pytest.raises(Unavailable, match="in no ring"):
        run("ring", "-o", "json")


def test_a_daemon_with_another_store_has_no_mesh(daemon: Daemon):
    daemon.state = replace(NODE, mesh=None)
    with pytest.raises(Unavailable, match="in no mesh"):
        run("status")


@pytest.mark.parametrize(
    "words, ask",
    [
        (("create",), MeshAsk(verb="create")),
        (("leave",), MeshAsk(verb="leave")),
        (("rmpeer", "node2", "--force"), MeshAsk(verb="rmpeer", names=("node2",), force=True)),
        (("rmpeer", "--withdraw"), MeshAsk(verb="withdraw")),
        (("adopt", "4f2a"), MeshAsk(verb="adopt", names=("4f2a",))),
    ],
)
def test_what_changes_the_ring_is_said_and_asked(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], ask: MeshAsk
):
    with pytest.raises(ConfigError, match="Say --yes to agree"):
        run(*words)
    assert daemon.asked == [ask]
    code, text = run(*words, "--yes")
    assert code == 0
    assert "takes over 33 blocks" in text
    assert daemon.asked[1:] == [ask, replace(ask, sure=True)]
    assert json.loads(run(*words, "--yes", "-o", "json")[1]) == {
        "lines": ["takes over 33 blocks", "for ever"],
        "unable": [],
    }
    del daemon.asked[:]
    monkeypatch.setattr(mesh, "_agreed", lambda *_: False)
    assert run(*words)[0] == 1
    assert daemon.asked == [ask]


@pytest.mark.parametrize("words", [(), ("node2", "--withdraw")])
def test_a_removal_has_names_or_is_withdrawn(words: tuple[str, ...]):
    with pytest.raises(click.UsageError, match="Name the peers that are gone, or say --withdraw"):
        run("rmpeer", *words)


@pytest.mark.parametrize("verb", ["connect", "forget"])
def test_an_address_is_dialled_or_forgotten_without_a_question(daemon: Daemon, verb: Literal["connect", "forget"]):
    assert run(verb, "10.0.0.7")[0] == 0
    assert daemon.asked == [MeshAsk(verb=verb, names=("10.0.0.7",), sure=True)]


def test_a_password_is_made_and_never_the_same():
    first, second = run("password")[1].strip(), run("password")[1].strip()
    assert first != second
    assert first.startswith("weft1-")
    assert not damaged(Secret(first))


def test_what_the_daemon_refuses_is_raised(monkeypatch: pytest.MonkeyPatch):
    import msgspec

    asked = []

    def ask(name, question):
        asked.append(json.loads(question))
        return msgspec.json.encode(MeshDone(unable=(Problem("MESH-005", "weft mesh rmpeer", "node2 answers"),)))

    monkeypatch.setattr(daemons, "ask", ask)
    with pytest.raises(ConfigError, match="node2 answers"):
        daemons.mesh("a", MeshAsk(verb="rmpeer", names=("node2",)))
    assert asked == [{"ask": "mesh", "mesh": {"verb": "rmpeer", "names": ["node2"], "force": False, "sure": False}}]
