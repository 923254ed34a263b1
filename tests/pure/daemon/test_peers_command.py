"""The other nodes, as people read them, and what a watch says of a change."""

from collections.abc import Iterator

import pytest

from tests.pure.daemon.test_status_command import WAITS
from weft.daemon.commands.peers import Row, change, changed, rows, text
from weft.model.errors import Problem, Unavailable
from weft.model.node.nodestate import PeerState, RefusedState
from weft.model.value import replace
from weft.screen.documents import watched

CLASH = Problem(code="ADDR-002", where="lease", seen="clashes")


def peer(number: int, **more: object) -> PeerState:
    subnet = f"10.5.{number}.0"
    known = {"id": f"{subnet}-24", "subnets": [f"{subnet}/24"], "public": [f"172.31.0.{number}"], "backend": "udp"}
    return PeerState(**{**known, "seconds": 61.0, **more})


STATE = replace(
    WAITS,
    peers=[
        peer(10, lacks=["route a: refused", "fdb b: refused"]),
        peer(2, sent=7, received=0, heard=3.2),
        peer(3, trouble=Problem(code="ADDR-002", where="lease", seen="no MAC")),
        peer(4, id="a-node", subnets=["fd00::/64"], public=[]),
    ],
    refused=[
        RefusedState(id="10.5.9.0-24", trouble=CLASH, subnets=["10.5.9.0/24"], public=["172.31.0.9"], backend="udp"),
        RefusedState(id="without", trouble=CLASH),
    ],
)


def test_peers_stand_in_the_order_of_their_subnets():
    assert list(rows(STATE)) == ["10.5.2.0-24", "10.5.3.0-24", "10.5.9.0-24", "10.5.10.0-24", "a-node", "without"]


def test_the_table_shows_what_is_known():
    assert text(rows(STATE).values(), wide=False).splitlines() == [
        "SUBNET        PUBLIC IP    BACK END  FOR        SENT  RECEIVED  HEARD    STATE",
        "10.5.2.0/24   172.31.0.2   udp       1 min 1 s  7     0         3 s ago  served",
        "10.5.3.0/24   172.31.0.3   udp       1 min 1 s  -     -         -        unusable ADDR-002 lease: no MAC",
        "10.5.9.0/24   172.31.0.9   udp       -          -     -         -        refused ADDR-002 lease: clashes",
        "10.5.10.0/24  172.31.0.10  udp       1 min 1 s  -     -         -        lacks route a: refused; and 1 more",
        "fd00::/64     -            udp       1 min 1 s  -     -         -        served",
        "without       -            -         -          -     -         -        refused ADDR-002 lease: clashes",
    ]


def test_where_bytes_alone_are_counted_the_table_shows_those():
    shown = text(
        rows(replace(STATE, peers=[peer(2, sent_bytes=1500, received_bytes=0)], refused=[])).values(), wide=False
    )
    assert shown.splitlines()[1].split()[-5:] == ["1.5", "kB", "0", "B", "served"]


def test_in_a_mesh_the_table_shows_ways():
    relayed = peer(3, way="via node2: port-filtered")
    shown = text(rows(replace(STATE, peers=[peer(2, way="vxlan"), relayed], refused=[])).values(), wide=False)
    assert shown.splitlines() == [
        "SUBNET       PUBLIC IP   BACK END  WAY                       FOR        STATE",
        "10.5.2.0/24  172.31.0.2  udp       vxlan                     1 min 1 s  served",
        "10.5.3.0/24  172.31.0.3  udp       via node2: port-filtered  1 min 1 s  served",
    ]


def test_the_wide_table_has_leases_and_all_that_is_lacking():
    lines = text(rows(replace(STATE, peers=[peer(10, lacks=["a: no", "b: no"])], refused=[])).values(), wide=True)
    assert lines.splitlines() == [
        "SUBNET        PUBLIC IP    BACK END  FOR        LEASE         STATE",
        "10.5.10.0/24  172.31.0.10  udp       1 min 1 s  10.5.10.0-24  lacks a: no; b: no",
    ]
    assert text([], wide=False) == "SUBNET  PUBLIC IP  BACK END  FOR  STATE\n"


def only(*peers: PeerState) -> dict[str, Row]:
    return rows(replace(STATE, peers=list(peers), refused=[]))


@pytest.mark.parametrize(
    "before, now, said",
    [
        (only(), only(peer(2)), ["10.5.2.0/24  came, public IP 172.31.0.2, served"]),
        (only(peer(2)), only(), ["10.5.2.0/24  went"]),
        (only(peer(2)), only(peer(2, seconds=99.0, sent=9)), []),
        (
            only(peer(2, lacks=["a", "b"])),
            only(peer(2, public=["172.31.0.9"])),
            [
                "10.5.2.0/24  public IP 172.31.0.9, was 172.31.0.2; state served, was lacks a; b",
            ],
        ),
        (
            only(peer(2, way="vxlan")),
            only(peer(2, way="via node2: one-way")),
            ["10.5.2.0/24  way via node2: one-way, was vxlan"],
        ),
        (
            only(peer(2, id="x")),
            only(peer(3, id="x", public=[], backend="a")),
            ["10.5.3.0/24  subnet 10.5.3.0/24, was 10.5.2.0/24; public IP none, was 172.31.0.2; back end a, was udp"],
        ),
    ],
)
def test_a_watch_says_what_has_changed(before, now, said):
    assert [change(was, row) for was, row in changed(before, now)] == said


def test_a_watch_outlives_the_daemon(capsys):
    gone = Unavailable(Problem(code="INST-003", where="weftd", seen="gone"))
    answers: Iterator[int | Exception] = iter([1, gone, gone, 2, gone])
    pauses: list[float] = []

    def look() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watching = watched(look, 0.5, pauses.append)
    assert [next(watching), next(watching)] == [1, 2]
    assert pauses == [0.5] * 4
    assert capsys.readouterr().err == "weft: INST-003 weftd: gone; waiting for it\n"
