"""The state of a node, as people read it."""

import time

import msgspec
import pytest

from weft.daemon.commands.status import lines
from weft.model.errors import Problem
from weft.model.node.nodestate import (
    CallState,
    Durations,
    LeaseState,
    LoopState,
    NetworkState,
    NodeState,
    PeerState,
    PolicyEffect,
    PolicyState,
    RefusedState,
    UplinkState,
)
from weft.model.text import shortly
from weft.model.value import replace

WAITS = NodeState(
    version="1.0",
    instance="net-1",
    pid=7,
    seconds=3.9,
    ready=False,
    parts={"lease": Problem(code="CONF-001", where="etcd key /n/config", seen="missing", hint="Put it there")},
    losses={},
    store=None,
    faults=0,
)
WELL = replace(
    WAITS,
    ready=True,
    seconds=90061,
    parts={"lease": None, "devices": None},
    network=NetworkState(networks=["10.5.0.0/16", "fd00::/48"], backend="vxlan", mtu=1430, devices=["flannel.1"]),
    uplink=UplinkState(name="eth0", index=2, mtu=1500, addresses=["172.31.0.1"], why="the default route leads there"),
    lease=LeaseState(
        id="10.5.1.0-24", subnets=["10.5.1.0/24"], public=["203.0.113.7"], confirmed=True, seconds=86341.5
    ),
    peers=[PeerState(id="10.5.2.0-24", subnets=["10.5.2.0/24"], public=["172.31.0.2"], backend="vxlan")],
    versions={"Linux": "6.1.0", "packet filter": "nft 1.0.6"},
    calls={
        "bridge ADD": CallState(count=9, failed=2, median_ms=4.0, worst_ms=31.5),
        "bridge DEL": CallState(count=1, failed=0, median_ms=5.1, worst_ms=5.1),
    },
    loops={"routes": LoopState(rounds=9, repairs={"ROUTE-001": 2, "FDB-001": 1}, unannounced=0, failing={})},
)


def test_a_node_that_is_well():
    assert list(lines(WELL)) == [
        "weftd      1.0, ready, up 1 d 1 h, instance net-1",
        "network    10.5.0.0/16 fd00::/48, vxlan, flannel.1, MTU of pods 1430",
        "uplink     eth0 (index 2), 172.31.0.1, MTU 1500",
        "           the default route leads there",
        "lease      10.5.1.0/24, public IP 203.0.113.7, held by the store, for 23 h 59 min more",
        "peers      1 served, 0 not served or only in part, 0 refused",
        "routes     3 repairs (FDB-001 1, ROUTE-001 2)",
        "calls      bridge ADD 9 (2 failed), 4 ms, 31.5 at worst",
        "calls      bridge DEL 1, 5.1 ms, 5.1 at worst",
        "versions   Linux 6.1.0, packet filter nft 1.0.6",
    ]


def test_a_node_that_waits_says_for_what():
    assert list(lines(WAITS)) == [
        "weftd      1.0, not ready, up 3 s, instance net-1",
        "! lease: CONF-001 etcd key /n/config: missing. Put it there",
    ]


def test_all_that_is_wrong_is_listed_and_of_many_that_are_alike_some():
    trouble = Problem(code="ADDR-002", where="lease", seen="clashes", expected="none that clashes")
    [peer] = WELL.peers
    state = replace(
        WELL,
        faults=1,
        calls={},
        store=Problem(code="STORE-001", where="store", seen="it does not answer"),
        losses={"pods": Problem(code="BRIDGE-006", where="link cni0", seen="deleted")},
        lease=LeaseState(id="10.5.1.0-24", subnets=["10.5.1.0/24"], public=[], confirmed=False),
        network=NetworkState(networks=["10.5.0.0/16"], backend="host-gw", mtu=1500, devices=[]),
        peers=[replace(peer, lacks=["route: refused", "fdb: refused"], seconds=62.5), peer],
        refused=[RefusedState(id=str(number), trouble=trouble, seconds=3) for number in range(12)],
        versions={},
        loops={
            "rules": LoopState(rounds=1, repairs={}, unannounced=0, failing={"ruleset nft": "no"}),
            "relay": LoopState(rounds=1, repairs={}, unannounced=0, failing={}, counts={"sent": 3, "dropped, why": 2}),
        },
    )
    assert list(lines(state))[1:] == [
        "network    10.5.0.0/16, host-gw, MTU of pods 1500",
        "uplink     eth0 (index 2), 172.31.0.1, MTU 1500",
        "           the default route leads there",
        "lease      10.5.1.0/24, public IP , from an earlier run, until the store answers",
        "peers      1 served, 1 not served or only in part, 12 refused",
        "rules      0 repairs, 1 refused now",
        "relay      0 repairs; sent 3; dropped, why 2",
        "faults     1 part ended by a fault of weft's and started again: see the log",
        "! store: STORE-001 store: it does not answer",
        "! pods: BRIDGE-006 link cni0: deleted",
        "! peer 10.5.2.0-24 for 1 min 2 s: route: refused; fdb: refused",
        *["! refused for 3 s: ADDR-002 lease: clashes; expected none that clashes"] * 10,
        "! and 2 more like that; -o json names them all",
    ]


@pytest.mark.parametrize(
    "seconds, said",
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3600, "1 h 0 min"), (7325, "2 h 2 min"), (86400 * 9, "9 d 0 h")],
)
def test_a_time_in_two_units(seconds: float, said: str):
    assert shortly(seconds) == said


def test_what_another_version_adds_or_leaves_out_is_no_fault():
    known = msgspec.json.decode(msgspec.json.encode(WELL), type=dict)
    del known["loops"]
    known["new"] = {"a": 1}
    read = msgspec.json.decode(msgspec.json.encode(known), type=NodeState)
    assert read == replace(WELL, loops={})


def test_of_policies_it_says_since_when_they_are_in_effect():
    effect = PolicyEffect(since=time.time() - 90, changing=("NetworkPolicy shop/web",))
    state = PolicyState(
        mode="audit",
        policies=3,
        pods=5,
        unknown=0,
        isolated={"ingress": 2, "egress": 1},
        elements=9,
        transactions=Durations(),
        waited=Durations(),
        cut=0,
        age=0.0,
        effect=effect,
    )
    said = [line for line in lines(replace(WELL, policy=state)) if line.startswith("policies")]
    assert said[0] == "policies   3 policy objects, in an audit; of 5 pods restricted: 2 in ingress and 1 in egress"
    assert said[1].startswith("policies   In effect since ")
    assert said[1].endswith(" (1 min 30 s ago).")
    assert said[2] == "policies   Not in effect yet, what was before holds: NetworkPolicy shop/web."
    begun = replace(state, mode="enforce", effect=replace(effect, since=None))
    said = [line for line in lines(replace(WELL, policy=begun)) if line.startswith("policies")]
    assert said[1:] == ["policies   Not in effect yet, it has just begun: NetworkPolicy shop/web."]
