"""Labs written as cluster files of kind: what is read again, and what is said of the rest."""

import json

import pytest

from weft.lab.files import kindexport, labfile
from weft.lab.spec import Lab
from weft.model.errors import ConfigError

DUAL = "network: {EnableIPv6: true, Network: 10.5.0.0/16, IPv6Network: 'fd05::/48', Backend: {Type: host-gw}}"
V6 = "network: {EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fd05::/48', EnableNFTables: true}"
CLUSTER = "apiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{}, {role: worker}, {role: worker}]"
PORTS = "nodes: [a, {name: b, extraPortMappings: [{hostPort: 8080, containerPort: 30080}]}]"


def read(text: str) -> Lab:
    return labfile.read(text, "x.yaml")


def comments(text: str) -> str:
    return " ".join(line for line in kindexport.written(read(text)).splitlines() if line.startswith("#"))


@pytest.mark.parametrize("text", ["{}", "name: edge\nnodes: 5", DUAL, V6, PORTS, "kubernetes: true"])
def test_what_is_written_is_read_as_nodes_on_the_same_network(text: str):
    lab = read(text)
    again = read(kindexport.written(lab))
    assert (again.name, again.families, again.nftables) == (lab.name, lab.families, lab.nftables)
    assert [node.ports for node in again.nodes] == [node.ports for node in lab.nodes]
    before, after = json.loads(lab.network), json.loads(again.network)
    assert [after.get(key) for key in ("Network", "IPv6Network")] == [
        before.get(key) if family in lab.families else None for key, family in (("Network", 4), ("IPv6Network", 6))
    ]
    assert again.kubelets


def test_keys_of_the_network_have_no_case():
    lab = read("network: {network: 10.5.0.0/16, enablenftables: true, backend: {type: host-gw}}")
    assert lab.nftables
    again = read(kindexport.written(lab))
    assert (again.nftables, json.loads(again.network)["Network"]) == (True, "10.5.0.0/16")


def test_what_nodes_of_kubernetes_cannot_have_is_refused():
    with pytest.raises(ConfigError, match=r"Network 10\.0\.0\.0/8 overlaps 10\.96\.0\.0/16"):
        kindexport.written(read("network: {Network: 10.0.0.0/8}"))


def test_sizes_of_subnets_that_kubeadm_does_not_choose_are_told():
    small = "network: {Network: 10.5.0.0/16, SubnetLen: 26}"
    assert "kubeadm gives each node a /24 of 10.5.0.0/16: for the lab's /26" in comments(small)
    assert "kubeadm gives" not in comments(DUAL)
    assert "The first node is the control plane" in comments(small)
    assert "control plane" not in comments("nodes: 1")


def test_the_first_node_is_the_control_plane():
    assert [node.name for node in read(kindexport.written(read("nodes: 3"))).nodes] == [
        "weft-control-plane",
        "weft-worker",
        "weft-worker2",
    ]


def test_the_network_configuration_is_told():
    assert f"ConfigMap: {read(DUAL).network}" in comments(DUAL)


@pytest.mark.parametrize(
    "text, left_out",
    [
        (CLUSTER, ""),
        ("kubernetes: true", "besides: names of nodes (kind has its own)."),
        ("pods: 0", "besides: names of nodes (kind has its own)."),
        ("{}", "besides: pods (kubectl makes them), names of nodes (kind has its own)."),
        (
            "pods: 0\nnodes: [a, {name: b, segment: 2, daemon: flanneld}]\nnat: [2]",
            "besides: segments of the underlay, NAT, daemons that are not weft's, names of nodes (kind has its own).",
        ),
        (
            "services: [{name: web, port: 80, pods: 'pod*'}]",
            "besides: pods (kubectl makes them), Services (kubectl makes them), names of nodes (kind has its own).",
        ),
    ],
)
def test_what_has_no_place_is_told(text: str, left_out: str):
    said = comments(text)
    assert said.endswith(left_out)
    assert ("besides" in said) == bool(left_out)
