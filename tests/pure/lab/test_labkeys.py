"""The JSON Schema of a lab file says what the reader says, as far as a schema can."""

import pytest
import yaml

from scripts.docs import lab
from tests.pure.lab.jsonschema import fits
from tests.pure.lab.test_labfile import MISTAKES, read
from weft.lab.files import labkeys
from weft.model.errors import ConfigError

GOOD = (
    "{}",
    "name: edge",
    "{apiVersion: weft.dev/v1, kind: Lab, nodes: 1, pods: 0}",
    "network: {Network: 10.5.0.0/16, SubnetLen: 26, Backend: {Type: vxlan, VNI: 7, DirectRouting: true}}",
    "nodes: [left, {name: right, pods: [web, db]}, {name: far, pods: 3}]",
    "nodes: 2\npods: [{name: web, node: node2}]",
    "nodes: [{name: a, extraPortMappings: [{hostPort: 8080, containerPort: 80, listenAddress: 127.0.0.2}]}]",
    "nodes: [{name: a, extraPortMappings: [{hostPort: 8080, containerPort: 80, protocol: TCP}]}]",
    "store: kubernetes",
    "topology: partial:7",
    "nodes: 3\ntopology: [[node1, node2, node3]]",
    "kubernetes: true",
    "services: [{name: web, port: 80, targetPort: 8080, pods: 'pod*', nodePort: 30080}]",
    "nodes: [a, {name: b, segment: 2}, {name: c, segment: 3}]\nnat: [2, {segment: 3, kind: hard}]",
    "services: [{name: dns, port: 53, protocol: UDP, pods: [pod1-1], clusterIP: 10.96.0.53}]",
    "pods: [{name: web, node: node1, namespace: shop, labels: {app: web}}]",
    "policies: []",
    "policies: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]",
)
# Bad files besides those of the reader's own tests.
BAD = (
    "services: [{name: web, port: 80}]",
    "services: [{name: web, port: 0, pods: x}]",
    "services: [{name: web, port: 80, pods: x, nodePort: 80}]",
    "services: {name: web}",
    "nodes: [{name: b, segment: 2}]\nnat: [{segment: 2, kind: soft}]",
    "nodes: [{name: b, segment: 2}]\nnat: [{kind: hard}]",
    "store: consul",
    "kubernetes: maybe",
    "network: vxlan",
    "nodes: [{name: a, extraPortMappings: [{hostPort: 8080}]}]",
    "nodes: [{name: a, extraPortMappings: [{hostPort: 70000, containerPort: 1}]}]",
    "nodes: [{name: a, extraPortMappings: [{hostPort: 1, containerPort: 1, protocol: UDP}]}]",
    "pods: [web]",
    "nodes: [{name: all}]",
    "name: Edge",
)
# What only the reader sees: names that are there twice or not at all, room, and what is not even YAML or JSON.
BEYOND = (
    "name: a\nname: b",
    "- a\n- b\n- a",
    "[x,\n x]",
    "node: a}]",
    "policies: [none.yaml]",
    "store: kubernetes\nnodes: 2\npolicies: []",
    "node: lift",
    "/24, Backend",
    "SubnetLen: 30",
    "IPv6SubnetLen: 126",
    "nodes: 256",
    "segment: 2}]",
    "daemon: flanneld}]",
    "nat: [2, 3]",
    "topology: [[node1",
    "2020-13-45",
    "0x_",
    "!!",
    "<<",
)


@pytest.mark.parametrize("text", GOOD)
def test_what_the_reader_takes_fits(text):
    read(text)
    assert fits(labkeys.schema(), yaml.safe_load(text))


@pytest.mark.parametrize("text", [text for text in (*MISTAKES, *BAD) if not any(part in text for part in BEYOND)])
def test_what_the_reader_refuses_does_not_fit(text):
    with pytest.raises(ConfigError):
        read(text)
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return  # no program that asks a schema gets so far
    if "network" not in text or text == "network: vxlan":  # which is flannel's, and is not described whole
        assert not fits(labkeys.schema(), value)


def test_the_schema_in_the_docs_is_this_one():
    assert lab.SCHEMA.read_text() == lab.schema(), "`make docs` writes it"
