"""A store that weft has not, whose ids are node names and whose subnets are given, needs no change of weft's source."""

import json
from pathlib import Path

import pytest

from tests.node import namedstore
from tests.support.weftd import HOST_GW, VXLAN, Cluster, Daemon, eventually
from weft.wire.etcd import decode_attrs


def routes(node: Daemon) -> str:
    return node.ip("route show proto 165")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The store."""
    made = tmp_path / "nodes"
    made.mkdir()
    return made


@pytest.mark.parametrize("backend", [VXLAN, HOST_GW], ids=["vxlan", "host-gw"])
def test_nodes_with_names_serve_each_other_and_start_again_without_the_store(
    cluster: Cluster, folder: Path, tmp_path: Path, backend: dict[str, object]
):
    (folder / namedstore.CONFIG).write_text(json.dumps(backend))
    nodes = {}
    for name, number in (("alpha", 1), ("beta", 2)):
        namedstore.put(folder, name, f"10.5.{number * 10}.0/24")
        node = nodes[name] = cluster.node(number)
        node.program = "tests.node.namedstore"
        node.start(env={"NODES": str(folder), "NODE": name})
    alpha, beta = nodes.values()
    assert "FLANNEL_SUBNET=10.5.10.1/24" in alpha.subnet_file.read_text()
    eventually(lambda: "10.5.20.0/24" in routes(alpha) and "10.5.10.0/24" in routes(beta))
    alpha.says("peer beta came")
    assert cluster.leases() == {}, "nothing is in etcd"

    alpha.stop()
    folder.rename(tmp_path / "away")
    alpha.ip("route del 10.5.20.0/24")
    alpha.start(env={"NODES": str(folder), "NODE": "alpha"})
    alpha.says("using the earlier lease")
    assert "10.5.20.0/24" in routes(alpha)
    [memory] = alpha.state_dir.glob("*/cluster.jsonl")
    head, peer = map(json.loads, memory.read_text().splitlines())
    assert (head["own"]["lease"][-1], head["own"]["token"], peer[-1]) == ("alpha", ["node", "alpha", 1], "beta")

    (tmp_path / "away").rename(folder)
    alpha.says("the store answers again")
    (folder / "beta").unlink()
    eventually(lambda: "10.5.20.0/24" not in routes(alpha))
    alpha.says("peer beta went")
    beta.says("node beta was deleted")


def test_the_directory_of_an_instance_is_named_by_its_store(cluster: Cluster, folder: Path):
    (folder / namedstore.CONFIG).write_text(json.dumps(HOST_GW))
    namedstore.put(folder, "alpha", "10.5.10.0/24")
    node = cluster.node(1)
    node.program = "tests.node.namedstore"
    node.start(env={"NODES": str(folder), "NODE": "alpha"})
    [memory] = node.state_dir.glob("*/cluster.jsonl")
    assert memory.parent.name.rpartition("-")[0] == "-".join(part for part in folder.parts if part.isalnum())[:40]


def test_a_store_that_gives_a_node_another_subnet_is_followed(cluster: Cluster, folder: Path):
    (folder / namedstore.CONFIG).write_text(json.dumps(VXLAN))
    nodes = []
    for name, number in (("alpha", 1), ("beta", 2)):
        namedstore.put(folder, name, f"10.5.{number * 10}.0/24")
        node = cluster.node(number)
        node.program = "tests.node.namedstore"
        nodes.append(node.start(env={"NODES": str(folder), "NODE": name}))
    alpha, beta = nodes
    eventually(lambda: "10.5.20.0/24" in routes(alpha))
    _, created, published = json.loads((folder / "beta").read_text())
    namedstore.put(folder, "beta", "10.5.30.0/24", decode_attrs(published.encode(), "beta"), created=created)
    beta.says("LEASE-004 our subnet is now 10.5.30.0/24, it was 10.5.20.0/24")
    eventually(lambda: "FLANNEL_SUBNET=10.5.30.1/24" in beta.subnet_file.read_text())
    assert "10.5.30.0/32" in beta.ip("addr show flannel.1")
    eventually(lambda: "10.5.30.0/24" in routes(alpha) and "10.5.20.0/24" not in routes(alpha))
    assert alpha.ready
    assert beta.ready
