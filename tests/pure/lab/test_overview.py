"""How all nodes of a lab are, in one table."""

from tests.pure.daemon.test_status_command import WELL
from tests.pure.lab.test_commands import report
from weft.lab.commands.daemons import overview, repairs
from weft.model.errors import Problem
from weft.model.node.nodestate import LeaseState, LoopState
from weft.model.value import replace

[PEER] = WELL.peers
LACKING = replace(PEER, id="10.5.3.0-24", lacks=["route: refused"], seconds=5)


def test_a_node_a_line_and_below_what_is_wrong_and_which_has_repaired_most():
    loops = {
        "routes": LoopState(rounds=9, repairs={"ROUTE-001": 2, "FDB-001": 1}, unannounced=0, failing={}),
        "rules": LoopState(rounds=9, repairs={"MASQ-001": 4}, unannounced=0, failing={}),
    }
    state = replace(WELL, loops=loops, peers=[PEER, LACKING])
    assert overview(report(), {"node1": state, "node2": None}).splitlines() == [
        "lab weft: vxlan, store http://172.31.0.1:2379 ready",
        "",
        "NODE   DAEMON     UP       POD SUBNET                  LEASE        PEERS   REPAIRS  CALLS  FAILED  VERSION",
        "node1  ready      1 d 1 h  10.244.1.0/24, fd00:1::/64  23 h 59 min  1 of 2  7        10     2       1.0",
        "node2  not ready  -        10.244.2.0/24, fd00:2::/64  -            -       -        -      -       -",
        "! node1: peer 10.5.3.0-24 for 5 s: route: refused",
        "! node2: devices failed: VTEP-002 x",
        "! node2: rules failed",
        "most repairs: node1, 7 repairs (MASQ-001 4, ROUTE-001 2, FDB-001 1)",
    ]


def test_nothing_is_said_where_nothing_is_wrong_and_nothing_was_repaired():
    quiet = replace(WELL, loops={}, calls={}, lease=LeaseState(id="x", subnets=[], public=[], confirmed=True))
    unready = replace(quiet, parts={"devices": Problem(code="VTEP-002", where="x", seen="y")})
    *_, first, second, last = overview(report(), {"node1": quiet, "node2": unready}).splitlines()
    assert first.split()[-8:] == ["-", "1", "of", "1", "0", "0", "0", "1.0"]
    assert second.startswith("node2  not ready")
    assert last == "! node2: devices: VTEP-002 x: y"


def test_repairs_are_those_of_all_loops():
    assert repairs(WELL) == {"ROUTE-001": 2, "FDB-001": 1}
