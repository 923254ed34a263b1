"""Options beside a lab file, and what a lab would be."""

import json

import msgspec
import pytest

from weft.lab.files import labfile
from weft.lab.network import planned
from weft.lab.spec import Overrides
from weft.model.errors import ConfigError

APART = "nodes: [{name: a, segment: 2}, {name: b, segment: 3}]"


def read(text, **options):
    return labfile.read(text, "x.yaml", over=Overrides(**options))


@pytest.mark.parametrize(
    "text, options, same",
    [
        ("{}", {"nodes": 2, "pods": 1}, "nodes: 2\npods: 1"),
        ("nodes: 5\npods: 4", {"nodes": 2}, "nodes: 2\npods: 4"),
        ("nodes: [a, {name: b, pods: 3}]", {"pods": 0}, "nodes: [a, {name: b, pods: 3}]\npods: 0"),
        (
            "name: x",
            {"backend": "host-gw"},
            "name: x\nnetwork: {Network: 10.244.0.0/16, EnableNFTables: false, Backend: {Type: host-gw}}",
        ),
        (
            "network: {Network: 10.5.0.0/16, Backend: {Type: vxlan}}",
            {"backend": "udp"},
            "network: {Network: 10.5.0.0/16, Backend: {Type: udp}}",
        ),
        (
            "network: {Network: 10.5.0.0/16, backend: {type: vxlan}}",
            {"backend": "udp"},
            "network: {Network: 10.5.0.0/16, backend: {type: udp}}",
        ),
        (
            "network: {Network: 10.5.0.0/16}",
            {"backend": "udp", "nft": True},
            "network: {Network: 10.5.0.0/16, EnableNFTables: true, Backend: {Type: udp}}",
        ),
        ("store: etcd", {"store": "kubernetes"}, "store: kubernetes"),
        ("nodes: 2", {"kubernetes": True}, "nodes: 2\nkubernetes: true"),
        (
            f"{APART}\nnat: [2, {{segment: 3}}]",
            {"nat": "hard"},
            f"{APART}\nnat: [{{segment: 2, kind: hard}}, {{segment: 3, kind: hard}}]",
        ),
    ],
)
def test_an_option_takes_the_place_of_what_the_file_says(text, options, same):
    made, wanted = read(text, **options), labfile.read(same, "x.yaml")
    assert json.loads(made.network) == json.loads(wanted.network)
    assert msgspec.structs.replace(made, network="") == msgspec.structs.replace(wanted, network="")


def test_families_and_rules_without_a_network_are_as_without_a_file():
    made = read("nodes: 1", family="46", nft=True, backend="host-gw")
    assert made.families == (4, 6)
    assert made.nftables
    assert json.loads(made.network)["Backend"] == {"Type": "host-gw"}


KIND = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4"


@pytest.mark.parametrize(
    "text, options, said",
    [
        ("name: x\nnodes: [a, b]", {"nodes": 3}, "2: --nodes 3 beside a list of nodes; expected one of the two"),
        ("nodes: 1\npods: [{name: x, node: node1}]", {"pods": 3}, "2: --pods 3 beside a list of pods"),
        ("nodes: [{name: a, pods: 1}]", {"pods": 3}, "1: --pods 3, and each node says its own"),
        ("network: {Network: 10.5.0.0/16, Backend: {Type: vxlan}}", {"family": "6"}, "1: --family 6 beside a network"),
        (KIND, {"store": "etcd"}, "1: --store beside a cluster file of kind; expected kind's own keys in the file"),
        ("nodes: 2", {"nat": "hard"}, "1: --nat hard beside a file that has nothing behind a NAT; expected nat in"),
        ("nodes: 3", {"nodes": 3, "pods": 300}, "1: pods: 300; expected 0 to 250"),
        ("- a", {"nodes": 3}, "1: the lab is a list"),
    ],
)
def test_an_option_that_cannot_take_the_place_is_refused_with_the_line(text, options, said):
    with pytest.raises(ConfigError) as caught:
        read(text, **options)
    assert str(caught.value.problems[0]).startswith(f"LAB-001 x.yaml:{said}")


@pytest.mark.parametrize(
    "network, said",
    [
        ("{Network: 10.5.0.0/16, Backend: {Type: vxlan, VNI: 2}}", "Backend.VNI: an unknown key"),
        ("{Network: 10.5.0.0/16, Backend: vxlan}", "Backend: "),
        ("vxlan", "network: 'vxlan'; expected a mapping"),
    ],
)
def test_what_does_not_go_with_an_options_back_end_is_the_readers_to_refuse(network, said):
    with pytest.raises(ConfigError, match=said):
        read(f"network: {network}", backend="host-gw")


SHUT = {"kind": "NetworkPolicy", "metadata": {"name": "shut", "namespace": "lab"}, "spec": {}}


def test_policies_stand_beside_those_of_the_file_or_in_the_place_of_those_of_the_same_names():
    [space] = read("policies: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]").policies or ()
    lab = read("nodes: 1\npolicies: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]", policies=(SHUT,))
    assert lab.policies == (space, SHUT)
    other = SHUT | {"spec": {"podSelector": {}}}
    assert labfile.with_policies(lab, [other], "--policy").policies == (space, other)
    with pytest.raises(ConfigError, match="policies, and nodes whose pods Kubernetes' API does not know"):
        read("store: kubernetes", policies=(SHUT,))


@pytest.mark.parametrize("kubernetes, home", [("true", "default"), ("false", "lab")])
def test_a_policy_that_names_no_namespace_is_where_pods_are(kubernetes: str, home: str):
    lost = {**SHUT, "metadata": {"name": "lost"}}
    written = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}}}"
    lab = read(f"kubernetes: {kubernetes}\nnodes: 1\npolicies: [{written}]", policies=(lost,))
    assert [each["metadata"]["namespace"] for each in lab.policies or ()] == [home, home]


def test_what_a_lab_would_be():
    lab = labfile.read(
        "nodes: [{name: a, pods: 2}, {name: b, pods: [web]}]\nnetwork: {Network: 10.5.0.0/16, Backend: {Type: udp}}",
        "x",
    )
    plan = planned(lab)
    assert [(node.name, node.underlay, node.subnets) for node in plan.nodes] == [
        ("a", ["172.31.0.11"], ["10.5.1.0/24"]),
        ("b", ["172.31.0.12"], ["10.5.2.0/24"]),
    ]
    assert [(pod.name, pod.node, pod.addresses) for pod in plan.pods] == [
        ("pod1-1", "a", ["10.5.1.2/24"]),
        ("pod1-2", "a", ["10.5.1.3/24"]),
        ("web", "b", ["10.5.2.2/24"]),
    ]
    elsewhere = planned(labfile.read("nodes: 1\nstore: kubernetes", "x"))
    assert (elsewhere.nodes[0].subnets, elsewhere.pods[0].addresses) == ([], [])


@pytest.mark.parametrize("nat", ["2", "[[2]]"])
def test_what_is_no_list_of_segments_is_complained_of_whatever_is_chosen(nat: str):
    with pytest.raises(ConfigError, match=r"nat|segment"):
        read(f"nodes: [a, {{name: b, segment: 2}}]\nnat: {nat}", nat="hard")
