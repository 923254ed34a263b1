"""kind's cluster files: what becomes of them, and what of them a lab does not have, each with its line."""

import json

import pytest

from weft.lab.files import labfile
from weft.lab.spec import Port
from weft.model.errors import ConfigError

HEAD = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n"


def read(text, **options):
    return labfile.read(HEAD + text, "x.yaml", **options)


def problems(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return [str(problem).removeprefix("LAB-001 x.yaml:") for problem in caught.value.problems]


def test_the_least_one_is_a_node_of_kubernetes():
    lab = read("")
    assert (lab.name, lab.store, lab.kubelets, lab.families, lab.pods) == ("kind", "kubernetes", True, (4,), ())
    assert [node.name for node in lab.nodes] == ["kind-control-plane"]
    assert json.loads(lab.network)["Network"] == "10.244.0.0/16"


def test_nodes_have_the_names_that_kind_gives_them():
    lab = read("name: edge\nnodes: [{role: control-plane}, {role: worker}, {role: worker}, {}]")
    names = ["edge-control-plane", "edge-worker", "edge-worker2", "edge-control-plane2"]
    assert [(node.name, node.index) for node in lab.nodes] == [(name, index) for index, name in enumerate(names, 1)]
    assert read("name: edge", name="other").nodes[0].name == "other-control-plane"


def test_ports_of_the_machine_lead_to_those_of_nodes():
    lab = read(
        """
nodes:
- role: worker
  extraPortMappings:
  - {containerPort: 80, hostPort: 8080}
  - {containerPort: 443, hostPort: 8080, listenAddress: "::1", protocol: TCP}
"""
    )
    assert lab.nodes[0].ports == (
        Port(address="127.0.0.1", outside=8080, inside=80),
        Port(address="::1", outside=8080, inside=443),
    )


@pytest.mark.parametrize(
    "networking, families, network",
    [
        ("{podSubnet: 10.1.0.0/16}", (4,), {"Network": "10.1.0.0/16"}),
        ("{ipFamily: ipv6}", (6,), {"EnableIPv4": False, "IPv6Network": "2001:cafe:42::/56"}),
        (
            '{ipFamily: dual, podSubnet: "10.1.0.0/16, fd00:10:244::/56"}',
            (4, 6),
            {"Network": "10.1.0.0/16", "IPv6Network": "fd00:10:244::/56"},
        ),
        ("{kubeProxyMode: nftables, disableDefaultCNI: true}", (4,), {"EnableNFTables": True}),
    ],
)
def test_networking(networking, families, network):
    lab = read(f"networking: {networking}")
    assert lab.families == families
    assert json.loads(lab.network).items() >= network.items()


@pytest.mark.parametrize(
    "text, problem",
    [
        ("name: A", "3: a lab named 'A'"),
        ("node: []", "3: unknown key 'node'"),
        ("nodes: []", "3: no nodes"),
        ("nodes: 3", "3: no nodes"),
        ("nodes: [{role: master}]", "3: role: 'master'; expected one of control-plane, worker"),
        ("nodes:\n- image: kindest/node:v1.34.0", "4: 'image', which a lab does not have: nodes run the programs"),
        ("featureGates: {A: true}", "3: 'featureGates', which a lab does not have"),
        ("networking: {serviceSubnet: 10.0.0.0/16}", "3: 'serviceSubnet', which a lab does not have"),
        ("networking: {ipFamily: both}", "3: ipFamily: 'both'; expected one of ipv4, ipv6, dual"),
        ("networking: {disableDefaultCNI: 1}", "3: disableDefaultCNI: 1; expected true or false"),
        ("networking: {kubeProxyMode: ipvs}", "3: kubeProxyMode: 'ipvs'; expected one of "),
        ("networking: {podSubnet: 10.0.0.1/16}", "3: podSubnet: 10.0.0.1/16 has host bits set"),
        ("networking: {podSubnet: 'fd00::/56'}", "3: podSubnet fd00::/56; expected a network of a family"),
        (
            "networking: {podSubnet: '10.0.0.0/16,10.1.0.0/16'}",
            "3: podSubnet 10.1.0.0/16 beside 10.0.0.0/16; expected one",
        ),
        (
            "networking: {ipFamily: dual, podSubnet: 10.0.0.0/16}",
            "3: podSubnet 10.0.0.0/16; expected a network of each family of ipFamily",
        ),
        (
            "networking: {podSubnet: 10.0.0.0/8}",
            "ADDR-001 x.yaml:3 networking: Network 10.0.0.0/8 overlaps 10.96.0.0/16, where its Services are",
        ),
        (
            "networking: {ipFamily: ipv6, podSubnet: 'fd31:96::/56'}",
            "ADDR-001 x.yaml:3 networking: IPv6Network fd31:96::/56 overlaps fd31:96::/112, where its Services are",
        ),
        ("networking: {podSubnet: 10.0.0.0/30}", "3: podSubnet: "),
        (
            "networking: {podSubnet: 10.0.0.0/24}\nnodes: [{}, {}, {}, {}, {}]",
            "3 networking: Network 10.0.0.0/24 has ",
        ),
    ],
)
def test_mistakes(text, problem):
    assert any(told.startswith(problem) for told in problems(text)), problems(text)


def test_another_version_of_kinds_files():
    with pytest.raises(ConfigError, match="v1alpha9'; expected kind"):
        labfile.read("apiVersion: kind.x-k8s.io/v1alpha9", "x.yaml")


@pytest.mark.parametrize(
    "mapping, problem",
    [
        ("{hostPort: 1}", "a port mapping without 'containerPort'"),
        ("{containerPort: 1}", "a port mapping without 'hostPort'"),
        ("{containerPort: 0, hostPort: 1}", "port 0; expected 1 to 65535"),
        ("{containerPort: 1, hostPort: 65536}", "port 65536; expected 1 to 65535"),
        ("{containerPort: 1, hostPort: 1, protocol: UDP}", "protocol 'UDP'; expected TCP, or nothing"),
        (
            "{containerPort: 1, hostPort: 1, listenAddress: 0.0.0.0}",
            "port 1 of 0.0.0.0; expected an address of loopback",
        ),
        ("{containerPort: 1, hostPort: 1, listenAddress: x}", "port 1 of x; expected an address of loopback"),
        ("{containerPort: 1, hostPort: 1, listenAddress: 1}", "listenAddress: 1; expected text, in quotes"),
        ("{containerPort: 1, hostPort: 1}, {containerPort: 2, hostPort: 1}", "port 1 of 127.0.0.1 a second time"),
        (", ".join(f"{{containerPort: 1, hostPort: {port}}}" for port in range(1, 202)), "more than 200 port mappings"),
    ],
)
def test_mistakes_in_port_mappings(mapping, problem):
    [told] = problems(f"nodes: [{{extraPortMappings: [{mapping}]}}]")
    assert told.removeprefix("3: ").startswith(problem)


def test_port_mappings_that_are_no_list():
    [told] = problems("nodes: [{extraPortMappings: {containerPort: 1}}]")
    assert told.startswith("3: extraPortMappings is no list")


def test_a_lab_file_has_them_as_well():
    text = "nodes: [{name: a, extraPortMappings: [{containerPort: 80, hostPort: 8080}]}]"
    lab = labfile.read(text, "x.yaml")
    assert lab.nodes[0].ports == (Port(address="127.0.0.1", outside=8080, inside=80),)
