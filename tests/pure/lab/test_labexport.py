"""A lab file that is written for a lab: it is read again as the same lab, and what cannot be in it is said."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.lab import spec, topology
from weft.lab.files import labexport, labfile
from weft.lab.links import STORE, Cut, Link
from weft.lab.network import planned
from weft.lab.report import LabReport, NodeReport, PodReport
from weft.model.errors import ConfigError
from weft.model.node.history import Event, Kind
from weft.model.value import replace

NETWORK = spec.net_conf(backend="vxlan", families=(4,), nft=False)
NAMES = [f"node{n}" for n in range(1, 5)]
LINKS = st.builds(
    Link,
    up=st.booleans(),
    delay=st.floats(0, 60_000).map(lambda ms: round(ms, 3)),
    loss=st.floats(0, 100).map(lambda share: round(share, 4)),
    rate=st.just(0) | st.integers(8_000, 100_000_000_000),
)
CUTS = st.lists(
    st.tuples(st.sampled_from([*NAMES, STORE]), st.sampled_from([*NAMES, STORE])).filter(
        lambda ends: ends[0] != ends[1]
    ),
    unique=True,
)
PORTS = st.builds(
    spec.HostPort,
    outside=st.integers(1, 65535),
    inside=st.integers(1, 65535),
    protocol=st.sampled_from(["TCP", "UDP"]),
)


POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "shut", "namespace": "lab"},
    "spec": {"podSelector": {}},
}
LAB = spec.regular(name="edge", network=NETWORK, families=(4,), nodes=2, pods=2)


@st.composite
def labs(draw: st.DrawFn) -> spec.Lab:
    names = NAMES[: draw(st.integers(1, 4))]
    segments = [1, *draw(st.lists(st.integers(1, 3), min_size=len(names) - 1, max_size=len(names) - 1))]
    nodes = tuple(
        spec.Node(
            name=name,
            index=index,
            segment=segment,
            daemon=draw(st.sampled_from(["", "/opt/flanneld", "flanneld"])),
            ports=draw(st.sampled_from([(), (spec.Port(address="127.0.0.1", outside=8000 + index, inside=80),)])),
        )
        for index, (name, segment) in enumerate(zip(names, segments, strict=True), 1)
    )
    pods = tuple(
        spec.Pod(
            name=f"pod{number}",
            node=draw(st.sampled_from(names)),
            ip=draw(st.sampled_from(["", f"10.244.1.{number + 9}"])),
            ports=tuple(draw(st.lists(PORTS, max_size=2))),
            namespace=draw(st.sampled_from(["lab", "shop"])),
            labels=draw(st.sampled_from([{}, {"app": "web", "tier": "1"}])),
        )
        for number in range(draw(st.integers(0, 5)))
    )
    service = spec.Service(
        name="web",
        port=80,
        target_port=8080,
        pods=("pod*",),
        addresses=("10.96.0.40",),
        node_port=draw(st.sampled_from([0, 30_080])),
    )
    links = draw(st.dictionaries(st.sampled_from(names), LINKS.filter(lambda link: link != Link())))
    cuts = tuple(Cut(source=one, target=other) for one, other in draw(CUTS) if {one, other} <= {*names, STORE})
    behind = sorted({each.segment for each in nodes} & draw(st.sampled_from([set[int](), {2}, {2, 3}])))
    nat: dict[int, spec.Nat] = {each: draw(st.sampled_from(get_args(spec.Nat))) for each in behind}
    shape = draw(st.sampled_from(["full", "line", "ring", "partial:3"]))
    return spec.Lab(
        name="edge",
        topology=topology.pairs(shape, names),
        network=NETWORK,
        families=(4,),
        nodes=nodes,
        pods=pods,
        services=draw(st.sampled_from([(), (service,)])),
        nat=nat,
        links=links,
        cuts=cuts,
        store=draw(st.sampled_from(["etcd", "kubernetes"])),
    )


@given(labs())
def test_a_lab_that_is_written_is_read_as_the_same_lab(lab: spec.Lab):
    assert labfile.read(labexport.written(lab), "it") == lab


@given(labs(), st.sampled_from([(), (POLICY,)]))
def test_policies_are_written_too(lab: spec.Lab, policies: tuple[dict[str, Any], ...]):
    nodes = tuple(replace(node, daemon="") for node in lab.nodes)
    policed = replace(lab, store="etcd", nodes=nodes, policies=policies)
    assert labfile.read(labexport.written(policed), "it") == policed


def test_a_mesh_with_a_password_is_written_too():
    lab = labfile.read("store: mesh\npassword: true", "it")
    assert labfile.read(labexport.written(lab), "it") == lab


def test_a_lab_of_kubernetes_nodes_has_no_pods_of_its_own():
    lab = msgspec.structs.replace(LAB, kubelets=True, store="kubernetes", pods=())
    assert labfile.read(labexport.written(lab), "it") == lab
    kept, [said] = labexport.exported(lab, running(lab), [])
    assert kept == lab
    assert said.startswith("what Kubernetes' API holds")


def running(lab: spec.Lab, **changes: Any) -> LabReport:
    """A lab that has just started, but for the addresses of some pods and the states of some nodes."""
    plan = planned(lab)
    addresses, states = changes.pop("addresses", {}), changes.pop("states", {})
    return LabReport(
        name=lab.name,
        backend="vxlan",
        families=list(lab.families),
        store="http://172.31.0.1:2379",
        store_state=changes.pop("store_state", "ready"),
        network=msgspec.Raw(lab.network.encode()),
        nodes=[
            NodeReport(
                name=node.name,
                underlay=node.underlay,
                subnets=changes.get("subnets", {}).get(node.name, node.subnets),
                mtu=1450,
                daemon=states.get(node.name, "ready"),
                problems=[],
                pid=1,
            )
            for node in plan.nodes
        ],
        pods=[
            PodReport(
                name=pod.name, node=pod.node, addresses=addresses.get(pod.name, pod.addresses), id="1", netns="/run/x"
            )
            for pod in plan.pods
        ],
    )


def event(number: int, kind: Kind, subject: str, words: str = "") -> Event:
    return Event(number=number, time=0.0, kind=kind, subject=subject, words=words)


def test_a_lab_that_is_as_it_started_is_exported_as_it_is():
    assert labexport.exported(LAB, running(LAB), []) == (LAB, [])


def test_pods_of_a_node_where_one_would_get_another_address_ask_for_theirs():
    addresses = {"pod1-1": ["10.244.1.9/24"]}
    lab, left_out = labexport.exported(LAB, running(LAB, addresses=addresses), [])
    assert [pod.ip for pod in lab.pods] == ["10.244.1.9", "10.244.1.3", "", ""]
    assert left_out == []


def test_what_has_no_place_in_a_file_is_named():
    far = spec.Pod(name="far", node="node1", network="second")
    lab = msgspec.structs.replace(LAB, pods=(*LAB.pods, far))
    done = [
        event(1, "broke", "node1 route-lost"),
        event(2, "broke", "node2 mac-changed"),
        event(3, "mended", "node2 mac-changed"),
        event(4, "broke", "node2 fdb-lost", words="it failed: no"),
        event(5, "cut", "node1 ↔ node2"),
    ]
    report = running(lab, states={"node2": "exited -9"}, store_state="silent", subnets={"node1": ["10.244.9.0/24"]})
    kept, left_out = labexport.exported(lab, report, done)
    assert kept.pods == LAB.pods
    assert left_out == [
        "pod far: network 'second', which files of its node configure",
        "node1: subnet 10.244.9.0/24; it would get 10.244.1.0/24",
        "weftd of node2: exited -9",
        "store: silent",
        "fault node1 route-lost, of `weft lab break`",
    ]


def test_of_two_families_another_address_is_named():
    lab = spec.regular(
        name="edge",
        network=spec.net_conf(backend="vxlan", families=(4, 6), nft=False),
        families=(4, 6),
        nodes=1,
        pods=1,
    )
    addresses = {"pod1-1": ["10.244.1.9/24", "2001:cafe:42:1::9/64"]}
    kept, [said] = labexport.exported(lab, running(lab, addresses=addresses), [])
    assert kept == lab
    assert said.startswith("pod pod1-1: 10.244.1.9/24, 2001:cafe:42:1::9/64; it would get 10.244.1.2/24, ")


def test_a_lab_that_was_built_by_hand_is_refused():
    with pytest.raises(ConfigError, match="its nodes are bare"):
        labexport.exported(msgspec.structs.replace(LAB, bare=True), running(LAB), [])


@pytest.mark.parametrize(
    "text, said",
    [
        ("nodes: [{name: a, link: {delay: 20}}]", "it:1: delay: 20"),
        ("nodes: [{name: a, link: {delay: soon}}]", "delay: 'soon' is no number with a unit"),
        ("nodes: [{name: a, link: {loss: 120%}}]", "loss: '120%' is no share of packets"),
        ("nodes: [{name: a, link: {rate: 1bit}}]", "rate: '1bit' is not between"),
        ("nodes: [{name: a, link: {latency: 1ms}}]", "unknown key 'latency'"),
        ("nodes: [{name: a, link: 5}]", "the link is 5"),
        ("nodes: [a, b]\ncuts: {from: a, to: b}", "it:2: cuts is no list"),
        ("nodes: [a, b]\ncuts: [{from: a, to: c}]", "it:2: a cut's to 'c'"),
        ("nodes: [a, b]\ncuts: [{from: a, to: a}]", "it:2: a cut from a to itself"),
        ("nodes: [a, b]\ncuts: [{from: a}]", "it:2: a cut without 'to'"),
        ("nodes: [a]\npods: [{name: p, node: a, ip: 10.1.2}]", "it:2: ip: '10.1.2' does not appear to be"),
        ("nodes: [a]\npods: [{name: p, node: a, ports: 80}]", "it:2: ports is no list"),
        ("nodes: [a]\npods: [{name: p, node: a, ports: [{hostPort: 80}]}]", "it:2: a port without 'containerPort'"),
        ("nodes: [a]\npods: [{name: p, node: a, ports: [{hostPort: 0, containerPort: 80}]}]", "it:2: hostPort: 0"),
        (
            "nodes: [a]\npods: [{name: p, node: a, ports: [{hostPort: 1, containerPort: 80, protocol: SCTP}]}]",
            "it:2: protocol: 'SCTP'",
        ),
    ],
)
def test_what_is_wrong_of_links_cuts_and_pods_is_said_with_its_line(text: str, said: str):
    with pytest.raises(ConfigError) as caught:
        labfile.read(text, "it")
    assert said in str(caught.value)
    assert "LAB-001 it:" in str(caught.value)
