"""A lab with two segments and a router: what back ends make of it, and cuts that go through the router."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import Lab, lab, network, write_file
from tests.support.weftd import eventually

NODES = [{"name": name, "pods": 1, "segment": segment} for name, segment in (("left", 1), ("right", 1), ("far", 2))]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    file = write_file(tmp_path_factory.mktemp("direct"), nodes=NODES, network=network("vxlan-direct", "46"))
    with lab(file) as running:
        yield running


def test_vxlan_crosses_the_router_and_leaves_neighbours_to_routes(running: Lab):
    assert running.weft("pingall").returncode == 0
    nodes = {node["name"]: node for node in running.ps()["nodes"]}
    assert {name: (node["segment"], node["underlay"]) for name, node in nodes.items()} == {
        "left": (1, ["172.31.0.11", "fd31::11"]),
        "right": (1, ["172.31.0.12", "fd31::12"]),
        "far": (2, ["172.30.0.13", "fd30::13"]),
    }
    routes = {route["dst"]: route for route in json.loads(running.run("left", "ip", "-j", "route"))}
    assert routes[nodes["right"]["subnets"][0]]["gateway"] == "172.31.0.12"
    assert routes[nodes["far"]["subnets"][0]]["dev"] == "flannel.1"
    assert json.loads(running.run("left", "weft", "doctor", "-o", "json"))["findings"] == []
    assert "172.30.0.0/16" in running.weft("graph").stdout


def test_a_cut_through_the_router_leaves_other_ways(running: Lab):
    running.weft("partition", "left", "far")
    assert running.lost("left", "far")
    assert running.lost("far", "left")
    assert running.reached("right", "far") == {4: True, 6: True}
    running.weft("heal")
    running.weft("partition", "far", "store")
    store = ("ping", "-c1", "-W0.2", "172.31.0.1")
    assert running.weft("exec", "far", "--", *store, check=False).returncode == 1
    assert running.reached("left", "far") == running.reached("pod1-1", "pod3-1") == {4: True, 6: True}
    running.weft("heal")
    eventually(lambda: running.weft("exec", "far", "--", *store, check=False).returncode == 0, seconds=30)


def test_nodes_that_come_later_keep_the_router(running: Lab):
    # A switch whose MAC changed with its ports was lost to those that knew it before.
    assert running.reached("left", "far") == {4: True, 6: True}
    running.weft("scale", "6", "--pods", "0")
    assert running.reached("left", "far") == running.reached("node6", "far") == {4: True, 6: True}


def test_host_gw_does_not_cross_the_router_and_says_so(tmp_path: Path):
    file = write_file(tmp_path, nodes=NODES, network=network("host-gw", "4"))
    with lab(file) as other:
        assert other.reached("pod1-1", "pod2-1") == {4: True}
        assert other.reached("pod1-1", "pod3-1") == {4: False}
        found = json.loads(other.weft("exec", "left", "--", "weft", "doctor", "-o", "json", check=False).stdout)
        assert [finding["code"] for finding in found["findings"]] == ["ADDR-002"]
